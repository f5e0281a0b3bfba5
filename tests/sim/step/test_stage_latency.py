"""Stages at different sites: how often a step waits for the way over the lines, by hand, priced and executed."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from syncline.fabric import load
from syncline.planning.answer import make_plan
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job


def sites(hosts: tuple[int, ...], latency_ms: float, rate: str = "400Gbps") -> Any:
    each = [{"name": f"s{i}", "hosts": n, "host": "dgx-h100", "network": "rail-optimized NDR"}
            for i, n in enumerate(hosts)]  # fmt: skip
    return load({"sites": each, "wan": {"rate": rate, "latency": f"{latency_ms}ms"}})


@cache
def times(hosts: tuple[int, ...], latency_ms: float, pp: int, virtual: int, schedule: str) -> tuple[float, float, int]:
    """Return the step priced, executed, and its micro-batches."""
    fabric = sites(hosts, latency_ms)
    split = {"tp": 8, "pp": pp, "virtual": virtual, "schedule": schedule, "placement": "stages"}
    batch = {"global": 120 if len(hosts) == 3 else 128, "micro": 1, "sequence": 4096}
    found = step(fabric, load_job({"model": "llama3-8b", "parallel": split, "batch": batch}))
    return found.step_time_s, execute(fabric, found).step_time_s, found.job.num_micro


def late(hosts: tuple[int, ...], pp: int, virtual: int = 1, schedule: str = "1f1b") -> tuple[float, float, int]:
    """Return what half a second between sites costs, in ways over a line, priced and executed, and micro-batches."""
    near, far = (times(hosts, latency, pp, virtual, schedule) for latency in (0.0001, 500))
    return (far[0] - near[0]) / 0.5, (far[1] - near[1]) / 0.5, far[2]


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_two_micro_batches_cross_in_each_round_trip_however_deep_the_pipeline(pp: int) -> None:
    """The stage before the line begins one more than the one behind it, so of two one is always on its way."""
    priced, executed, micros = late((4, 4), pp)
    assert micros == 16 * pp
    assert priced == pytest.approx(micros, rel=0.03)  # half a round trip each; a slower last stage hides a little
    assert executed == pytest.approx(micros, rel=0.03)


def test_sixteen_round_trips_of_a_second_by_hand() -> None:
    priced, executed, _ = times((4, 4), 500, 2, 1, "1f1b")
    assert priced == pytest.approx(16 + 1.35, rel=0.01)
    assert executed == pytest.approx(priced, rel=0.01)


def test_gpipe_sends_everything_before_it_waits() -> None:
    """There once and back once; a line holds as many messages as are sent."""
    priced, executed, _ = late((4, 4), 4, schedule="gpipe")
    assert priced == pytest.approx(2, rel=0.01) and executed == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize(("num", "share"), [(3, 4 / 3), (4, 3 / 2)])
def test_one_stage_at_each_of_many_sites(num: int, share: float) -> None:
    """To the last and back is 2 (n - 1) ways, and n micro-batches are begun meanwhile."""
    priced, executed, micros = late((2,) * num, num)
    assert priced == pytest.approx(share * micros, rel=0.05)
    assert executed == pytest.approx(priced, rel=0.05)


def test_chunks_begin_two_more_so_three_cross_in_each_round_trip() -> None:
    priced, executed, micros = late((4, 4), 4, virtual=2)
    assert priced == pytest.approx(2 / 3 * 2 * micros, rel=0.05)
    assert executed == pytest.approx(priced, rel=0.05)


@pytest.mark.parametrize("latency_ms", [0.0001, 6, 50])
@pytest.mark.parametrize(
    ("pp", "virtual", "schedule"),
    [(2, 1, "1f1b"), (4, 1, "1f1b"), (2, 2, "1f1b"), (2, 4, "1f1b"), (4, 1, "zero-bubble")],
)
def test_closed_form_and_execution_agree(pp: int, virtual: int, schedule: str, latency_ms: float) -> None:
    priced, executed, _ = times((4, 4), latency_ms, pp, virtual, schedule)
    assert executed == pytest.approx(priced, rel=0.015 if (virtual, schedule) == (1, "1f1b") else 0.07)


def test_a_faster_or_shorter_line_never_makes_a_plan_slower() -> None:
    asked = load_job({"model": "llama3-8b", "batch": {"global": 128, "sequence": 4096}})

    def best_s(rate: str, latency_ms: float) -> float:
        found = make_plan(sites((4, 4), latency_ms, rate), asked, with_actions=False, with_run=False)
        return found.best.predicted.step_time_s

    by_rate = [best_s(rate, 6) for rate in ("50Gbps", "200Gbps", "800Gbps")]
    assert all(after <= before * 1.01 for before, after in pairwise(by_rate))  # a tie is 1 %
    by_latency = [best_s("200Gbps", latency) for latency in (1, 25, 100)]
    assert all(after >= before * 0.99 for before, after in pairwise(by_latency))
