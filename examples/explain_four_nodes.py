"""Four nodes are hardly faster than one: two traced jobs, subtracted, and the rank that the others wait for."""

import json
import tempfile
from pathlib import Path

import syncline

KERNELS = (("sm90_gemm_forward", 40_000), ("flash_fwd_kernel", 12_000), ("sm90_gemm_backward", 80_000))
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def trace(path: Path, rank: int, world: int, transfer_us: float, late_us: float, others_late_us: float) -> None:
    """Write three steps of one rank: kernels, an all-reduce of 1 GiB that nothing hides, the optimizer."""
    events = []

    def event(cat: str, name: str, ts: float, dur: float, **args: object) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args})

    at, number = 0.0, 0
    for step in range(3):
        begin = at
        work = [("kernel", name, took, 7) for name, took in KERNELS] + [("kernel", "elementwise_kernel", late_us, 7)]
        work += [("nccl", NCCL, transfer_us + others_late_us, 20), ("kernel", "multi_tensor_apply_kernel", 6_000, 7)]
        for kind, name, took, stream in work:
            number += 1
            event("cuda_runtime", "cudaLaunchKernel", begin + number % 7, 1, correlation=number)
            said = {"Collective name": "allreduce", "In msg nelems": 1 << 29, "Out msg nelems": 1 << 29,
                    "dtype": "BFloat16", "Group size": world, "Process Group Name": "0"}  # fmt: skip
            more = said if kind == "nccl" else {}
            event("kernel", name, at + 10, took, stream=stream, device=0, correlation=number, **more)
            at += took
        event("user_annotation", f"ProfilerStep#{step}", begin, at - begin)
        at += 20
    info = {"backend": "nccl", "rank": rank, "world_size": world}
    device = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
    text = {"schemaVersion": 1, "deviceProperties": device, "distributedInfo": info, "traceEvents": events}
    path.write_text(json.dumps(text))


with tempfile.TemporaryDirectory() as scratch:
    for name, world, transfer_us, late_us in (("one", 8, 6_000, 0), ("four", 32, 90_000, 25_000)):
        folder = Path(scratch) / name
        folder.mkdir()
        for rank in range(4):
            slow = rank == 3  # the others come on time and wait
            trace(folder / f"rank{rank}.json", rank, world, transfer_us, late_us * slow, late_us * (not slow))
    one, four = (Path(scratch) / name for name in ("one", "four"))
    print(syncline.explain([four]))
    print()
    print(syncline.explain([four], against=[one]))
