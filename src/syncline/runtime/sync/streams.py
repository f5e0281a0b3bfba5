"""Order on a CUDA device: communication threads work on a stream of their own, beside the one that computes."""

from __future__ import annotations

import contextlib
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


def future_of(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Return a future whose waiters' streams wait for the stream that sets it."""
    return torch.futures.Future(devices=[tensor.device] if tensor.is_cuda else [])
