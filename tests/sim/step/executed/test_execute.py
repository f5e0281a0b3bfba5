"""Steps of many micro-batches: some are run, and the rest follow from the time that each adds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.fabric import load
from syncline.sim.flow.routing import FlowNetwork
from syncline.sim.step.executed import execute as executed
from syncline.sim.step.executed.footprint import Rails
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


def test_closed_forms_and_executions_of_one_split_route_each_pair_of_devices_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a fabric whose cells differ both lay the job's groups: all stages of a kind at once, and none again."""
    fabric = load({"hosts": 6, "host": "dgx-h100", "network": "leaf-spine NDR"})
    pairs, calls = list[tuple[int, int]](), [0]
    wire = FlowNetwork.wire

    def counted(self: FlowNetwork, src: Any, dst: Any, *given: Any, **named: Any) -> Any:
        calls[0] += 1
        pairs.extend(zip(src.tolist(), dst.tolist(), strict=True))
        return wire(self, src, dst, *given, **named)

    monkeypatch.setattr(FlowNetwork, "wire", counted)
    said = {"model": "llama3-8b", "parallel": {"tp": 2, "pp": 8, "dp": 3}, "batch": {"micro": 1, "sequence": 4096}}
    for sequences in (24, 48):
        executed.execute(fabric, step(fabric, load_job(said | {"batch": {"global": sequences, "sequence": 4096}})))
    assert len(pairs) == len(set(pairs)) > 0
    assert calls[0] <= 4  # tensor, data, activations on and gradients back


def test_flows_laid_together_load_links_as_each_does_alone() -> None:
    fabric = load("h100-64-rail")
    rails, random = Rails.of(fabric, 0.9, 0.9), np.random.default_rng(3)
    flows = [(*random.choice(fabric.gpus, (2, 40)).astype(np.int64), random.random(40)) for _ in range(5)]
    together = rails.carried_each(flows)
    for row, alone in zip(together, flows, strict=True):
        assert row == pytest.approx(rails.carried(*alone)) and row.any()
