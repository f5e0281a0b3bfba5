"""What a collective must do: who gives each chunk of the buffer and who must end with it.

A collective says *what*, never *how*. Every kind here is two answers per chunk: who gives (one rank or all of them,
summed) and who takes (one rank or all of them). A schedule is right when every taker ends with exactly one
contribution of every giver, and nothing else.

    >>> Collective(Kind.REDUCE_SCATTER, 4).takers(4).tolist()
    [0, 1, 2, 3]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from syncline.describe.plain import JsonObject
from syncline.errors import ScheduleError

Ints = NDArray[np.int64]

ALL = -1
"""Stands for every rank in `givers` and `takers`."""

MAX_RANKS = 1 << 20
"""Ranks one schedule may have: membership tables are explicit, 1,048,576 ranks are 8 MB a stage."""

MAX_CHUNKS = 1 << 30
"""Chunks one strand may have (a 32,768-rank all-to-all has as many)."""


class Kind(StrEnum):
    """The collectives."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_TO_ALL = "all_to_all"
    ALL_TO_ALLV = "all_to_allv"
    SCATTER = "scatter"
    GATHER = "gather"
    SEND_RECV = "send_recv"


_GIVES = {
    Kind.ALL_REDUCE: "all", Kind.REDUCE_SCATTER: "all", Kind.REDUCE: "all",
    Kind.ALL_GATHER: "owner", Kind.GATHER: "owner",
    Kind.BROADCAST: "root", Kind.SCATTER: "root", Kind.SEND_RECV: "root",
    Kind.ALL_TO_ALL: "row", Kind.ALL_TO_ALLV: "row",
}  # fmt: skip
_TAKES = {
    Kind.ALL_REDUCE: "all", Kind.ALL_GATHER: "all", Kind.BROADCAST: "all",
    Kind.REDUCE_SCATTER: "owner", Kind.SCATTER: "owner",
    Kind.REDUCE: "root", Kind.GATHER: "root",
    Kind.SEND_RECV: "peer",
    Kind.ALL_TO_ALL: "column", Kind.ALL_TO_ALLV: "column",
}  # fmt: skip
ROOTED = frozenset({Kind.BROADCAST, Kind.REDUCE, Kind.SCATTER, Kind.GATHER, Kind.SEND_RECV})
OWNED = frozenset({Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.SCATTER, Kind.GATHER})
PAIRED = frozenset({Kind.ALL_TO_ALL, Kind.ALL_TO_ALLV})


@dataclass(frozen=True)
class Collective:
    """One collective over `num_ranks` ranks.

    The buffer is cut in blocks: one for all-reduce, broadcast, reduce and send/recv (one a rank where every rank sends
    to the next, which is a send/recv without a peer); one per rank (in rank order) for
    reduce-scatter, all-gather, scatter and gather; one per (source, destination) pair for all-to-all. `sizes` gives
    the blocks relative sizes where they are uneven. The size of the buffer means what nccl-tests means: the whole
    vector that is reduced, gathered or sent, and for all-to-all the send buffer of one rank (the mean one, if uneven).
    """

    kind: Kind
    num_ranks: int
    root: int = 0
    peer: int = -1
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_ranks(self.num_ranks)
        object.__setattr__(self, "kind", read_kind(self.kind))
        self._check_root()
        self._check_sizes()

    def _check_root(self) -> None:
        if not 0 <= self.root < self.num_ranks:
            raise ScheduleError(f"root {self.root} is not a rank: there are {self.num_ranks}.")
        if self.kind is not Kind.SEND_RECV:
            if self.peer != -1:
                raise ScheduleError(f"{self.kind} has no peer.", hint="Only send_recv has one.")
        elif self.to_next:
            return
        elif not 0 <= self.peer < self.num_ranks or self.peer == self.root:
            raise ScheduleError(
                f"send_recv from rank {self.root} needs another rank as peer, not {self.peer}.",
                hint=f"Give as peer a rank from 0 to {self.num_ranks - 1} that is not the root.",
            )

    def _check_sizes(self) -> None:
        if self.kind is Kind.ALL_TO_ALLV and not self.sizes:
            raise ScheduleError("all_to_allv needs sizes: one per (source, destination) pair, row by row.")
        if not self.sizes:
            return
        if len(self.sizes) != self.num_blocks or self.kind not in OWNED | {Kind.ALL_TO_ALLV}:
            raise ScheduleError(f"{self.kind} over {self.num_ranks} ranks has {self.num_blocks} blocks, "
                                f"not {len(self.sizes)} sizes.")  # fmt: skip
        if min(self.sizes) < 0 or not 0 < sum(self.sizes) < 1 << 31:
            raise ScheduleError(
                "sizes must not be negative and must add up to between 1 and 2^31 - 1.",
                hint="They are relative: divide them by a common factor.",
            )

    def even(self) -> Collective:
        """Return the same collective without sizes: they change bytes, never who must get what."""
        kind = Kind.ALL_TO_ALL if self.kind is Kind.ALL_TO_ALLV else self.kind
        return replace(self, kind=kind, sizes=())

    @property
    def to_next(self) -> bool:
        """Whether every rank sends its buffer to the next one (nccl-tests' sendrecv): a send_recv without a peer."""
        return self.kind is Kind.SEND_RECV and self.peer == -1

    @property
    def buffers(self) -> int:
        """How many buffers of the stated size there are: one, or one a rank where each sends its own."""
        return self.num_ranks if self.kind in PAIRED or self.to_next else 1

    @property
    def num_blocks(self) -> int:
        """How many parts of the buffer have a giver and a taker of their own."""
        if self.kind in PAIRED:
            return self.num_ranks**2
        return self.num_ranks if self.kind in OWNED or self.to_next else 1

    @property
    def reduces(self) -> bool:
        """Whether contributions are summed."""
        return _GIVES[self.kind] == "all"

    def total_bytes(self, size_bytes: int) -> int:
        """Return the bytes of all blocks together: `size_bytes`, or every rank's send buffer where each has one."""
        return size_bytes * self.buffers

    def blocks(self, num_chunks: int) -> Ints:
        """Return the block of each chunk when the buffer is cut in `num_chunks`."""
        self.check_chunks(num_chunks)
        return np.arange(num_chunks, dtype=np.int64) // (num_chunks // self.num_blocks)

    def check_chunks(self, num_chunks: int) -> None:
        """Refuse a chunk count that the blocks cannot be cut in."""
        if not 0 < num_chunks <= MAX_CHUNKS:
            raise ScheduleError(f"a strand of {num_chunks:,} chunks is outside 1 to {MAX_CHUNKS:,}.")
        if num_chunks % self.num_blocks:
            raise ScheduleError(
                f"{self.kind} over {self.num_ranks} ranks has {self.num_blocks} blocks, "
                f"which {num_chunks} chunks do not fill evenly.",
                hint=f"Use a multiple of {self.num_blocks} chunks.",
            )

    def givers(self, num_chunks: int, chunk: Ints | None = None) -> Ints:
        """Return, for each chunk (or those asked for), the rank whose data it starts as; `ALL` when all add to it."""
        return self._parties("owner" if self.to_next else _GIVES[self.kind], num_chunks, chunk)

    def takers(self, num_chunks: int, chunk: Ints | None = None) -> Ints:
        """Return, for each chunk (or those asked for), the rank that must end with it, or `ALL`."""
        return self._parties("next" if self.to_next else _TAKES[self.kind], num_chunks, chunk)

    def _parties(self, who: str, num_chunks: int, chunk: Ints | None) -> Ints:
        if who in ("all", "root", "peer"):
            self.check_chunks(num_chunks)
            party = {"all": ALL, "root": self.root, "peer": self.peer}[who]
            return np.full(num_chunks if chunk is None else len(chunk), party, dtype=np.int64)
        block = self.blocks(num_chunks) if chunk is None else chunk // (num_chunks // self.num_blocks)
        if who == "row":
            return block // self.num_ranks
        if who == "next":
            return (block + 1) % self.num_ranks
        return block % self.num_ranks if who == "column" else block

    def to_json(self) -> JsonObject:
        """Return the collective as a JSON object."""
        out: JsonObject = {"kind": str(self.kind), "num_ranks": self.num_ranks}
        if self.kind in ROOTED:
            out["root"] = self.root
        if self.kind is Kind.SEND_RECV and not self.to_next:
            out["peer"] = self.peer
        if self.sizes:
            out["sizes"] = list(self.sizes)
        return out

    def __str__(self) -> str:
        root = f" from {self.root} to {self.peer}" if self.kind is Kind.SEND_RECV else f" root {self.root}"
        ranks = "1 rank" if self.num_ranks == 1 else f"{self.num_ranks} ranks"
        if self.to_next:
            return f"{self.kind} over {ranks}, each to the next"
        return f"{self.kind} over {ranks}" + (root if self.kind in ROOTED else "")


def check_ranks(num_ranks: int) -> None:
    """Refuse a number of ranks that no schedule can have, before anything of that size is made."""
    if num_ranks < 1:
        raise ScheduleError(f"a collective needs at least one rank, not {num_ranks}.")
    if num_ranks > MAX_RANKS:
        raise ScheduleError(
            f"{num_ranks:,} ranks are more than the {MAX_RANKS:,} a schedule can have.",
            hint="Give the collective of one group of ranks.",
        )


def read_kind(kind: str) -> Kind:
    """Return a collective by name; dashes and case do not matter."""
    try:
        return Kind(kind.lower().replace("-", "_"))
    except ValueError:
        raise ScheduleError(f'no collective is called "{kind}".', hint=f"One of: {', '.join(Kind)}.") from None


def split_bytes(size_bytes: int, upper: Ints) -> Ints:
    """Cut `size_bytes` at the cumulative weights `upper`: whole bytes that add up to `size_bytes` exactly.

    Cuts fall at floor(size * upper / total), so no part is more than one byte from its exact share.
    """
    total = int(upper[-1])
    whole, rest = divmod(int(size_bytes), total)
    cuts = whole * upper + rest * upper // total  # rest < total < 2^31: no overflow
    return np.diff(cuts, prepend=0)


def common_weights(shares: list[int] | tuple[int, ...]) -> tuple[int, ...]:
    """Divide integer weights by their common factor, so that equal proportions compare equal."""
    factor = math.gcd(*shares) or 1
    return tuple(share // factor for share in shares)
