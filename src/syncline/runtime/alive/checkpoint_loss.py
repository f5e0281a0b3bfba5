"""A rank lost while a checkpoint is written or read: the others say who it was, not what their connections met."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import torch.distributed as dist

from syncline.errors import SynchronizationError
from syncline.runtime.alive.watchdog import is_broken_connection

SHORTEST_S, LONGEST_S = 0.0005, 0.1
"""Between two looks whether all have come."""


@contextlib.contextmanager
def naming_the_lost(handle: Any) -> Iterator[None]:
    """Raise what lies behind a broken connection, where the handle's heartbeats say it."""
    try:
        yield
    except Exception as error:
        explain = getattr(handle, "failure_of", None)
        if explain is None or not is_broken_connection(error):
            raise
        vague = SynchronizationError("a checkpoint was interrupted.", detail=str(error).split("\n", 1)[0])
        raise explain(vague) from error


def group_of_all(handle: Any) -> Any:
    """Make a gloo group of every rank, unless the handle hears that one is lost: torch itself waits half an hour."""
    if handle is None:
        return dist.new_group(backend="gloo")
    made: Future[Any] = Future()

    def make() -> None:
        try:
            made.set_result(dist.new_group(backend="gloo"))
        except Exception as error:
            made.set_exception(error)

    threading.Thread(target=make, name="syncline-checkpoint-group", daemon=True).start()
    _until(made.done, handle)
    return made.result()


def meet(group: Any, handle: Any) -> None:
    """Wait for every rank of a group, unless the handle hears that one is lost."""
    work = dist.barrier(group, async_op=True)
    if work is None:
        return
    _until(work.is_completed, handle)
    work.wait()


def _until(is_done: Callable[[], bool], handle: Any) -> None:
    """Wait until something is done, unless the handle hears that a rank is lost."""
    wait_s = SHORTEST_S
    while getattr(handle, "failure", None) is None and not is_done():
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_S)
    if not is_done():
        raise handle.failure_of(handle.failure)
