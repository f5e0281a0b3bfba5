"""The planner prices a layout on a fabric as `syncline step` does, thin uplinks and WAN lines included."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.fabric import ClusterSpec, build
from syncline.plan.answer import make_plan
from syncline.plan.block import PlanQuestion
from syncline.plan.evaluate import evaluate
from syncline.plan.named_job import named_job
from syncline.plan.search import search
from syncline.sim.step.constants import default_constants
from syncline.sim.step.machine import machine_from_fabric, reach_of
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job

CLUSTERS: dict[str, dict[str, Any]] = {
    "non-blocking": {"hosts": 64, "host": "dgx-h100", "network": "rail-optimized NDR"},
    "3:1": {"hosts": 64, "host": "dgx-h100", "network": "leaf-spine NDR 3:1"},
    "torus": {
        "hosts": 64,
        "host": "dgx-h100",
        "network": {"topology": "torus", "link": "NDR", "shape": [4, 4, 4], "of": "hosts"},
    },
    "two sites": {
        "sites": [
            {"name": name, "hosts": 32, "host": "dgx-h100", "network": "rail-optimized NDR"}
            for name in ("east", "west")
        ],
        "wan": {"rate": "400Gbps", "latency": "5ms"},
    },
}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_plan_and_step_price_one_layout_alike(cluster: str) -> None:
    fabric = build(ClusterSpec.model_validate(CLUSTERS[cluster]))
    for fix in ({}, {"algorithm": "hierarchical", "bucket_bytes": 2**20}):
        answer = make_plan(fabric, named_job("llama3-70b"), fix=fix, with_actions=False)
        again = step(fabric, answer.result.job).step_time_s
        assert again == pytest.approx(answer.best.predicted.step_time_s, rel=1e-12)


def test_a_pipeline_over_two_sites_beats_rings_over_them() -> None:
    fabric = build(ClusterSpec.model_validate(CLUSTERS["two sites"]))
    free = make_plan(fabric, named_job("gpt3-175b"))
    packed = make_plan(fabric, named_job("gpt3-175b"), fix={"placement": "packed"})
    assert free.best.decision.placement == "stages"
    assert free.best.predicted.step_time_s < 0.95 * packed.best.predicted.step_time_s
    assert "ranks placed as stages save" in free.notes[0]
    assert step(fabric, free.result.job).step_time_s == pytest.approx(free.best.predicted.step_time_s, rel=1e-12)
    order = next(a for a in packed.actions if a.name == "order")
    assert order.price_usd == 0.0
    # The action keeps the way that the plan shards its state, which the free search need not.
    assert 0 < order.saving <= 1 - free.best.predicted.step_time_s / packed.best.predicted.step_time_s + 0.01


@pytest.mark.parametrize(
    "sync",
    [
        {"codec": "int8"},
        {"method": "diloco", "every": 100},
        {"method": "bounded-staleness", "staleness": 2},
        {"method": "parameter-server", "servers": 4},
    ],
)
def test_other_ways_to_agree_are_searched_at_the_price_of_a_step(sync: dict[str, Any]) -> None:
    fabric = build(ClusterSpec.model_validate(CLUSTERS["3:1"]))
    job = load_job({"model": "llama3-8b", "batch": {"global": 512, "sequence": 4096}, "sync": sync})
    question = PlanQuestion(job, machine_from_fabric(fabric), reach_of(fabric), default_constants())
    found = search(question, 512, keep=4).best
    assert len(found) == 4
    for candidate in found:
        assert evaluate(question, candidate.decision).step_time_s == pytest.approx(candidate.step_s)


def test_closed_forms_that_are_off_do_not_hide_another_pipeline_depth() -> None:
    """All first places had two stages, 22 % below their execution; one stage was never executed, and is faster."""
    host = {"model": "dgx-h100", "gpus": 4, "nics": 4}
    spec = {"hosts": 8, "host": host, "network": {"topology": "dragonfly", "link": "HDR"}}
    fabric = build(ClusterSpec.model_validate(spec))
    job = load_job({"model": "llama3-8b", "batch": {"global": 32, "sequence": 4096}})
    free, flat = (make_plan(fabric, job, fix=fix, with_actions=False, with_run=False, execute=True)
                  for fix in ({"recompute": "none"}, {"recompute": "none", "pp": 1}))  # fmt: skip
    assert free.best.decision.pp == 1
    assert free.best.predicted.step_time_s == pytest.approx(flat.best.predicted.step_time_s)
