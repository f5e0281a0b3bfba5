"""Bytes that frameworks sent when written plans were executed (`benchmarks/frameworks.py`), and what is counted."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.workload.read_job import load_job
from syncline.workload.volumes import unpriced_volumes, volumes
from syncline.workload.zoo import shapes


@pytest.mark.parametrize(
    ("model", "framework", "parallel", "batch", "axis", "megabytes"),
    [
        ("mistral-7b", "megatron", {"tp": 4, "dp": 4, "zero": "1"}, 8, "tp", 4_278.57),
        ("gpt3-6.7b", "megatron", {"pp": 2, "dp": 8, "zero": "none"}, 32, "pp", 891.29),
        ("llama3-8b", "pytorch", {"tp": 4, "dp": 4, "zero": "hsdp", "shard": 2}, 64, "tp", 40_269.84),
    ],
)  # fmt: skip
def test_executed_plans_sent_what_is_counted(
    model: str, framework: str, parallel: dict[str, Any], batch: int, axis: str, megabytes: float
) -> None:
    shape = shapes()[model].model_copy(update={"layers": 8})
    recompute = "full" if framework == "pytorch" else "none"
    job = load_job({
        "model": shape, "batch": {"global": batch, "micro": 1, "sequence": min(4096, shape.positions or 4096)},
        "parallel": parallel, "software": {"framework": framework}, "recompute": recompute,
    })  # fmt: skip
    counted = sum(each.size_bytes for each in volumes(job) + unpriced_volumes(job) if each.axis == axis)
    assert counted / 1e6 == pytest.approx(megabytes, rel=1e-3)


def test_replicas_of_a_hybrid_sum_after_every_micro_batch() -> None:
    def sent(batch: int) -> float:
        parallel = {"dp": 16, "zero": "hsdp", "shard": 8}
        job = load_job({"model": "llama3-8b", "batch": {"global": batch, "micro": 1, "sequence": 4096},
                        "parallel": parallel, "software": {"framework": "pytorch"}})  # fmt: skip
        return next(each.size_bytes for each in volumes(job) if each.kind == "data (replicas)")

    assert sent(64) == pytest.approx(4 * sent(16))
