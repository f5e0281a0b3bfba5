"""Order on a CUDA device: communication threads work on a stream of their own, beside the one that computes."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Sequence
from typing import Any

import torch

from syncline.errors import SynchronizationError


def refuse_capture() -> None:
    """Refuse a CUDA graph: what it replays is what the device does, and messages are sent by this process."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise SynchronizationError(
            "this step is being captured in a CUDA graph, and gradients that syncline sends cannot be replayed.",
            hint="Capture the module that is wrapped (torch.cuda.make_graphed_callables), or close() the handle first.",
        )


class ConveyorThread(enum.IntEnum):
    """The threads of a conveyor that give work to a device."""

    FRONT = 0
    BACK = 1
    LAST = 2


class SideStreams:
    """A stream for each of a handle's communication threads; on the CPU, where calls wait for each other, none at all.

    The first thread's waits for gradients. What the others do must not wait for those of the next bucket too, and
    needs not: it begins when what the first one encoded has reached the host. Their short kernels go before those of
    the computation, which would otherwise keep each waiting in turn.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._streams: list[Any] = []
        if device.type == "cuda":
            self._streams = [torch.cuda.Stream(device, priority=-1) for _ in ConveyorThread]  # type: ignore[no-untyped-call]

    def entered(self, stage: ConveyorThread) -> contextlib.AbstractContextManager[object]:
        """Return a context in which this thread works on its stream, and on the device."""
        stream = self._streams[stage] if self._streams else None
        context: contextlib.AbstractContextManager[object] = torch.cuda.stream(stream)  # None: nothing happens
        return context

    def follow(self) -> None:
        """Make what the first thread gives to its stream from now on wait for what this one has given to its own."""
        if self._streams:
            self._streams[ConveyorThread.FRONT].wait_stream(torch.cuda.current_stream(self._device))

    def join(self) -> None:
        """Make what this thread gives to its stream from now on wait for what the second thread was given."""
        if self._streams:
            torch.cuda.current_stream(self._device).wait_stream(self._streams[ConveyorThread.BACK])

    def lead(self) -> None:
        """Make what this thread gives to its own stream from now on wait for what the last threads were given."""
        for stage in (ConveyorThread.BACK, ConveyorThread.LAST) if self._streams else ():
            torch.cuda.current_stream(self._device).wait_stream(self._streams[stage])


class Landing:
    """Waits until what this thread's stream was given has reached the host; on the CPU it is there already.

    The waiting thread sleeps: the processors are for whoever computes and sends.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event: Any = None
        self._flags: torch.Tensor | None = None

    def mark(self) -> None:
        """Note what was given so far."""
        if self._device.type != "cuda":
            return
        if self._event is None:
            self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(self._device))

    def passed(self) -> None:
        """Wait for what was noted last."""
        if self._event is not None:
            self._event.synchronize()

    def ask(self, flags: Sequence[bool | torch.Tensor]) -> None:
        """Begin to bring answers that are given on the device, and note it."""
        if self._device.type != "cuda":
            return
        if self._flags is None:
            self._flags = torch.zeros(len(flags), dtype=torch.bool, pin_memory=True)
        there = [torch.full((), bool(flag), device=self._device) if isinstance(flag, bool) else flag for flag in flags]
        self._flags.copy_(torch.stack(there), non_blocking=True)
        self.mark()

    def answers(self, flags: Sequence[bool | torch.Tensor]) -> list[bool]:
        """Wait for what was noted last, and return the answers that were asked for, or were given here."""
        if self._device.type != "cuda" or self._flags is None:
            return [bool(flag) for flag in flags]
        self.passed()
        found: list[bool] = self._flags.tolist()
        return found[: len(flags)]


def future_of(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Return a future whose waiters' streams wait for the stream that sets it."""
    return torch.futures.Future(devices=[tensor.device] if tensor.is_cuda else [])
