"""The planner prices a layout on a fabric as `syncline step` does, thin uplinks and WAN lines included."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.fabric import ClusterSpec, build
from syncline.plan.answer import make_plan
from syncline.plan.named_job import named_job
from syncline.sim.step.step import step

CLUSTERS: dict[str, dict[str, Any]] = {
    "non-blocking": {"hosts": 64, "host": "dgx-h100", "network": "rail-optimized NDR"},
    "3:1": {"hosts": 64, "host": "dgx-h100", "network": "leaf-spine NDR 3:1"},
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
    answer = make_plan(fabric, named_job("llama3-70b"))
    assert step(fabric, answer.result.job).step_time_s == pytest.approx(answer.best.predicted.step_time_s, rel=1e-12)
