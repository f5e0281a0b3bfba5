"""Steps of many micro-batches: some are run, and the rest follow from the time that each adds."""

from __future__ import annotations

import pytest

from syncline.fabric import load
from syncline.sim.step.executed import execute as executed
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job


def test_a_long_step_is_extended_from_two_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 micro-batches from runs of 4 and 8: as long as running all of them, with a fraction of the tasks."""
    fabric = load("h100-64-rail")
    split = {"tp": 8, "pp": 4, "dp": 2, "zero": "1"}
    batch = {"global": 64, "micro": 1, "sequence": 4096}
    result = step(fabric, load_job({"model": "llama3-8b", "parallel": split, "batch": batch}))
    assert result.job.num_micro == 32
    whole = executed.execute(fabric, result)
    monkeypatch.setattr(executed, "MOST_MICRO", 4)
    extended = executed.execute(fabric, result)
    assert extended.tasks < whole.tasks / 3
    assert extended.step_time_s == pytest.approx(whole.step_time_s, rel=0.02)
