"""The group in which ranks write and read a checkpoint: where one is lost meanwhile, the others name it."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist

from syncline.errors import CheckpointError, SynchronizationError
from syncline.runtime.alive.agreement import gathered
from syncline.runtime.alive.arrival import Arrival
from syncline.runtime.alive.last_words import from_transport

SHORTEST_S, LONGEST_S = 0.0005, 0.1
"""Between two looks whether all have come."""


@contextlib.contextmanager
def naming_the_lost(handle: Any) -> Iterator[None]:
    """Raise what lies behind a broken connection, where the handle's heartbeats say it."""
    if hasattr(handle, "phase"):
        handle.phase = "checkpoint"
    try:
        yield
    except Exception as error:
        explain = getattr(handle, "failure_of", None)
        if explain is None or not from_transport(error):
            raise
        vague = SynchronizationError("a checkpoint was interrupted.", detail=str(error).split("\n", 1)[0])
        raise explain(vague) from error


def group_of_all(handle: Any, wait_s: float) -> Any:
    """Make a gloo group of every rank: torch itself waits half an hour for one that does not come.

    A handle hears which rank is lost; without one, ranks that are not there within `wait_s` are named.
    """
    made: Future[Any] = Future()
    arrival = Arrival("checkpoint", range(dist.get_world_size()))

    def make() -> None:
        try:
            made.set_result(dist.new_group(backend="gloo"))
        except Exception as error:
            made.set_exception(error)

    threading.Thread(target=make, name="syncline-checkpoint-group", daemon=True).start()
    if not _until(made.done, handle, math.inf if handle is not None else wait_s):
        raise _missing(arrival.missing, wait_s)
    return made.result()


def gather_json(value: Mapping[str, object], group: Any) -> list[dict[str, Any]]:
    """Return what every rank of a group on the CPU says, in their order; just this one's where there is no group."""
    if group is None:
        return [dict(value)]
    size = dist.get_world_size(group)
    return gathered(value, size, torch.device("cpu"), lambda rooms, own: dist.all_gather(rooms, own, group=group))


def _missing(ranks: list[int], wait_s: float) -> CheckpointError:
    """Return the error that names who did not come."""
    who = f"rank {', '.join(map(str, ranks))} did not come" if ranks else "not every rank could be reached"
    return CheckpointError(
        f"{who} to the checkpoint within {wait_s:g} s.",
        hint="See why on that rank; every rank calls save() and restore(). Pass the handle to end as soon as a rank is "
        "lost, or a longer wait_s= to Checkpoints.",
    )


def meet(group: Any, handle: Any) -> None:
    """Wait for every rank of a group, unless the handle hears that one is lost."""
    work = dist.barrier(group, async_op=True)
    if work is None:
        return
    _until(work.is_completed, handle)
    work.wait()


def _until(is_done: Callable[[], bool], handle: Any, limit_s: float = math.inf) -> bool:
    """Wait until something is done and say whether it is, unless the handle hears that a rank is lost."""
    wait_s, end_s = SHORTEST_S, time.monotonic() + limit_s
    while getattr(handle, "failure", None) is None and not is_done() and time.monotonic() < end_s:
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_S)
    if not is_done() and getattr(handle, "failure", None) is not None:
        raise handle.failure_of(handle.failure)
    return is_done()
