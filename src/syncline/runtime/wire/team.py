"""Ranks that talk to each other and to nobody else: a backend of the handle's own, outside torch's list of groups.

`torch.distributed.new_group` wants every rank of the world to take part, or numbers groups by how many each rank has
made, which ranks of a part of the world need not agree on. A team meets under a name that the parent group has agreed
on, so any part of the world can make one at any time.
"""

from __future__ import annotations

import datetime
import uuid
import zlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from syncline.runtime.alive.pace import Pace, PacedWork


class Team:
    """The given members of a parent group, by their ranks in it; `rank` and `size` are within the team.

    They meet in `store`, by default that of the process group.
    """

    pace: Pace | None = None
    """Holds back what is sent, where the runtime itself stands in for a slow link."""

    def __init__(
        self,
        name: str,
        members: Sequence[int],
        rank: int,
        device: torch.device,
        timeout_s: float,
        store: Any = None,
    ) -> None:
        self.members = tuple(members)
        self.names = self.members
        """What people call the members: their ranks in the run."""
        self.behind: Sequence[Sequence[int]] | None = None
        """The ranks over which each member's gradient has been summed before; None: it is its own."""
        self.store = distributed_c10d._get_default_store() if store is None else store
        self.rank = self.members.index(rank)
        self.size = len(members)
        self.device = device
        self.meeting: Any = distributed_c10d.PrefixStore(f"syncline/{name}/{name_of(members)}", self.store)
        self._backend = _backend(self.meeting, self.rank, self.size, device, datetime.timedelta(seconds=timeout_s))

    @property
    def peers(self) -> list[int]:
        """The others, nearest first."""
        return [(self.rank + k) % self.size for k in range(1, self.size)]

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> dist.Work | PacedWork:
        """Begin to send, or let it wait for its turn."""
        if self.pace is not None:
            return self.pace.send(lambda: self._backend.send([tensor], peer, tag), tensor.nbytes)
        work: dist.Work = self._backend.send([tensor], peer, tag)
        return work

    def receive(self, tensor: torch.Tensor, peer: int, tag: int) -> dist.Work:
        """Begin to receive."""
        work: dist.Work = self._backend.recv([tensor], peer, tag)
        return work

    def all_to_all(self, output: torch.Tensor, sent: torch.Tensor) -> dist.Work:
        """Begin to send the k-th equal part to rank k."""
        work: dist.Work = self._backend.alltoall_base(output, sent, [], [])
        return work

    def all_gather(self, outputs: Sequence[torch.Tensor], sent: torch.Tensor) -> dist.Work:
        """Begin to send one tensor to all."""
        work: dist.Work = self._backend.allgather([list(outputs)], [sent])
        return work

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sum in place and wait."""
        self._backend.allreduce([tensor]).wait()


def name_of(ranks: Sequence[int]) -> str:
    """Return a short name of some ranks, however many: keys of the store begin with it."""
    return f"{len(ranks)}-{zlib.crc32(repr(list(ranks)).encode()):08x}"


def store_port(store: Any) -> int:
    """Return the port of the job's store; 0 where it has none, as a store in a file."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return int(getattr(store, "port", 0))


def agreed_name(parent: dist.ProcessGroup, device: torch.device) -> str:
    """Return a name that nobody has used, the same on every rank of the parent group."""
    token = torch.tensor(list(uuid.uuid4().bytes), dtype=torch.uint8, device=device)
    dist.broadcast(token, dist.get_global_rank(parent, 0), parent)
    return bytes(token.tolist()).hex()


def _backend(store: Any, rank: int, size: int, device: torch.device, timeout: datetime.timedelta) -> Any:
    if device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, rank, size, options)
    return dist.ProcessGroupGloo(store, rank, size, timeout)
