"""Gradients that travel plain: by the backend's own all-reduce, or, where plain is held, by DDP's own reducer.

Where plain is held DDP's reducer averages in C++, and this handle only counts.

After every `LAP` optimizer steps ranks compare how long they took, and replicas when that is due; where steps have
become slower for as long as the pilot's patience lasts, the link is looked at, and codecs are tried again if it is why.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from syncline.errors import NonFiniteError, SynchronizationError
from syncline.runtime.sync.bucket import Order
from syncline.runtime.sync.ddp import joining
from syncline.runtime.sync.finite import is_finite
from syncline.runtime.sync.optimizer_hooks import OptimizerSteps
from syncline.runtime.sync.step import Step

LAP = 50
GRACE_S = 10.0
"""How long a training thread has to leave an all-reduce whose rank is lost, before the process is ended."""
EXIT_STATUS = 75

log = logging.getLogger("syncline.auto")


class DdpOwner(Protocol):
    """The handle whose place DDP takes."""

    @property
    def turns(self) -> OptimizerSteps: ...

    def turn_on(self, model: DistributedDataParallel) -> None: ...

    def turn_off(self, model: DistributedDataParallel) -> None: ...

    def native_turn(self, num_steps: int, length_s: float) -> bool: ...


class Native:
    """Whether steps are DDP's own just now, and how long the last ones took."""

    def __init__(self, owner: DdpOwner) -> None:
        self.is_on = False
        self._owner = owner
        self._model: Any = lambda: None
        self._left = LAP
        self._began_s = 0.0
        self._trainer = 0

    def turn_on(self, model: DistributedDataParallel) -> None:
        """Let DDP's reducer average from the backward that comes; between two steps, on every rank."""
        self._owner.turn_off(model)
        # DDP held the handle by its hook; now the model does, and the garbage collector sees both.
        model.__dict__["_syncline_handle"] = self._owner
        self.is_on, self._model = True, weakref.ref(model)
        self._trainer = threading.get_ident()
        self._begin()
        self._owner.turns.after = self._turn

    def turn_off(self) -> None:
        """Average here again."""
        self._owner.turns.after = None
        self.is_on = False
        model = self._model()
        if model is not None:
            self._owner.turn_on(model)

    def end_soon(self, failure: BaseException) -> None:
        """End the process where its training thread waits in an all-reduce that nobody will answer, as NCCL does."""
        if not self.is_on:
            return

        def end() -> None:
            if self.is_on and in_backward(self._trainer):
                log.critical("%s\nAn all-reduce of plain DDP cannot be interrupted: this process ends.", failure)
                os._exit(EXIT_STATUS)

        timer = threading.Timer(GRACE_S, end)
        timer.daemon = True
        timer.start()

    @property
    def num_pending(self) -> int:
        """Steps since the handle last counted them."""
        return LAP - self._left if self.is_on else 0

    def _begin(self) -> None:
        self._left, self._began_s = LAP, time.perf_counter()

    def _turn(self) -> None:
        self._left -= 1
        if self._left:
            return
        length_s = (time.perf_counter() - self._began_s) / LAP
        if not self.is_on or joining(self._model()):  # ranks whose data has ended take no part in what others gather
            self._begin()
            return
        if self._owner.native_turn(LAP, length_s):
            self.turn_off()
        self._begin()


def in_backward(thread: int) -> bool:
    """Tell whether a thread of this process is inside autograd."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_name == "_engine_run_backward":
            return True
        frame = frame.f_back
    return False


def average_plain(
    order: Order, group: Any, num_ranks: int, nan: str, explain: Callable[[SynchronizationError], BaseException]
) -> None:
    """Begin an all-reduce of a bucket; `explain` says what lies behind one that fails."""
    buffer, step = order.buffer, order.step
    step.bucket_in(order.index, buffer.nbytes, order.last)
    size = 2 * (num_ranks - 1) * buffer.nbytes // num_ranks
    step.dense_bytes += size
    step.wire_bytes += size
    work = dist.all_reduce(buffer.div_(num_ranks), group=group, async_op=True)
    assert work is not None

    def finished(future: Any) -> None:
        failure: BaseException | None = None
        try:
            future.wait()
            failure = _not_finite(buffer, step, nan)
        except RuntimeError as error:
            failure = explain(SynchronizationError("the all-reduce failed.", detail=str(error)))
        step.bucket_out()
        order.done(failure)

    work.get_future().then(finished)


def _not_finite(buffer: torch.Tensor, step: Step, nan: str) -> BaseException | None:
    """Do what the settings say about an average with a NaN or infinity: every rank has the same."""
    if is_finite(buffer):
        return None
    if nan == "skip":
        step.skipped = True
        return None
    return NonFiniteError(
        f"an averaged gradient is not finite at step {step.number}.",
        hint='Find what overflows, or pass nan="skip" to leave such steps out on every rank.',
    )


def check_finite(weights: Mapping[str, torch.Tensor], num_steps: int) -> None:
    """Raise where weights are not finite: of steps that are DDP's own, only this tells."""
    for name, parameter in weights.items():
        if not is_finite(parameter.detach()):
            raise NonFiniteError(
                f'"{name}" is not finite at step {num_steps}, on every rank.',
                hint="Find what overflows, and restart from a checkpoint.",
            )
