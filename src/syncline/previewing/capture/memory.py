"""Memory as the allocator would see it: storages on the GPU, each rounded to the allocator's 512 bytes."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from syncline.previewing.capture.log import Log

ROUND = 512


class StorageLedger:
    """The storages that are alive, and every change."""

    def __init__(self, log: Log) -> None:
        self.log, self.used, self.peak = log, 0, 0
        self.live: dict[int, tuple[int, int, Any]] = {}  # by storage: allocation, bytes, weak reference

    def seen(self, tensor: Any, module: str, line: str, label: str = "") -> bool:
        """Count the storage of a tensor unless it is known; return whether it was new."""
        if tensor.layout is not torch.strided:  # its indices and values were made before it
            return True
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.live:
            return False
        number = len(self.log.allocs)
        size = _rounded(storage.nbytes())
        self.log.allocs.append([size, len(self.log.ops), self.log.word(module), self.log.word(line), label])
        self.live[key] = (number, size, weakref.ref(storage, lambda _, key=key: self.freed(key)))
        self._change(number, size)
        return True

    def known(self, tensor: Any) -> bool:
        return tensor.untyped_storage()._cdata in self.live

    def freed(self, key: int) -> None:
        found = self.live.pop(key, None)
        if found is not None:
            self._change(found[0], -found[1])

    def resized(self, storage: Any) -> None:
        """Follow a storage that was freed or filled in place, as FSDP does."""
        found = self.live.get(storage._cdata)
        if found is None:
            return
        number, size, reference = found
        now = _rounded(storage.nbytes())
        if now != size:
            self.live[storage._cdata] = (number, now, reference)
            self._change(number, now - size)

    def label(self, tensor: Any, label: str) -> None:
        """Say what a tensor is for."""
        local = getattr(tensor, "_local_tensor", tensor)
        if torch._C._functorch.is_functorch_wrapped_tensor(local):  # of `vmap` and `grad`
            return
        found = self.live.get(local.untyped_storage()._cdata) if isinstance(local, torch.Tensor) else None
        if found is not None and self.log.allocs[found[0]][4] != "parameters":
            self.log.allocs[found[0]][4] = label

    def _change(self, number: int, size: int) -> None:
        self.used += size
        self.peak = max(self.peak, self.used)
        self.log.memory.append((len(self.log.ops), number, size))


def _rounded(size: int) -> int:
    return -(-size // ROUND) * ROUND


def prepare(memory: StorageLedger) -> None:
    """Follow `UntypedStorage.resize_`."""
    resize = torch.UntypedStorage.resize_

    def followed(self: Any, size: int) -> Any:
        out = resize(self, size)
        memory.resized(self)
        return out

    torch.UntypedStorage.resize_ = followed  # type: ignore[method-assign, assignment]
