"""Steps that are DDP's own: where plain is held its reducer averages in C++, and this handle only counts.

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
from typing import Any, Protocol

from torch.nn.parallel import DistributedDataParallel

from syncline.runtime.sync.ddp import joining
from syncline.runtime.sync.optimizer_hooks import OptimizerSteps

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
