"""The step of ranks that are alike, against arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline.codec.names import scheme
from syncline.program.overlap import ExchangeCosts, How, SharedMachine, StageCosts, Work
from syncline.sim.emulate.emulated_step import predict_step
from syncline.sim.emulate.emulation import HostCosts, HostLinks

PLENTY = SharedMachine(64.0, 0.0, 0.0)


def step_s(work: Work, how: How, num: int, rate_Bps: float, machine: SharedMachine = PLENTY) -> float:
    """Return the step of so many ranks on a star of links of this rate."""
    paths = {(a, b): (2 * a, 2 * b + 1) for a in range(num) for b in range(num) if a != b}
    links = HostLinks.of(np.full(2 * num, rate_Bps), paths, range(num))
    return predict_step(work, how, links, machine, HostCosts(0.0, 0.0, 0.0, 0.0, 1.0))


def test_a_piece_that_was_measured_costs_what_was_measured() -> None:
    work = Work(0.0, (0.0,), (1 << 20,), 0.0)
    measured = {1 << 20: StageCosts(0.02, 0.01, 0.03)}
    how = ExchangeCosts("sign", scheme("sign"), 8e-9, 8e-9, message_s=4e-4, measured=measured)
    took = step_s(work, how, 2, 1e12, SharedMachine(64.0, 0.0, 1.0))
    assert took == pytest.approx(0.02 + 0.01 + 0.03 + 2 * 4e-4, rel=1e-3), "a message costs what it says, not a second"


def test_alone_there_is_nothing_to_send() -> None:
    work = Work(0.1, (0.05,) * 4, (1 << 20,) * 4, 0.05)
    assert step_s(work, ExchangeCosts("int8", scheme("int8"), 1e-9, 1e-9), 1, 1.0) == pytest.approx(0.35)


def test_a_gpus_own_work_takes_no_processor() -> None:
    work, how = Work(1.0, (1.0,), (1 << 20,), 1.0), ExchangeCosts("int8", scheme("int8"), 0.0, 0.0)
    assert step_s(work, how, 4, 1e12, SharedMachine(1.0, 0.0, 0.0)) == pytest.approx(12, rel=1e-3)
    apart = SharedMachine(1.0, 0.0, 0.0, computes_apart=True)
    assert step_s(work, how, 4, 1e12, apart) == pytest.approx(3, rel=1e-3)


def test_an_optimizer_by_bucket_leaves_only_the_last_bucket_to_the_end() -> None:
    """Four buckets of a second on the wire, a backward that takes no time: updates fit under the next one's second."""
    elements = 1 << 20
    how = ExchangeCosts("fp32", scheme("fp32"), 0.0, 0.0, piece_bytes=4 * elements)
    rate = 2 * 3 / 4 * 4 * elements
    work = Work(0.5, (0.0,) * 4, (elements,) * 4, 2.0)
    assert step_s(work, how, 4, rate) == pytest.approx(0.5 + 4 + 2, rel=1e-3)
    early = step_s(replace(work, by_bucket=True), how, 4, rate)
    assert 0.5 + 4 + 0.5 - 1e-6 <= early < 0.5 + 4 + 2
    free = step_s(replace(work, by_bucket=True), how, 4, 1e15)
    assert free == pytest.approx(0.5 + 2, rel=1e-3), "all of it is done, whenever"
    assert Work.from_json({**vars(work), "by_bucket": True}) == replace(work, by_bucket=True)
