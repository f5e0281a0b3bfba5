"""A world on one real device: its only rank's collectives return at once, as if every other rank held what it does."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from syncline.previewing.capture.world import CapturedGroup, FinishedCollective, open_world

NAME = "syncline_alike"


class Alike(CapturedGroup):
    """A group of ranks that all hold the same; one copy is launched where a collective would be."""

    def _done(self, what: str, size: int, result: Any, kind: str = "", peer: int = -1) -> Any:
        return FinishedCollective(result)

    def _end_coalescing(self, device: Any = None) -> Any:
        return FinishedCollective([])

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        return FinishedCollective(tensors)

    allreduce_coalesced = allreduce

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        for into, given in zip(outputs, inputs, strict=True):
            for each in into:
                each.copy_(given)
        return FinishedCollective(outputs)

    def all_gather_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        output.view(self._size, -1).copy_(given.reshape(1, -1).expand(self._size, -1))
        return FinishedCollective([output])

    _allgather_base = all_gather_single

    def reduce_scatter_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        output.view(-1).copy_(given.view(self._size, -1)[self._rank])
        return FinishedCollective([output])

    _reduce_scatter_base = reduce_scatter_single

    def all_to_all_single(
        self, output: Any, given: Any, out_splits: Any = None, in_splits: Any = None, opts: Any = None
    ) -> Any:
        if output.shape == given.shape:
            output.copy_(given)
        return FinishedCollective([output])

    alltoall_base = all_to_all_single

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        for each in tensors:
            each.zero_()
        return FinishedCollective(tensors)


def _works_alone(start: Any, backend: str) -> bool:
    """Make a group of one rank with the backend that was asked for; return whether it works without a network."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        return False
    start(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.zeros(1, device="cuda" if backend == "nccl" else "cpu"))
        return True
    except RuntimeError:
        dist.destroy_process_group()
        return False


def prepare() -> None:
    """Let a script have its world: one rank alone as it asks for it, more as ranks that are alike."""
    open_world(NAME, Alike, "nccl", _works_alone)
