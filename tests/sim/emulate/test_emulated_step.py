"""Training steps on shaped links and shared processors, against what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.codec.names import scheme
from syncline.program.overlap import ExchangeCosts, RingCosts, SharedMachine, Work
from syncline.sim.emulate.emulated_step import predict_step, step_timeline
from syncline.sim.emulate.emulation import HostCosts, HostLinks
from syncline.timeline import SpanKind

COSTS = HostCosts(0.0, 0.0, 0.0, 0.0, 1.0)
STAR = {(a, b): (2 * a, 2 * b + 1) for a in range(4) for b in range(4) if a != b}
WORK = Work(0.1, (0.05,) * 4, (1 << 20,) * 4, 0.05)


def star(rate_Bps: float) -> HostLinks:
    return HostLinks.of(np.full(8, rate_Bps), STAR, range(4))


def codec(name: str, seconds: float = 0.0) -> ExchangeCosts:
    return ExchangeCosts(name, scheme(name), seconds, seconds)


@pytest.mark.parametrize("cores", [1.0, 2.0, 4.0, 64.0])
def test_on_a_fast_network_ranks_share_the_processors(cores: float) -> None:
    step = predict_step(WORK, codec("int8"), star(1e12), SharedMachine(cores, 0.0, 0.0), COSTS)
    assert step == pytest.approx(WORK.total_s * max(1.0, 4 / cores), rel=1e-3)


def test_on_a_slow_network_the_wire_is_the_step() -> None:
    rate = 1e6
    for how, sent in ((codec("fp32"), 2 * 3 / 4 * 16 * 2**20), (RingCosts(0.0), 2 * 3 / 4 * 16 * 2**20)):
        step = predict_step(WORK, how, star(rate), SharedMachine(64.0, 0.0, 0.0), COSTS)
        first_ready = WORK.forward_s + WORK.backward_s[0]
        assert step == pytest.approx(sent / rate + first_ready + WORK.optimizer_s, rel=0.02)


def test_fewer_bytes_and_cheaper_codecs_are_faster() -> None:
    machine, wiring = SharedMachine(2.0, 2e-9, 1e-4), star(12.5e6)
    steps = [predict_step(WORK, codec(name, 1e-9), wiring, machine, COSTS) for name in ("fp32", "bf16", "int8", "sign")]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > 2.5 * steps[2]
    slow = predict_step(WORK, codec("sign", 2e-7), wiring, machine, COSTS)
    assert slow > steps[0]  # a codec can cost more than the wire it saves


def test_bytes_through_the_kernel_take_the_processor_too() -> None:
    free, dear = (predict_step(WORK, codec("fp32"), star(1e9), SharedMachine(1.0, b, 0.0), COSTS) for b in (0.0, 1e-8))
    assert dear - free == pytest.approx(4 * 2 * 3 / 4 * 16 * 2**20 * 1e-8, rel=0.05)


@pytest.mark.parametrize("how", [codec("int8", 1e-9), RingCosts(1e-9)], ids=["int8", "ring"])
def test_a_step_as_a_timeline_is_the_step(how: ExchangeCosts | RingCosts) -> None:
    given = (WORK, how, star(12.5e6), SharedMachine(2.0, 2e-9, 1e-4), COSTS)
    timeline = step_timeline(*given)
    assert timeline.makespan_s == pytest.approx(predict_step(*given), rel=1e-9)
    # Four ranks share two processors, so what one computes takes at least as long as its work.
    computed = timeline.busy_s((SpanKind.COMPUTE,))
    assert (computed >= 0.999 * WORK.total_s).all()
    assert timeline.link_use().size_bytes.sum() == pytest.approx(
        2 * timeline.spans.size_bytes[timeline.spans.kind == SpanKind.RECV].sum(), rel=1e-6
    )
