"""Intervals: bounded by physics, chances between their ends, and what would narrow them."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.fabric import load
from syncline.sim.step.floor import roof_s
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.memory import LIKELY, fit_chance, memory
from syncline.sim.step.step import StepResult, step
from syncline.sim.uncertainty import Interval, chance_between
from syncline.workload.read_job import load_job

RAIL = load("h100-64-rail")


def priced(model: str = "llama3-70b", precision: str = "bf16", **fields: object) -> StepResult:
    return step(RAIL, load_job({"model": model, "batch": {"global": 512}, "precision": precision, **fields}))


def test_nothing_is_faster_than_the_datasheet() -> None:
    """70.55 GFLOP x 6 a token and attention, at 989.4 TFLOP/s of 512 H100."""
    machine = machine_from_fabric(RAIL)
    job = load_job({"model": "llama3-70b", "batch": {"global": 512, "sequence": 8192}}).on(512)
    floor = roof_s(job, machine, 512)
    tokens = 512 * 8192
    assert floor == pytest.approx(job.model.flops_per_token(8192) * tokens / (512 * 989.4e12))  # type: ignore[union-attr]
    narrow = job.model_copy(update={"precision": "fp8"})
    assert roof_s(narrow, machine, 512) == pytest.approx(floor * 989.4 / 1978.9, rel=1e-3)
    assert roof_s(job, machine, 1024) == pytest.approx(floor / 2)
    assert roof_s(job, machine, 512, state_bytes=1e15) == pytest.approx(2e15 / 3350e9), "state goes through memory"


@pytest.mark.parametrize("model", ["llama3-8b", "llama3-70b", "qwen3-235b-a22b", "deepseek-v3"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_no_interval_reaches_below_its_floor(model: str, precision: str) -> None:
    found = priced(model, precision)
    assert 0 < found.floor_s <= found.interval().p90[0] <= found.interval().p50[0]
    assert found.mfu * found.step_time_s / found.interval().p90[0] <= 1.0 + 1e-9


def test_an_interval_says_what_would_narrow_it() -> None:
    found = priced().interval()
    assert found.narrower is not None and found.narrower.command.startswith("syncline calibrate step")
    assert found.narrower.width < found.p90[1] / found.p90[0]
    assert priced().interval(shared="job").narrower is None


def test_the_more_a_measured_step_has_in_common_the_narrower_is_the_interval() -> None:
    widths = [found.p90[1] / found.p90[0] for found in (priced().interval(shared=x) for x in ("job", "model", ""))]
    assert widths[0] < widths[1] < widths[2]


def test_chances_are_those_of_the_ends_and_a_bound_is_certain() -> None:
    found = Interval((8.0, 12.0), (6.0, 16.0), "")
    assert [round(found.chance_below(x), 2) for x in (6, 8, 12, 16)] == [0.05, 0.25, 0.75, 0.95]
    bounded = found.above(9.0)
    assert bounded.p50 == (9.0, 12.0) and bounded.p90 == (9.0, 16.0) and bounded.chance_below(8.9) < 1e-9
    columns = chance_between([np.array([6.0, 60.0]), 8.0, np.array([12.0, 120.0]), 160.0], 10.0)
    assert columns.shape == (2,)


def test_memory_never_lies_below_what_is_counted_and_gathered_parameters_cost_what_they_are() -> None:
    kept = {"gpus": 128, "parallel": {"zero": "fsdp"}, "software": {"framework": "torchtitan"}, "recompute": "full"}
    freed, stays = (priced("llama3-70b", "bf16", overlap={"reshard": reshard}, **kept) for reshard in (True, False))
    parameters = 2 * 70.55e9
    assert stays.memory_bytes["parameters"] > parameters > 10 * freed.memory_bytes["parameters"]
    assert stays.fit_chance == 0.0 and freed.fit_chance > 0.9
    counted = sum(freed.memory_bytes[name] for name in ("parameters", "gradients", "optimizer", "buffers"))
    assert freed.memory_interval.p90[0] >= counted


def test_columns_and_one_step_have_the_same_chance() -> None:
    found = priced("llama3-70b", gpus=64, parallel={"tp": 4, "pp": 4}, recompute="none")
    assert found.case is not None
    assert float(fit_chance(found.case, memory(found.case))) == pytest.approx(found.fit_chance, abs=1e-6)
    assert 0.5 < LIKELY < 1
