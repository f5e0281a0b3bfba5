"""Operators of a script without GPUs timed on this machine's CPU, with as many threads as a rank of it would have."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from syncline.previewing.capture.arguments import Arguments, size_of

LASTING_S, MOST_CALLS = 0.01, 200
ROUNDS = 3


def threads(facts: Mapping[str, Any]) -> int:
    """Return the threads of a rank: as its command says, as this environment does, or as torchrun sets them."""
    env = facts["env"]
    number = env.get("OMP_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS")
    if number:
        return int(number)
    return 1 if int(env["LOCAL_WORLD_SIZE"]) > 1 else torch.get_num_threads()


def described(number: int) -> dict[str, object]:
    """Return what this machine is: its processor, its memory and the threads that were used."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else "a CPU"
    return {
        "device": f"{name}, {number} thread{'s' if number > 1 else ''}",
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cache_bytes": 0,
        "cpu": {"threads": number, "cores": len(os.sched_getaffinity(0))},
    }


def timed(spec: Mapping[str, Any]) -> dict[str, float]:
    """Return what an operator takes: the middle of some rounds of calls with the same tensors."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if 2 * size_of(spec) > free:
        raise MemoryError(f"its tensors take {size_of(spec) / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free")
    call = Arguments(spec).call()
    call()
    once = _seconds(call, 1)
    number = max(1, min(MOST_CALLS, int(LASTING_S / max(once, 1e-7))))
    seconds = sorted(_seconds(call, number) for _ in range(ROUNDS))[ROUNDS // 2]
    return {"hot_s": seconds, "cold_s": seconds, "host_s": seconds}


def _seconds(call: Any, number: int) -> float:
    begun = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - begun) / number
