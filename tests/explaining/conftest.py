"""Traces of the PyTorch profiler, written by hand: a host thread, streams, collectives; times in microseconds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Written:
    """A trace under construction."""

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.events: list[dict[str, Any]] = []
        self.info = {"backend": "nccl", "rank": rank, "world_size": world}
        self.count = 0

    def host(self, cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}
        )

    def kernel(
        self, name: str, launched: float, ts: float, dur: float, stream: int = 7, cat: str = "kernel", **args: Any
    ) -> None:
        """Add a kernel and the call that launched it, which returned at `launched` after 5 us."""
        self.count += 1
        self.host("cuda_runtime", "cudaLaunchKernel", launched - 5, 5, correlation=self.count)
        more = {"stream": stream, "device": 0, "correlation": self.count, **args}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": more}
        )

    def collective(
        self, launched: float, ts: float, dur: float, size: int = 1 << 20, ranks: int = 8, stream: int = 20
    ) -> None:
        self.kernel(NCCL, launched, ts, dur, stream, "kernel", **{
            "Collective name": "allreduce", "In msg nelems": size // 2, "Out msg nelems": size // 2,
            "dtype": "BFloat16", "Group size": ranks, "Process Group Name": "0",
            "Process Group Description": "default_pg"})  # fmt: skip

    def step(self, number: int, ts: float, dur: float) -> None:
        self.host("user_annotation", f"ProfilerStep#{number}", ts, dur)

    def save(self, path: Path) -> Path:
        text = json.dumps({
            "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
            "distributedInfo": self.info, "traceEvents": self.events})  # fmt: skip
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path


@pytest.fixture
def written() -> type[Written]:
    return Written
