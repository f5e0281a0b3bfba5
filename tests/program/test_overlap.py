"""One rank that stands for all, against the simulator that plays every one of them; and against arithmetic."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from syncline.codec.names import scheme
from syncline.program.overlap import (
    ExchangeCosts,
    How,
    LowRankCosts,
    RankLink,
    RingCosts,
    SharedMachine,
    StageCosts,
    Work,
    step_s,
)
from syncline.sim.emulate.emulated_step import predict_step
from syncline.sim.emulate.emulation import HostCosts, HostLinks

WORKS = (
    Work(0.1, (0.05,) * 4, (1 << 20,) * 4, 0.05),
    Work(0.05, (0.02,) * 10, (2_500_000,) * 10, 0.03),
    Work(0.2, (0.1, 0.3), (300_000, 6_000_000), 0.02),
    Work(0.05, (0.02,) * 10, (2_500_000,) * 10, 0.3, by_bucket=True),
)
HOWS: dict[str, How] = {
    "plain": RingCosts(3e-10),
    "fp32": ExchangeCosts("fp32", scheme("fp32"), 3e-10, 3e-10),
    "int8": ExchangeCosts("int8", scheme("int8"), 1e-9, 1e-9),
    "slow sign": ExchangeCosts("sign", scheme("sign"), 8e-9, 8e-9),
    "measured": ExchangeCosts("sign", scheme("sign"), 8e-9, 8e-9, message_s=4e-4,
                          measured={1 << 20: StageCosts(0.02, 0.01, 0.03), 300_000: StageCosts(0.1, 0.2, 0.1)}),
}  # fmt: skip


def star(num: int, rate_Bps: float) -> HostLinks:
    paths = {(a, b): (2 * a, 2 * b + 1) for a in range(num) for b in range(num) if a != b}
    return HostLinks.of(np.full(2 * num, rate_Bps), paths, range(num))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_it_is_the_simulators_model(how: str, num_ranks: int) -> None:
    latency_s, message_s = 2e-4, 3e-5
    way = HOWS[how]
    assert isinstance(way, RingCosts | ExchangeCosts)
    for work, rate, cores, byte_s in product(WORKS, (6.25e6, 125e6, 1.25e9), (2.0, 64.0), (0.0, 1e-9)):
        machine = SharedMachine(cores, byte_s, message_s)
        costs = HostCosts(latency_s, 0.0, 0.0, 0.0, 1.0)
        simulated = predict_step(work, way, star(num_ranks, rate), machine, costs)
        folded = step_s(work, [way] * len(work.elements), num_ranks, RankLink(rate, latency_s), machine)
        assert folded == pytest.approx(simulated, rel=0.02), (work, rate, cores, byte_s)


def test_low_rank_waits_twice_for_the_wire() -> None:
    work = Work(0.0, (0.0,), (1_000_000,), 0.0)
    how: list[How] = [LowRankCosts("powersgd", 0.01, 1e-9, 2e-9, 1e-9)]
    free = step_s(work, how, 4, RankLink(1e12, 0.0), SharedMachine(64.0, 0.0, 0.0))
    assert free == pytest.approx(4e-3, rel=1e-3), "encode, middle, decode"
    late = step_s(work, how, 4, RankLink(1e12, 0.01), SharedMachine(64.0, 0.0, 0.0))
    assert late - free == pytest.approx(4 * 0.01, rel=1e-3), "scatter and gather of P, then of Q"
    slow = step_s(work, how, 4, RankLink(1e5, 0.0), SharedMachine(64.0, 0.0, 0.0))
    assert slow - free == pytest.approx(2 * 3 / 4 * 0.01 * 4e6 / 1e5, rel=0.01)


def test_a_piece_that_was_measured_costs_what_was_measured() -> None:
    work = Work(0.0, (0.0,), (1 << 20,), 0.0)
    how = HOWS["measured"]
    took = step_s(work, [how], 2, RankLink(1e12, 0.0), SharedMachine(64.0, 0.0, 1.0))
    assert took == pytest.approx(0.02 + 0.01 + 0.03 + 2 * 4e-4, rel=1e-3), "a message costs what it says, not a second"


def test_alone_there_is_nothing_to_send() -> None:
    assert step_s(WORKS[0], [HOWS["int8"]] * 4, 1, RankLink(1.0, 1.0), SharedMachine(1.0, 0.0, 0.0)) == pytest.approx(
        0.35
    )


def test_an_optimizer_by_bucket_leaves_only_the_last_bucket_to_the_end() -> None:
    """Four buckets of a second on the wire, a backward that takes no time: updates fit under the next one's second."""
    elements = 1 << 20
    how = ExchangeCosts("fp32", scheme("fp32"), 0.0, 0.0, piece_bytes=4 * elements)
    link, machine = RankLink(2 * 3 / 4 * 4 * elements, 0.0), SharedMachine(64.0, 0.0, 0.0)
    work = Work(0.5, (0.0,) * 4, (elements,) * 4, 2.0)
    assert step_s(work, [how] * 4, 4, link, machine) == pytest.approx(0.5 + 4 + 2, rel=1e-3)
    early = step_s(replace(work, by_bucket=True), [how] * 4, 4, link, machine)
    assert 0.5 + 4 + 0.5 - 1e-6 <= early < 0.5 + 4 + 2
    free = step_s(replace(work, by_bucket=True), [how] * 4, 4, RankLink(1e15, 0.0), machine)
    assert free == pytest.approx(0.5 + 2, rel=1e-3), "all of it is done, whenever"
    assert Work.from_json({**vars(work), "by_bucket": True}) == replace(work, by_bucket=True)
