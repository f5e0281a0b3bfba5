"""Order on a CUDA device: communication threads work on a stream of their own, beside the one that computes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch


class SideStream:
    """The stream of a handle's communication threads; on the CPU, where calls wait for each other, nothing at all."""

    def __init__(self, device: torch.device) -> None:
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def entered(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which this thread works on the stream, and on its device."""
        context: contextlib.AbstractContextManager[object] = torch.cuda.stream(self._stream)  # None: nothing happens
        return context

    def follow(self) -> None:
        """Make what is given to the stream from now on wait for what this thread has given to its own."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))

    def lead(self) -> None:
        """Make what this thread gives to its own stream from now on wait for what was given to this one."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


class Landing:
    """Waits until what this thread's stream was given has reached the host; on the CPU it is there already.

    The waiting thread sleeps: the processors are for whoever computes and sends.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event: Any = None
        self._flags: torch.Tensor | None = None

    def wait(self) -> None:
        """Wait for what was given so far."""
        self.mark()
        self.passed()

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

    def answers(self, flags: Sequence[bool | torch.Tensor]) -> list[bool]:
        """Wait likewise, and return answers that were given on the device or here."""
        if self._device.type != "cuda":
            return [bool(flag) for flag in flags]
        if self._flags is None:
            self._flags = torch.zeros(len(flags), dtype=torch.bool, pin_memory=True)
        there = [torch.full((), bool(flag), device=self._device) if isinstance(flag, bool) else flag for flag in flags]
        self._flags.copy_(torch.stack(there), non_blocking=True)
        self.wait()
        found: list[bool] = self._flags.tolist()
        return found


def future_of(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Return a future whose waiters' streams wait for the stream that sets it."""
    return torch.futures.Future(devices=[tensor.device] if tensor.is_cuda else [])
