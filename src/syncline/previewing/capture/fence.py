"""What a preview does not let a script do: talk to a network, start worker processes, publish runs."""

from __future__ import annotations

import inspect
import socket
from functools import wraps
from typing import Any

import torch

from syncline.previewing.capture.log import Log


def prepare(log: Log) -> None:
    """Block connections beyond this machine, worker processes of data loaders and checkpoints."""
    outside(log)
    _workers(log)


def outside(log: Log) -> None:
    """Block what reaches beyond the process: connections and checkpoints."""
    connect = socket.socket.connect

    def refused(self: Any, address: Any) -> Any:
        host = address[0] if isinstance(address, tuple) else str(address)
        if self.family in (socket.AF_INET, socket.AF_INET6) and not str(host).startswith(("127.", "::1", "localhost")):
            log.note(f"connection to {host} refused")
            raise ConnectionRefusedError(f"a preview opens no connections (to {host})")
        return connect(self, address)

    socket.socket.connect = refused  # type: ignore[method-assign, assignment]
    socket.getaddrinfo = _unresolved(socket.getaddrinfo, log)

    def unsaved(*_: Any, **__: Any) -> None:
        log.note("checkpoints are not written: tensors have no contents")

    torch.save = unsaved  # type: ignore[assignment]
    import torch.distributed.checkpoint as checkpoint

    checkpoint.save = unsaved  # type: ignore[assignment]


def _workers(log: Log) -> None:
    loader: Any = torch.utils.data.DataLoader
    start = loader.__init__

    names = [*inspect.signature(start).parameters][1:]

    @wraps(start)  # frameworks read its signature
    def without_workers(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs |= dict(zip(names, args, strict=False))  # however they were given
        if kwargs.get("num_workers"):
            log.note(f"DataLoader: {kwargs['num_workers']} workers not started; data loads in the main process")
        for name in ("num_workers", "prefetch_factor", "persistent_workers", "multiprocessing_context"):
            kwargs.pop(name, None)
        kwargs["pin_memory"] = False
        start(self, **kwargs)

    loader.__init__ = without_workers


def _unresolved(lookup: Any, log: Log) -> Any:
    def found(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host in (None, "", "localhost", "127.0.0.1", "::1"):
            return lookup(host, *args, **kwargs)
        log.note(f"name {host} not looked up")
        raise socket.gaierror(socket.EAI_NONAME, f"a preview resolves no host names ({host})")

    return found
