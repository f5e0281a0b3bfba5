"""What a rank does with every piece of a synchronised bucket, stage by stage: the description that runs, and is priced.

A piece passes three phases: it is sent (the front thread encodes and posts), reduced (the back thread sums what came
and posts the sum) and collected (the back thread takes the sums of others). With levels all of what is outside the
innermost happens between; in factors the second average happens while the first is collected. `runtime.sync` carries
these stages out and records a span under each one's name; `program.laying` lays them down as tasks, which
`sim.emulate` prices for every rank on any wiring. Other `stages` run, and are priced, as they stand there; a list that
cannot be carried out is refused.

    exchange = BucketProgram(7_000_000, scheme("int8"), (4,))
    exchange.stages                        # encode shard, sum and encode, decode sum
    exchange.pieces[0].messages(0, rank=1) # what rank 1 posts after the first: peer and bytes
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

from syncline.codec.low_rank import LowRank
from syncline.codec.names import scheme as scheme_named
from syncline.codec.scheme import Scheme
from syncline.describe.plain import JsonObject
from syncline.describe.units import show_size
from syncline.errors import ProgramError
from syncline.program.pieces import DEPTH, PIECE_BYTES, equal_bounds, piece_cuts, shard_bounds
from syncline.timeline import SpanKind

DENSE = "fp32"
"""What travels inside levels, and in factors."""


class StagePhase(IntEnum):
    """When a stage is done: SEND on the front thread, the others on the back thread."""

    SEND = 0
    REDUCE = 1
    COLLECT = 2


class Posts(IntEnum):
    """What goes out when a stage is done: to every peer its own shard, or to all of them the own sum."""

    NOTHING = 0
    SHARDS = 1
    SUMS = 2


@dataclass(frozen=True)
class BucketStage:
    """One thing that a rank does with a piece; `awaits` is the stage whose messages must have come, -1: none.

    One that is done `by_peer` is done for one peer after the other, with what has come from that one.
    """

    name: str
    kind: SpanKind
    phase: StagePhase
    level: int = 0
    awaits: int = -1
    posts: Posts = Posts.NOTHING
    by_peer: bool = False
    part: int = 0
    """Of a bucket in factors: 1 in the average of P, 2 in that of Q, 0 what is done with the whole."""


ON_THE_WIRE = {Posts.SHARDS: "shards on the wire", Posts.SUMS: "sums on the wire"}
"""What the time is called from a rank's own posting until the messages of all peers are there."""
ENCODE, SUM, ADD, DECODE = "encode shard", "sum and encode", "decode and sum", "decode sum"
FIRST, MIDDLE, LAST = "P = M Q", "Q = M^T P", "P Q^T"
OPERATIONS: Mapping[str, tuple[Posts, tuple[str, ...]]] = {
    ENCODE: (Posts.SHARDS, ("",)), ADD: (Posts.NOTHING, (ENCODE,)), SUM: (Posts.SUMS, (ENCODE, "")),
    DECODE: (Posts.NOTHING, (SUM,)),
    FIRST: (Posts.NOTHING, ("",)), MIDDLE: (Posts.NOTHING, ("",)), LAST: (Posts.NOTHING, ("",)),
}  # fmt: skip
"""What can be done in a stage: what it posts, and the stage of its level whose messages it awaits ("": none)."""


def awaited(stages: Sequence[BucketStage], stage: BucketStage) -> str:
    """Return the name of the stage whose messages a stage awaits; "": it awaits none."""
    return stages[stage.awaits].name if stage.awaits >= 0 else ""


def exchange_stages(num_levels: int = 1, *, scatter_only: bool = False) -> tuple[BucketStage, ...]:
    """Return the stages of one piece: dense inside each level, encoded at the outermost."""
    if scatter_only:
        return (BucketStage(ENCODE, SpanKind.ENCODE, StagePhase.SEND, posts=Posts.SHARDS, by_peer=True),
                BucketStage(ADD, SpanKind.REDUCE, StagePhase.REDUCE, awaits=0))  # fmt: skip
    return tuple(_level(0, num_levels, 0, (StagePhase.SEND, StagePhase.REDUCE, StagePhase.COLLECT), 0))


def low_rank_stages(num_levels: int = 1) -> tuple[BucketStage, ...]:
    """Return the stages of a bucket in factors: two averages of float32, the second while the first is collected."""
    first = _level(0, num_levels, 1, (StagePhase.SEND, StagePhase.REDUCE, StagePhase.COLLECT), 1)
    second = _level(0, num_levels, 2 + len(first), (StagePhase.COLLECT,) * 3, 2)
    begin = BucketStage(FIRST, SpanKind.ENCODE, StagePhase.SEND)
    middle = BucketStage(MIDDLE, SpanKind.ENCODE, StagePhase.COLLECT)
    return (begin, *first, middle, *second, BucketStage(LAST, SpanKind.DECODE, StagePhase.COLLECT))


def _level(
    level: int, num_levels: int, at: int, phases: tuple[StagePhase, StagePhase, StagePhase], part: int
) -> list[BucketStage]:
    """Return the stages of a level and of all outside it; `at` is the number of the first."""
    send, reduce, collect = phases
    made = [BucketStage(ENCODE, SpanKind.ENCODE, send, level, posts=Posts.SHARDS, by_peer=True, part=part)]
    if level == num_levels - 1:
        made.append(BucketStage(SUM, SpanKind.REDUCE, reduce, level, at, Posts.SUMS, part=part))
    else:
        made.append(BucketStage(ADD, SpanKind.REDUCE, reduce, level, at, part=part))
        made += _level(level + 1, num_levels, at + 2, (reduce,) * 3, part)
        made.append(BucketStage(SUM, SpanKind.REDUCE, reduce, level, posts=Posts.SUMS, part=part))
    made.append(BucketStage(DECODE, SpanKind.DECODE, collect, level, at + len(made) - 1, by_peer=True, part=part))
    return made


@dataclass(frozen=True)
class PieceProgram:
    """A stretch of a bucket under its program: for every rank and stage the messages that it posts."""

    program: BucketProgram
    low: int
    high: int

    @property
    def stages(self) -> tuple[BucketStage, ...]:
        """What is done with it."""
        return self.program.stages

    @property
    def shape(self) -> tuple[int, ...]:
        """The ranks of each level, innermost first."""
        return self.program.shape

    @property
    def factors(self) -> tuple[int, int] | None:
        """The elements of P and of Q, where these travel in place of the piece."""
        return self.program.factors

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return self.high - self.low

    def last_of(self, phase: StagePhase) -> BucketStage | None:
        """Return the last stage of a phase."""
        return next((stage for stage in reversed(self.stages) if stage.phase is phase), None)

    def waits_within(self, phase: StagePhase) -> bool:
        """Tell whether a stage of a phase awaits what peers post in the same phase."""
        inside = (stage for stage in self.stages if stage.phase is phase and stage.awaits >= 0)
        return any(self.stages[stage.awaits].phase is phase for stage in inside)

    @property
    def is_ordered(self) -> bool:
        """Whether it is collected before the next piece is reduced: both would wait for the same phase of peers."""
        return self.waits_within(StagePhase.REDUCE) and self.waits_within(StagePhase.COLLECT)

    def num_peers(self, stage: int) -> int:
        """Return how many ranks a stage deals with, beside the own one."""
        return self.shape[self.stages[stage].level] - 1

    def bounds(self, stage: int, rank: int) -> list[tuple[int, int]]:
        """Return the shards that a rank knows at a stage's level, in elements of what is exchanged there."""
        kind, elements = self.stages[stage], self.elements
        if self.program.scatter_only:
            return equal_bounds(elements, self.shape[-1])
        if self.factors is not None and kind.part:
            elements = self.factors[kind.part - 1]
        for level in range(kind.level):
            low, high = shard_bounds(elements, self.shape[level])[self._place(rank, level)]
            elements = high - low
        return shard_bounds(elements, self.shape[kind.level])

    def messages(self, stage: int, rank: int) -> list[tuple[int, int]]:
        """Return (peer, bytes) of what a rank posts when a stage is done, nearest peer first."""
        kind = self.stages[stage]
        if kind.posts is Posts.NOTHING:
            return []
        sizes = [high - low for low, high in self.bounds(stage, rank)]
        outermost = kind.level == len(self.shape) - 1 and self.factors is None
        bytes_of = (self.program.scheme if outermost else scheme_named(DENSE)).wire_bytes
        own, size, stride = self._place(rank, kind.level), self.shape[kind.level], math.prod(self.shape[: kind.level])
        found = []
        for k in range(1, size):
            place = (own + k) % size
            found.append((rank + (place - own) * stride, bytes_of(sizes[place if kind.posts is Posts.SHARDS else own])))
        return found

    def _place(self, rank: int, level: int) -> int:
        return rank // math.prod(self.shape[:level]) % self.shape[level]


@dataclass(frozen=True)
class BucketProgram:
    """How one bucket is synchronised: pieces, their stages, how many pieces are under way.

    `shape` are the ranks of each level, innermost first; one number: there is one level.
    """

    elements: int
    scheme: Scheme
    shape: tuple[int, ...]
    piece_bytes: int = PIECE_BYTES
    depth: int = DEPTH
    scatter_only: bool = False
    factors: tuple[int, int] | None = None
    """The elements of P and of Q, where the codec factors the bucket."""
    borders: tuple[int, ...] = ()
    """Elements at which a stretch begins that is encoded apart from the one before."""
    stages: tuple[BucketStage, ...] = ()
    """What is done with each piece, in order; left out: as the codec and the levels want it."""

    def __post_init__(self) -> None:
        if self.elements < 0 or not self.shape or min(self.shape) < 1:
            raise ProgramError(f"a bucket of {self.elements} elements on levels of {self.shape} ranks is impossible.")
        in_factors, num_levels = isinstance(self.scheme, LowRank), len(self.shape)
        if in_factors and self.factors is None:  # vectors go along as they are, with P
            object.__setattr__(self, "factors", (self.elements, 0))
        if not self.stages:
            usual = exchange_stages(num_levels, scatter_only=self.scatter_only)
            object.__setattr__(self, "stages", low_rank_stages(num_levels) if in_factors else usual)
        for number, stage in enumerate(self.stages):
            posts, awaits = OPERATIONS.get(stage.name, (None, ()))
            if stage.posts is not posts or stage.awaits >= number or awaited(self.stages, stage) not in awaits:
                raise ProgramError(
                    f'stage {number} ("{stage.name}") cannot be carried out: it posts {stage.posts.name.lower()} and '
                    f"awaits stage {stage.awaits}.",
                    hint=f"Stages are those of program/stages.py: {', '.join(OPERATIONS)}.",
                )

    @property
    def num_ranks(self) -> int:
        """All ranks."""
        return math.prod(self.shape)

    @cached_property
    def cuts(self) -> list[int]:
        """Where the bucket is cut: at its borders, and into pieces; one in factors stays whole."""
        if isinstance(self.scheme, LowRank):
            return [0, self.elements]
        edges = [0, *self.borders, self.elements]
        if self.scatter_only:
            return edges
        return [
            0,
            *(low + cut for low, high in pairwise(edges) for cut in piece_cuts(high - low, self.piece_bytes)[1:]),
        ]

    @cached_property
    def pieces(self) -> tuple[PieceProgram, ...]:
        """The pieces in order."""
        return tuple(PieceProgram(self, low, high) for low, high in pairwise(self.cuts))

    def sent_bytes(self, rank: int, level: int | None = None) -> int:
        """Return what a rank posts for the whole bucket, of one level or of all."""
        return sum(
            size
            for piece in self.pieces
            for number, stage in enumerate(piece.stages)
            if level in (None, stage.level)
            for _, size in piece.messages(number, rank)
        )

    def to_json(self) -> JsonObject:
        """Return it as plain values."""
        return {
            "elements": self.elements, "codec": self.scheme.name, "levels": list(self.shape), "depth": self.depth,
            "pieces": [piece.elements for piece in self.pieces],
            "stages": [{"name": stage.name, "phase": stage.phase.name.lower(), "level": stage.level,
                        "awaits": stage.awaits, "posts": stage.posts.name.lower()} for stage in self.stages],
            "sent_bytes": self.sent_bytes(0),
        }  # fmt: skip

    def __str__(self) -> str:
        stages = ", ".join(stage.name for stage in self.stages)
        ranks = " x ".join(map(str, reversed(self.shape)))
        return (f"{self.elements:,} elements in {self.scheme.name}, {ranks} ranks: {len(self.pieces)} pieces, "
                f"{self.depth} under way; {stages}; {show_size(self.sent_bytes(0))} sent by a rank")  # fmt: skip
