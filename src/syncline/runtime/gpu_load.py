"""Load this host's GPUs for seconds, and print what each gave: `python -m syncline.runtime.gpu_load`.

One JSON object a line, as soon as it is known, so that whoever started this knows what was running when it hangs:

    {"gpus": 8}
    {"test": "matrix", "begin": true}
    {"test": "matrix", "gpu": 0, "value": 6.9e14}          operations per second, all GPUs at once
    {"test": "memory", "gpu": 0, "value": 2.9e12}          bytes read and written per second
    {"test": "copy", "gpu": 0, "numa": 1, "to": "gpu", "value": 5.4e10}
    {"test": "pair", "gpu": 0, "peer": 1, "direct": true, "value": 3.8e11}
    {"test": "all-reduce", "value": 4.6e11}                busbw

Order of the GPUs is that of the bus (CUDA_DEVICE_ORDER is set by the caller). AMD's GPUs answer to the same calls.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

TEST_S = 0.4
MATRIX = 8192
BLOCK_BYTES = 1 << 28
_NODES = Path("/sys/devices/system/node")

Row = dict[str, object]


def main() -> None:
    """Run every test and print its rows."""
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        say({"unable": f"torch {torch.__version__} sees no GPU{'' if built else ': it is a build for processors'}"})
        return
    count = torch.cuda.device_count()
    say({"gpus": count})
    devices = [torch.device("cuda", index) for index in range(count)]
    attempt("matrix", lambda: matrix(devices))
    attempt("memory", lambda: memory(devices))
    attempt("copy", lambda: copies(devices, numa_cpus()))
    attempt("pair", lambda: pairs(devices))
    if count > 1:
        attempt("all-reduce", lambda: all_reduce(devices))


def say(row: Row) -> None:
    """Print one row at once."""
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def attempt(test: str, rows: Callable[[], Iterator[Row]]) -> None:
    """Say that a test begins, its rows, and what stopped it."""
    say({"test": test, "begin": True})
    try:
        for row in rows():
            say({"test": test, **row})
    except (RuntimeError, AttributeError, NotImplementedError) as error:  # out of memory, an error of CUDA or NCCL
        first = str(error).strip().splitlines()
        say({"test": test, "error": f"{type(error).__name__}: {first[0] if first else ''}"[:300]})


def matrix(devices: list[torch.device], size: int = MATRIX, seconds: float = TEST_S) -> Iterator[Row]:
    """Multiply matrices in bfloat16 on all devices at once: operations per second of each."""
    sides = [torch.randn(2, size, size, device=device, dtype=torch.bfloat16) for device in devices]
    outs = [torch.empty(size, size, device=device, dtype=torch.bfloat16) for device in devices]
    work = [partial(torch.matmul, side[0], side[1], out=out) for side, out in zip(sides, outs, strict=True)]
    for index, took in enumerate(together(devices, work, seconds)):
        yield {"gpu": index, "value": 2 * size**3 / took}


def memory(devices: list[torch.device], size_bytes: int = 4 * BLOCK_BYTES, seconds: float = TEST_S) -> Iterator[Row]:
    """Copy inside the memory of all devices at once: bytes read and written per second of each."""
    blocks = [torch.zeros(2, size_bytes, device=device, dtype=torch.uint8) for device in devices]
    work = [partial(block[0].copy_, block[1]) for block in blocks]
    for index, took in enumerate(together(devices, work, seconds)):
        yield {"gpu": index, "value": 2 * size_bytes / took}


def copies(
    devices: list[torch.device], nodes: dict[int, set[int]], size_bytes: int = BLOCK_BYTES, seconds: float = TEST_S / 8
) -> Iterator[Row]:
    """Copy between each device and memory of each NUMA node, one at a time."""
    before = os.sched_getaffinity(0)
    try:
        for node, cpus in nodes.items():
            os.sched_setaffinity(0, cpus & before or before)  # memory is where it is first written from
            pinned = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=devices[0].type == "cuda").fill_(1)
            for index, device in enumerate(devices):
                block = torch.zeros(size_bytes, device=device, dtype=torch.uint8)
                into, back = partial(block.copy_, pinned, True), partial(pinned.copy_, block, True)
                for to, work in (("gpu", into), ("host", back)):
                    (took,) = together([device], [work], seconds)
                    yield {"gpu": index, "numa": node, "to": to, "value": size_bytes / took}
    finally:
        os.sched_setaffinity(0, before)


def pairs(devices: list[torch.device], size_bytes: int = BLOCK_BYTES, seconds: float = TEST_S / 16) -> Iterator[Row]:
    """Copy from each device to each other, one pair at a time."""
    blocks = [torch.zeros(size_bytes, device=device, dtype=torch.uint8) for device in devices]
    for a, source in enumerate(devices):
        for b, target in enumerate(devices):
            if a != b:
                direct = source.type == "cuda" and torch.cuda.can_device_access_peer(source, target)
                (took,) = together([source], [partial(blocks[b].copy_, blocks[a], True)], seconds)
                yield {"gpu": a, "peer": b, "direct": direct, "value": size_bytes / took}


def all_reduce(
    devices: list[torch.device], size_bytes: int = 2 * BLOCK_BYTES, seconds: float = TEST_S
) -> Iterator[Row]:
    """Sum over all devices with NCCL or RCCL in one process: busbw."""
    from torch.cuda import nccl

    blocks = [torch.zeros(size_bytes // 4, device=device) for device in devices]
    reduce: Callable[..., object] = nccl.all_reduce
    (took,) = together(devices[:1], [partial(reduce, blocks)], seconds)
    yield {"value": 2 * (len(devices) - 1) / len(devices) * size_bytes / took}


def together(devices: list[torch.device], work: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Repeat the work of each device on all of them at once for about so long; seconds of one repetition of each."""
    for one in work:
        one()
    began = _wait(devices)
    for one in work:
        one()
    once = max(_wait(devices) - began, 1e-6)
    repeats = max(2, min(1000, round(seconds / once)))
    marks = []
    for device, one in zip(devices, work, strict=True):
        marks.append((_mark(device), [one() for _ in range(repeats)] and _mark(device)))
    _wait(devices)
    return [_between(device, *pair) / repeats for device, pair in zip(devices, marks, strict=True)]


def _wait(devices: list[torch.device]) -> float:
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return time.perf_counter()


def _mark(device: torch.device) -> Any:
    """Return the moment, or an event that the device passes when all before it is done."""
    if device.type != "cuda":
        return time.perf_counter()
    make: Callable[..., Any] = torch.cuda.Event
    with torch.cuda.device(device):
        event = make(enable_timing=True)
        event.record()
    return event


def _between(device: torch.device, began: Any, ended: Any) -> float:
    seconds = began.elapsed_time(ended) / 1e3 if device.type == "cuda" else ended - began
    return max(float(seconds), 1e-9)


def numa_cpus(nodes: Path = _NODES) -> dict[int, set[int]]:
    """Return the CPUs of each NUMA node that has some; one node with all where the kernel does not tell."""
    found: dict[int, set[int]] = {}
    for path in sorted(nodes.glob("node[0-9]*/cpulist")):
        spans = [span.split("-") for span in path.read_text("ascii").strip().split(",") if span]
        cpus = {cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)}
        if cpus:
            found[int(path.parent.name[4:])] = cpus
    return found or {0: set(os.sched_getaffinity(0))}


if __name__ == "__main__":
    main()
