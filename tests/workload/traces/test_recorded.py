"""Profiler traces: kernels and collectives, what waited for what, and files without kernels."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.replay import OWN_WORK, replay, unpriced
from syncline.timeline.recording import kineto
from syncline.workload.graph import Op, Workload
from syncline.workload.traces.recorded import recorded_workload


def read_kineto(*paths: Path) -> Workload:
    return recorded_workload([kineto.read_kineto(path) for path in paths])


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
        "gemm_bf16", "all_reduce: ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "softmax", "adam",
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
    with pytest.raises(DescriptionError, match="no kernels and no operators"):
        read_kineto(write(tmp_path / "t.json.gz", []))
    (tmp_path / "x.json").write_text('{"traceEvents": 3}')
    with pytest.raises(DescriptionError, match="not a whole profiler trace"):
        read_kineto(tmp_path / "x.json")


H200 = Path(__file__).parents[1] / "fixtures" / "profiler-h200-ddp.json.gz"


def test_a_trace_that_the_profiler_itself_wrote() -> None:
    """One step of a small DDP model on one H200, by torch 2.11; alone in its group, so without collective kernels."""
    workload = read_kineto(H200)
    assert (workload.kind == Op.COMPUTE).sum() == 57
    assert (workload.kind == Op.MEMORY).sum() == 13
    priced = replay(workload)
    assert priced.exposed_s(compute=OWN_WORK).max() == 0  # device copies are no communication


#: A kernel of a ResNet-50 step as the profiler wrote it (pytorch/pytorch issue 131462): nothing on what it moves.
PUBLISHED = json.loads("""{
    "ph": "X", "cat": "kernel",
    "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    "pid": 0, "tid": 17, "ts": 1468837789533.645, "dur": 1494.773,
    "args": {
      "External id": 29840, "queued": 0, "device": 0, "context": 1, "stream": 17, "correlation": 29840,
      "registers per thread": 96, "shared memory": 47456, "blocks per SM": 0.133333, "warps per SM": 1.200000,
      "grid": [2, 1, 1], "block": [288, 1, 1], "est. achieved occupancy %": 2
    }
}""")


def test_a_collective_of_unknown_size_keeps_its_time(tmp_path: Path) -> None:
    from syncline.fabric import load

    path = write(tmp_path / "t.json.gz", [PUBLISHED])
    workload = read_kineto(path, path)
    assert workload.names[0].startswith("all_reduce: ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    assert unpriced(workload).all()
    assert replay(workload, load("h100-64-rail")).makespan_s == pytest.approx(1494.773e-6)


def test_what_the_host_recorded_tells_the_size(tmp_path: Path) -> None:
    """The H200's own records, and the published kernel launched by the first of them."""
    events = json.loads(gzip.decompress(H200.read_bytes()))["traceEvents"]
    record = next(event for event in events if event.get("name") == "record_param_comms")
    record["args"] |= {"Group size": 16, "Process Group Ranks": str(list(range(16)))}
    launched = PUBLISHED | {"args": PUBLISHED["args"] | {"External id": record["args"]["External id"]}}
    launched["ts"] = record["ts"] + record["dur"]
    workload = read_kineto(write(tmp_path / "t.json.gz", [*events, launched]))
    (found,) = (workload.kind == Op.COLLECTIVE).nonzero()[0]
    assert workload.size_bytes[found] == record["args"]["In msg nelems"] * 4 == 1_049_600 * 4
    assert workload.ranks[found] == 16


#: What Kineto adds to a kernel from the host's record, field by field (pytorch/kineto, libkineto/src/output_json.cpp).
@pytest.mark.parametrize(("name", "told", "word", "kind", "size", "ranks"), [
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
     {"Collective name": "_allgather_base", "In msg nelems": 100, "Out msg nelems": 800, "Group size": 8,
      "dtype": "BFloat16"}, "all_gather", Op.COLLECTIVE, 1600, 8),
    ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
     {"Collective name": "_reduce_scatter_base", "In msg nelems": 800, "Out msg nelems": 100, "dtype": "Float",
      "Process Group Ranks": "[0, 8, 16, 24]"}, "reduce_scatter", Op.COLLECTIVE, 3200, 4),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
     {"Collective name": "all_to_allv", "In msg nelems": 64, "Out msg nelems": 32, "Group size": 8, "dtype": "Half",
      "In split size": "[8, 8, 8, 8, 8, 8, 8, 8]"}, "all_to_all", Op.COLLECTIVE, 128, 8),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
     {"Collective name": "recv", "In msg nelems": 10, "Out msg nelems": 10, "Group size": 64, "dtype": "BFloat16",
      "Src Rank": 3}, "recv", Op.RECV, 20, 2),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",  # RCCL has one kernel for everything
     {"Collective name": "allreduce", "In msg nelems": 10, "Out msg nelems": 10, "Group size": 8, "dtype": "Float"},
     "all_reduce", Op.COLLECTIVE, 40, 8),
    ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)", {}, "reduce_scatter", Op.COLLECTIVE, 0, 4),
])  # fmt: skip
def test_kernels_that_communicate(
    tmp_path: Path, name: str, told: dict[str, Any], word: str, kind: Op, size: float, ranks: int
) -> None:
    path = tmp_path / "t.json.gz"
    world = {"backend": "nccl", "rank": 0, "world_size": 4}
    data = {"distributedInfo": world, "traceEvents": [kernel("gemm", 0, 5, 7), kernel(name, 9, 50, 20, **told)]}
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    workload = read_kineto(path)
    assert (workload.kind[1], workload.size_bytes[1], workload.ranks[1]) == (kind, size, ranks)
    assert workload.names[1].startswith(f"{word}: nccl")
