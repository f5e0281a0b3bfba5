"""Processors of their own for ranks that share a machine: whole cores, and one of them for the training thread alone.

Two threads that compute on the two halves of one core each take up to twice as long, and a thread below which cables'
timers fire computes for the network. Where a rank may run anywhere, both happen to some rank in every step, and the
others wait for it.

In a guest that is not all: its processor may be half of a core whose other half is somebody else's. Work then takes up
to half as long again, forward, backward and optimizer alike, with processor time equal to wall time and nothing told as
stolen, on one processor for some seconds and then on another. No guest can help it, but it can tell: `pace_s`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

CORES_VARIABLE = "SYNCLINE_RIG_CORES"
BLOCK = bytes(8 << 20)


def siblings(cpu: int) -> tuple[int, ...]:
    """Return the processors that the kernel says are halves of one core, this one among them."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return tuple(_numbers(path.read_text())) if path.exists() else (cpu,)


def shares(num_ranks: int) -> list[list[int]]:
    """Return the processors of each rank, the training thread's first; nothing where there are too few cores.

    Halves of a core stay together, and the other half of the training thread's core comes last.
    """
    here = sorted(os.sched_getaffinity(0))
    cores = list(dict.fromkeys(tuple(cpu for cpu in siblings(cpu) if cpu in here) for cpu in here))
    each = len(cores) // num_ranks
    if each < 2:
        return [[] for _ in range(num_ranks)]
    dealt = [cores[rank * each : (rank + 1) * each] for rank in range(num_ranks)]
    return [[own[0][0], *(cpu for core in own[1:] for cpu in core), *own[0][1:]] for own in dealt]


def settle() -> None:
    """Keep this process to the processors it was given, but for the first, which is left to `training`.

    Threads are where the thread was that made them: this comes before any.
    """
    own = _given()
    if own:
        os.sched_setaffinity(0, own[1:])


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Have this thread train on a processor of its own; threads that are made meanwhile would be there too."""
    own = _given()
    if not own:
        yield
        return
    os.sched_setaffinity(0, own[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, own[1:])


def pace_s() -> float:
    """Return the seconds of a fixed bit of work on this thread's processor, the least of three."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        hashlib.sha256(BLOCK)
        taken.append(time.perf_counter() - began)
    return min(taken)


def _given() -> list[int]:
    return _numbers(os.environ.get(CORES_VARIABLE, ""))


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found
