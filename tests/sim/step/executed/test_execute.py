"""Steps of many micro-batches: some are run, and the rest follow from the time that each adds."""

from __future__ import annotations

import pytest

from syncline.fabric import load
from syncline.sim.step.executed import execute as executed
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job


def test_a_long_step_is_extended_from_two_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 micro-batches from runs of 8 and 12: as long as running all of them, with a fraction of the tasks."""
    fabric = load("h100-64-rail")
    split = {"tp": 8, "pp": 4, "dp": 2, "zero": "1"}
    batch = {"global": 64, "micro": 1, "sequence": 4096}
    result = step(fabric, load_job({"model": "llama3-8b", "parallel": split, "batch": batch}))
    assert result.job.num_micro == 32
    extended = executed.execute(fabric, result)
    monkeypatch.setattr(executed, "ROUNDS", 8)
    whole = executed.execute(fabric, result)
    assert extended.tasks < whole.tasks / 2
    assert extended.step_time_s == pytest.approx(whole.step_time_s, rel=1e-6)


@pytest.mark.parametrize(
    "split", [{"zero": "2", "pp": 4, "tp": 2, "schedule": "interleaved", "virtual": 4}, {"zero": "3", "pp": 1, "tp": 1}]
)
def test_gradients_that_are_exchanged_after_every_micro_batch_extend_too(
    split: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = load({"hosts": 4, "host": "dgx-h100", "network": "fat-tree 200GbE 2:1"})
    batch = {"global": 32 * 32 // (split["pp"] * split["tp"]), "micro": 1, "sequence": 2048}  # type: ignore[operator]
    result = step(fabric, load_job({"model": "llama3-8b", "parallel": split, "batch": batch}))
    assert result.job.num_micro == 32
    extended = executed.execute(fabric, result).step_time_s
    monkeypatch.setattr(executed, "ROUNDS", 8)
    assert extended == pytest.approx(executed.execute(fabric, result).step_time_s, rel=2e-3)


def test_a_step_waits_for_the_stage_with_most_layers() -> None:
    """Nine layers on four stages are 2, 3, 2 and 2: 64 micro-batches pass the stage of three one after the other."""
    fabric = load({"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"})
    split = {"tp": 1, "pp": 4, "dp": 8}
    batch = {"global": 512, "micro": 1, "sequence": 4096}
    model = {"like": "llama3-8b", "layers": 9, "vocab": 32000}
    result = step(fabric, load_job({"model": model, "parallel": split, "batch": batch}))
    assert result.cost is not None
    layer = result.cost.layer
    busiest = 64 * 3 * float(layer.forward + layer.backward + layer.redo)
    assert executed.execute(fabric, result).step_time_s > busiest
