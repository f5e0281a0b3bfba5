"""Profiler traces: kernels and collectives, what waited for what, and files without kernels."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.replay import OWN_WORK, replay
from syncline.workload.graph import Op
from syncline.workload.kineto import read_kineto


def kernel(name: str, ts: float, dur: float, stream: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur, "args": {"stream": stream, **args}}


EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5},
    kernel("gemm_bf16", 10, 100, 7),
    kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 111, 50, 20, **{
        "Collective name": "allreduce", "In msg nelems": 1 << 20, "dtype": "BFloat16", "Group size": 16}),
    kernel("softmax", 111, 20, 7),
    kernel("adam", 162, 10, 7),
]  # fmt: skip


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


def test_device_work_becomes_a_workload(tmp_path: Path) -> None:
    workload = read_kineto(write(tmp_path / "t.json.gz", EVENTS))
    assert [workload.names[i] for i in workload.label] == [
        "gemm_bf16", "allreduce: ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "softmax", "adam",
    ]  # fmt: skip
    assert workload.kind.tolist() == [Op.COMPUTE, Op.COLLECTIVE, Op.COMPUTE, Op.COMPUTE]
    assert workload.size_bytes[1] == 2 << 20 and workload.ranks[1] == 16
    assert workload.dependencies(1).tolist() == [0]  # the collective started when the product ended
    assert workload.dependencies(3).tolist() == [1]  # and the optimizer when the collective ended


def test_it_is_replayed_as_recorded_and_on_another_network(tmp_path: Path) -> None:
    from syncline.fabric import load

    workload = read_kineto(write(tmp_path / "t.json.gz", EVENTS))
    recorded = replay(workload)
    assert recorded.makespan_s == pytest.approx(160e-6)
    slow = replay(workload, machine_from_fabric(load("old-10gbe")))
    fast = replay(workload, load("h100-64-rail"))
    assert slow.makespan_s > fast.makespan_s
    assert slow.source.kind == "simulated-analytic" and recorded.source.kind == "recorded"


def test_a_trace_without_kernels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="no device kernels"):
        read_kineto(write(tmp_path / "t.json.gz", EVENTS[:1]))
    (tmp_path / "x.json").write_text("[")
    with pytest.raises(DescriptionError, match="not a profiler trace"):
        read_kineto(tmp_path / "x.json")


def test_a_trace_that_the_profiler_itself_wrote() -> None:
    """One step of a small DDP model on one H200, by torch 2.11; alone in its group, so without collective kernels."""
    workload = read_kineto(Path(__file__).parent / "fixtures" / "profiler-h200-ddp.json.gz")
    assert (workload.kind == Op.COMPUTE).sum() == 57
    assert (workload.kind == Op.MEMORY).sum() == 13
    priced = replay(workload)
    assert priced.exposed_s(compute=OWN_WORK).max() == 0  # device copies are no communication
