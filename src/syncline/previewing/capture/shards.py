"""Shards of parameters in a world of thousands, of which one rank is run."""

from __future__ import annotations

from typing import Any


class Chunks:
    """The parts of a tensor that shards of it are, each made when it is asked for: of a thousand, FSDP reads two."""

    def __init__(self, tensor: Any, number: int, dim: int) -> None:
        self.tensor, self.number, self.dim = tensor, number, dim
        self.each = -(-tensor.size(dim) // number)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> Any:
        begin, size = place * self.each, self.tensor.size(self.dim)
        if begin >= size and place:
            return self.tensor.new_empty(0)
        return self.tensor.narrow(self.dim, begin, min(self.each, size - begin))


def prepare() -> None:
    """Let FSDP cut parameters without making every rank's part."""
    try:
        from torch.distributed.fsdp._fully_shard import _fsdp_param
    except ImportError:  # a torch that keeps it elsewhere
        return
    if hasattr(_fsdp_param, "_chunk_with_empty"):
        _fsdp_param._chunk_with_empty = Chunks  # type: ignore[assignment]
