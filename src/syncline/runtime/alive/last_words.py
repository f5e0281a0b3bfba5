"""What a process says of itself when it fails: where it stands, what ended it, and whether that is another's fault."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from syncline.errors import LostRankError, SynchronizationError, SynclineError

TALKING = ("torch.distributed", "torch.nn.parallel.distributed", "torch.autograd", "syncline.runtime")
"""Modules whose calls wait for other ranks; a wait in C++ is raised in the Python frame that called it."""


class Explainer(Protocol):
    """Who knows what lies behind a failure, and has goodbyes to say."""

    def explain(self, failure: BaseException) -> BaseException: ...

    def close(self) -> None: ...


def where(thread: int) -> str:
    """Return the line that a thread of this process is in, outside torch."""
    frame = sys._current_frames().get(thread)
    while frame is not None and "/torch/" in frame.f_code.co_filename and frame.f_back is not None:
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno} ({frame.f_code.co_name})"


def first_line(failure: BaseException) -> str:
    """Return a failure on one line."""
    if isinstance(failure, SynclineError):
        return failure.message.split("\n", 1)[0]
    text = str(failure).split("\n", 1)[0]
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def from_transport(failure: BaseException) -> bool:
    """Tell whether a failure comes out of a call that talks to other ranks, and so may be another rank's.

    Where it was raised tells that: what backends say of a broken connection differs between them and between versions.
    """
    if type(failure) is SynchronizationError or isinstance(failure, ConnectionError):
        return True
    if not isinstance(failure, RuntimeError):
        return False
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    home = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return home.startswith(TALKING)


def in_flight() -> BaseException | None:
    """Return the exception that is on its way up through this thread, or that ends it; None: it ends well."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        error = error.__context__ if error.code else None
    return error


def naming_hook(watchdog: Explainer) -> Callable[..., None]:
    """Return what shows an exception that ends the process: of a wait that broke, the lost rank comes first."""
    known, before = weakref.ref(watchdog), sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        found = known()
        if found is not None and from_transport(error):
            explained = found.explain(error)
            if isinstance(explained, LostRankError) and explained is not error:
                explained.__cause__ = error
                kind, error, trace = type(explained), explained, None
        before(kind, error, trace)

    return show


def at_exit_of(watchdog: Explainer) -> Callable[[], None]:
    """Return what says goodbye for a watchdog, without keeping it."""
    known = weakref.ref(watchdog)

    def at_exit() -> None:
        found = known()
        if found is not None:
            found.close()

    return at_exit
