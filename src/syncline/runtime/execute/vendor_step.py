"""Vendor steps: a collective that the group's own backend performs (NCCL, RCCL, gloo, MPI), on the program's buffer.

The buffer is laid out as programs lay it out: every rank holds all blocks, and its own are the ones that count. Where a
backend wants equal blocks and these are not, the collective is done block by block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from syncline.errors import DeadlineError, ExecutionError
from syncline.runtime.execute.posting import Deadline
from syncline.runtime.group import Group
from syncline.schedule.collective import Collective, Kind, split_bytes

Finish = Callable[[Deadline], None]
"""What waits for a collective, or puts its result in place."""


class VendorCall:
    """One collective on one buffer, its views and staging made once."""

    def __init__(self, group: Group, collective: Collective, buffer: torch.Tensor, size: int) -> None:
        if group.size != collective.num_ranks:
            raise ExecutionError(f"{collective} is left to {group.backend}, whose group has {group.size} processes.",
                                 hint="Vendor steps need a group of exactly the program's ranks.")  # fmt: skip
        self.group = group
        self.collective = collective
        self.buffer = buffer[: collective.total_bytes(size)]
        self.blocks = _blocks(collective, self.buffer, size)
        self._rooms: dict[object, torch.Tensor] = {}
        kind = Kind.ALL_TO_ALL if collective.kind is Kind.ALL_TO_ALLV else collective.kind
        self._begin: Callable[[], list[Finish]] = getattr(self, f"_{kind.name.lower()}")

    def run(self, deadline: Deadline) -> None:
        """Perform it, or raise when it is not over in time."""
        try:
            for finish in self._begin():
                finish(deadline)
        except (RuntimeError, TimeoutError) as error:
            where = f"{self.group.backend} {self.collective.kind}, rank {self.group.rank}"
            if deadline.passed() or "imed out" in str(error):
                hint = "The backend does not say which rank is missing; a program of syncline's own does."
                raise DeadlineError(f"not finished after {deadline.seconds:g} s.", where=where, hint=hint) from None
            first = str(error).split("] ", 1)[-1].splitlines()[0]
            raise ExecutionError(f"the backend failed: {first[:200]}", where=where) from None

    def _waits(self, *works: Any) -> list[Finish]:
        return [partial(self._wait, work) for work in works if work is not None]

    def _wait(self, work: Any, deadline: Deadline) -> None:
        work.wait(deadline.left())
        if self.buffer.device.type == "cuda":
            torch.cuda.synchronize(self.buffer.device)

    def _room(self, key: object, like: torch.Tensor) -> torch.Tensor:
        """Return staging of a tensor's shape, made on the first run and used again on every other."""
        if key not in self._rooms:
            self._rooms[key] = torch.empty_like(like)
        return self._rooms[key]

    def _copied(self, key: object, data: torch.Tensor) -> torch.Tensor:
        return self._room(key, data).copy_(data)

    @property
    def _root(self) -> int:
        return self.group.global_rank(self.collective.root)

    @property
    def _even(self) -> bool:
        return len({block.numel() for block in self.blocks}) == 1

    def _all_reduce(self) -> list[Finish]:
        return self._waits(dist.all_reduce(self.buffer, group=self.group.handle, async_op=True))

    def _broadcast(self) -> list[Finish]:
        return self._waits(dist.broadcast(self.buffer, self._root, group=self.group.handle, async_op=True))

    def _reduce(self) -> list[Finish]:
        # The other ranks' buffers are scratch to a reduction, but not to their owners.
        data = self.buffer if self.group.rank == self.collective.root else self._copied("reduce", self.buffer)
        return self._waits(dist.reduce(data, self._root, group=self.group.handle, async_op=True))

    def _all_gather(self) -> list[Finish]:
        if self._even:
            mine = self._copied("gather", self.blocks[self.group.rank])
            return self._waits(dist.all_gather(self.blocks, mine, group=self.group.handle, async_op=True))
        return self._waits(
            *(
                dist.broadcast(block, self.group.global_rank(rank), group=self.group.handle, async_op=True)
                for rank, block in enumerate(self.blocks)
                if block.numel()
            )
        )

    def _reduce_scatter(self) -> list[Finish]:
        mine = self.blocks[self.group.rank]
        if self._even and mine.numel():
            out = self._room("scatter", mine)
            work = dist.reduce_scatter(out, self.blocks, group=self.group.handle, async_op=True)
            return [*self._waits(work), lambda deadline: _copy(mine, out)]
        works = []
        for rank, block in enumerate(self.blocks):
            if block.numel():
                data = block if rank == self.group.rank else self._copied(rank, block)
                works.append(dist.reduce(data, self.group.global_rank(rank), group=self.group.handle, async_op=True))
        return self._waits(*works)

    def _gather(self) -> list[Finish]:
        return self._pairs([(rank, self.collective.root, rank) for rank in range(self.group.size)])

    def _scatter(self) -> list[Finish]:
        return self._pairs([(self.collective.root, rank, rank) for rank in range(self.group.size)])

    def _send_recv(self) -> list[Finish]:
        if self.collective.to_next:
            return self._pairs([(rank, (rank + 1) % self.group.size, rank) for rank in range(self.group.size)])
        return self._pairs([(self.collective.root, self.collective.peer, 0)])

    def _pairs(self, moves: list[tuple[int, int, int]]) -> list[Finish]:
        """Send blocks between pairs: (from, to, block), those of this rank."""
        me = self.group.rank
        calls = [
            dist.P2POp(dist.isend if src == me else dist.irecv, self.blocks[block],
                       self.group.global_rank(dst if src == me else src), self.group.handle)
            for src, dst, block in moves
            if src != dst and me in (src, dst) and self.blocks[block].numel()
        ]  # fmt: skip
        return self._waits(*dist.batch_isend_irecv(calls)) if calls else []

    def _all_to_all(self) -> list[Finish]:
        n, me = self.group.size, self.group.rank
        row = self.blocks[me * n : me * n + n]
        column = self.blocks[me::n]
        low = sum(block.numel() for block in self.blocks[: me * n])
        given = self.buffer[low : low + sum(block.numel() for block in row)]
        sizes = [block.numel() for block in column]
        got = self._room("column", self.buffer[:0].new_empty(sum(sizes)))
        work = dist.all_to_all_single(
            got, given, sizes, [block.numel() for block in row], group=self.group.handle, async_op=True
        )

        def land(deadline: Deadline) -> None:
            for block, part in zip(column, torch.split(got, sizes), strict=True):
                block.copy_(part)

        return [*self._waits(work), land]


def _copy(to: torch.Tensor, what: torch.Tensor) -> None:
    to.copy_(what)


def _blocks(collective: Collective, buffer: torch.Tensor, size: int) -> list[torch.Tensor]:
    weights = np.cumsum(np.asarray(collective.sizes or (1,) * collective.num_blocks, dtype=np.int64))
    return list(torch.split(buffer, split_bytes(collective.total_bytes(size), weights).tolist()))
