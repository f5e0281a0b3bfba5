"""The process groups of a handle: its own, so that nobody else's collective comes between, one for each level."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import torch
import torch.distributed as dist

from syncline.runtime.levels import members
from syncline.runtime.settings import Settings
from syncline.runtime.wire import Collectives, PointToPoint, Wire


class GroupLinks:
    """Wires from the innermost level to the outermost, and the group of all ranks for what is rare and small."""

    def __init__(self, parent: dist.ProcessGroup, settings: Settings, device: torch.device) -> None:
        self.device = device
        self.ranks = dist.get_process_group_ranks(parent)
        self.rank, self.num_ranks = dist.get_rank(parent), len(self.ranks)
        self._timeout = datetime.timedelta(seconds=settings.timeout_s)
        self._backend = "nccl" if device.type == "cuda" else "gloo"
        wanted = settings.transport
        self._collectives = wanted == "collectives" or (wanted == "auto" and self._backend == "nccl")
        self.group = self._new(range(self.num_ranks))
        levels = members(self.rank, self.num_ranks, settings.levels)
        self.wires: list[Wire] = [self._wire(level) for level in levels]

    @property
    def outermost(self) -> Wire:
        """The level that is compressed."""
        return self.wires[-1]

    def _wire(self, level: Sequence[int]) -> Wire:
        if self._collectives:
            return Collectives(self._new(level), self._new(level))
        return PointToPoint(self.group if len(level) == self.num_ranks else self._new(level))

    def _new(self, level: Sequence[int]) -> dist.ProcessGroup:
        ranks = [self.ranks[k] for k in level]
        partial = len(ranks) != dist.get_world_size()
        group = dist.new_group(ranks, timeout=self._timeout, backend=self._backend, use_local_synchronization=partial)
        assert isinstance(group, dist.ProcessGroup), "this process is a member of the group it makes"
        return group
