"""A schedule: one collective as rounds of moves, factored so that thousands of ranks stay small.

    Schedule -> strands  side by side, each on its own share of the buffer, channel and rail
             -> stages   one after the other
             -> kernel   rounds of moves over a small group, done by many groups at once

A strand may be pipelined: each of its chunks is cut in `pieces`, and while one piece is in its last round the others
follow one round apart. Stages of different levels then work at the same time.

Rules of execution, which `verify` proves against and every executor keeps:
- a vertex starts round k of a strand when its own part of round k - 1 is done (strands do not wait for each other);
- all sends of a round read what was there before the round; a copy lands in place, a reduction is added after the
  vertex's sends of the round are done;
- a vertex posts all its sends and receives of a round together, then waits for them: so no order of ranks deadlocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, repeat
from math import prod

import numpy as np

from syncline.errors import ScheduleError
from syncline.schedule.collective import MAX_CHUNKS, MAX_RANKS, OWNED, PAIRED, Collective, Ints, split_bytes
from syncline.schedule.kernel import Axes, Stage, digits
from syncline.schedule.moves import Moves

NO_HOME = -1
MAX_CHANNELS = 1024


@dataclass(frozen=True, eq=False)
class Strand:
    """A share of every block of the buffer, on a channel of its own, in stages.

    `weights` makes the chunks uneven (collectives of one block only: the others have `Collective.sizes`). With
    `pieces` the stages are done by one piece of every chunk after the other, each starting one round later than the
    one before: piece p does round t - p of the stages in round t. Piece p of chunk c is chunk `c * pieces + p`.
    """

    stages: tuple[Stage, ...]
    num_chunks: int
    share: Fraction = Fraction(1)
    channel: int = 0
    rail: int | None = None
    weights: tuple[int, ...] = ()
    pieces: int = 1

    @property
    def stage_rounds(self) -> int:
        """Count the rounds that one piece goes through."""
        return sum(stage.kernel.num_rounds for stage in self.stages)

    @property
    def num_rounds(self) -> int:
        rounds = self.stage_rounds
        return rounds + self.pieces - 1 if rounds else 0

    @property
    def num_moves(self) -> int:
        return sum(stage.num_moves for stage in self.stages) * self.pieces

    def steps(self) -> Iterator[Moves]:
        """Yield the single moves of one round after the other, in vertices and chunks of the strand."""
        unit = (moves for stage in self.stages for moves in stage.steps())
        return unit if self.pieces == 1 else in_pieces(unit, self.pieces)

    def whole(self) -> Strand:
        """Return the strand with all pieces of a chunk as one."""
        return replace(self, pieces=1)


def in_pieces(unit: Iterator[Moves], pieces: int) -> Iterator[Moves]:
    """Yield the rounds in which piece p does round t - p of `unit`, one piece behind the other."""
    nothing = Moves.join([])
    window: deque[Moves] = deque(maxlen=pieces)
    for moves in chain(unit, repeat(nothing, pieces - 1)):
        window.appendleft(moves)
        yield Moves.join([_piece(part, p, pieces) for p, part in enumerate(window) if len(part)])


def _piece(moves: Moves, piece: int, pieces: int) -> Moves:
    return Moves(moves.src, moves.dst, moves.chunk * pieces + piece, moves.op)


@dataclass(frozen=True, eq=False)
class Schedule:
    """How one collective is done.

    Vertices `num_ranks` and up are helpers. `homes` says which rank's device each helper lives on, for scratch
    buffers; servers and switches that are devices of their own have `NO_HOME` (the default).
    """

    name: str
    collective: Collective
    strands: tuple[Strand, ...]
    num_helpers: int = 0
    homes: tuple[int, ...] = ()
    family: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self.num_helpers <= MAX_RANKS:
            raise ScheduleError(f"{self.num_helpers} helpers are outside 0 to {MAX_RANKS}.")
        if self.homes and (
            len(self.homes) != self.num_helpers or not all(NO_HOME <= h < self.num_ranks for h in self.homes)
        ):
            raise ScheduleError(f"homes must name a rank (or {NO_HOME}) for each of the {self.num_helpers} helpers.")
        if sum(strand.share for strand in self.strands) != 1 or any(s.share <= 0 for s in self.strands):
            total = sum((strand.share for strand in self.strands), Fraction(0))
            raise ScheduleError(f"the shares of the strands must be positive and add up to 1, not {total}.")
        for number, strand in enumerate(self.strands):
            _check_strand(self, strand, f"strand {number}")

    @property
    def num_ranks(self) -> int:
        return self.collective.num_ranks

    @property
    def num_vertices(self) -> int:
        return self.num_ranks + self.num_helpers

    @property
    def num_rounds(self) -> int:
        """Count the rounds of the longest strand: strands run side by side."""
        return max((strand.num_rounds for strand in self.strands), default=0)

    @property
    def num_moves(self) -> int:
        """Count the moves of single chunks over all strands."""
        return sum(strand.num_moves for strand in self.strands)

    def chunk_bytes(self, strand: int, size_bytes: int) -> Ints:
        """Return the bytes of each chunk of a strand; over all strands they add up to the buffer exactly."""
        return self.chunk_layout(strand, size_bytes)[1]

    def chunk_layout(self, strand: int, size_bytes: int) -> tuple[Ints, Ints]:
        """Return where each chunk of a strand starts in the buffer, and its bytes.

        The buffer is cut in the collective's blocks, each block in the strands' shares, each share in chunks.
        """
        if size_bytes < 0:
            raise ScheduleError(f"a buffer cannot have {size_bytes} bytes.")
        collective, part = self.collective, self.strands[strand]
        blocks = _cumulative(collective.sizes or (1,) * collective.num_blocks)
        block_bytes = split_bytes(collective.total_bytes(size_bytes), blocks)
        low = sum((other.share for other in self.strands[:strand]), Fraction(0))
        first = _scaled(block_bytes, low)
        share = _scaled(block_bytes, low + part.share) - first
        per_block = part.num_chunks // collective.num_blocks
        upper = _cumulative(part.weights or (1,) * per_block, part.pieces)
        whole, rest = np.divmod(share, upper[-1])
        cuts = whole[:, None] * upper + rest[:, None] * upper // upper[-1]
        nbytes = np.diff(cuts, prepend=0, axis=1)
        start = np.cumsum(block_bytes) - block_bytes + first
        return (start[:, None] + cuts - nbytes).ravel(), nbytes.ravel()

    def whole_chunk_bytes(self, strand: int, size_bytes: int) -> Ints:
        """Return the bytes of each chunk of a strand with all its pieces together."""
        pieces = self.strands[strand].pieces
        total: Ints = self.chunk_bytes(strand, size_bytes).reshape(-1, pieces).sum(axis=1)
        return total

    def device_rank(self) -> Ints:
        """Return, per vertex, the rank on whose device it lives, or `NO_HOME`."""
        homes = self.homes or (NO_HOME,) * self.num_helpers
        return np.concatenate([np.arange(self.num_ranks), np.asarray(homes, dtype=np.int64)])

    def rank_moves(self, rank: int) -> Iterator[tuple[int, int, Moves]]:
        """Yield (strand, round, the moves this vertex sends or receives), expanding only this vertex's groups."""
        for number, strand in enumerate(self.strands):
            unit = (moves for stage in strand.stages for moves in _moves_of(stage, rank))
            for k, moves in enumerate(unit if strand.pieces == 1 else in_pieces(unit, strand.pieces)):
                if len(moves):
                    yield number, k, moves

    def __str__(self) -> str:
        return f"{self.name}: {self.collective}, {self.num_rounds} rounds, {self.num_moves} moves"


def _moves_of(stage: Stage, vertex: int) -> Iterator[Moves]:
    """Yield what one vertex sends or receives, one round of the stage after the other."""
    mine = _only_groups_of(stage, vertex)
    if mine is None:
        yield from repeat(Moves.join([]), stage.kernel.num_rounds)
        return
    for moves in mine.steps():
        yield moves.pick(np.flatnonzero((moves.src == vertex) | (moves.dst == vertex)))


def _only_groups_of(stage: Stage, vertex: int) -> Stage | None:
    rows = np.flatnonzero((stage.members == vertex).any(axis=1))
    if not len(rows):
        return None
    return Stage(stage.kernel, stage.members[rows], stage.base[rows], stage.index, stage.spans)


def _cumulative(weights: tuple[int, ...], pieces: int = 1) -> Ints:
    return np.cumsum(np.repeat(np.asarray(weights, dtype=np.int64), pieces))


def _scaled(sizes: Ints, share: Fraction) -> Ints:
    whole, rest = np.divmod(sizes, share.denominator)
    out: Ints = whole * share.numerator + rest * share.numerator // share.denominator
    return out


def _check_strand(schedule: Schedule, strand: Strand, where: str) -> None:
    if strand.share.denominator >= 1 << 31:
        raise ScheduleError("the share's denominator must stay below 2^31.", where=where)
    if strand.pieces < 1:
        raise ScheduleError(f"a chunk has at least one piece, not {strand.pieces}.", where=where)
    schedule.collective.check_chunks(strand.num_chunks)
    schedule.collective.check_chunks(strand.num_chunks * strand.pieces)
    if strand.weights:
        if schedule.collective.kind in OWNED | PAIRED or schedule.collective.to_next:
            raise ScheduleError(f"{schedule.collective.kind} takes its uneven sizes from the collective.", where=where)
        if (
            len(strand.weights) != strand.num_chunks
            or min(strand.weights) < 0
            or not (0 < sum(strand.weights) * strand.pieces < 1 << 31)
        ):
            raise ScheduleError(f"{strand.num_chunks} chunks need as many weights, not negative, that add up to less "
                                f"than 2^31.", where=where)  # fmt: skip
    for number, stage in enumerate(strand.stages):
        _check_stage(schedule, strand, stage, f"{where} stage {number}")


def _check_stage(schedule: Schedule, strand: Strand, stage: Stage, where: str) -> None:
    ranks, helpers = stage.members[:, : stage.kernel.num_ranks], stage.members[:, stage.kernel.num_ranks :]
    for column, low, high, what in (
        (ranks, 0, schedule.num_ranks, "rank"),
        (helpers, schedule.num_ranks, schedule.num_vertices, "helper"),
    ):
        if column.size and (column.min() < low or column.max() >= high):
            bad = int(column.min()) if column.min() < low else int(column.max())
            raise ScheduleError(f"{what} {bad} of a group is outside {low} to {high - 1}.", where=where)
    together = np.sort(stage.members, axis=1)
    if (together[:, 1:] == together[:, :-1]).any():
        row = int(np.flatnonzero((together[:, 1:] == together[:, :-1]).any(axis=1))[0])
        raise ScheduleError(f"group {row} has the same vertex twice.", where=where)
    reach = sum((count - 1) * stride for count, stride in (*stage.index, *stage.spans))
    if stage.base.size and (stage.base.min() < 0 or stage.base.max() + reach >= min(strand.num_chunks, MAX_CHUNKS)):
        raise ScheduleError(f"chunks {stage.base.min()} to {stage.base.max() + reach} are outside the strand's "
                            f"{strand.num_chunks}.", where=where)  # fmt: skip
    if not _distinct((*stage.index, *stage.spans), strand.num_chunks):
        raise ScheduleError("two local chunks map to the same chunk of the strand.", where=where)


def _distinct(axes: Axes, limit: int) -> bool:
    """Whether the digits number as many different chunks as they have values."""
    reach = 0
    for count, stride in sorted(axes, key=lambda axis: axis[1]):
        if count > 1 and stride <= reach:
            values = prod(count for count, _ in axes)
            return values <= limit and len(np.unique(digits(axes))) == values
        reach += (count - 1) * stride
    return True


def alike(stages: tuple[Stage, ...], num_chunks: int, channels: int) -> tuple[Strand, ...]:
    """Return as many equal strands as channels, each doing the same stages on its share of the buffer."""
    if not 1 <= channels <= MAX_CHANNELS:
        raise ScheduleError(f"{channels} channels are outside 1 to {MAX_CHANNELS}.")
    return tuple(Strand(stages, num_chunks, Fraction(1, channels), channel=c) for c in range(channels))


def pipelined(schedule: Schedule, pieces: int) -> Schedule:
    """Return the schedule with each chunk cut in `pieces` that follow each other one round apart.

    For S rounds that need U when done one after the other, and T on the busiest link, the time falls from U towards T:
    about (S + p - 1) latencies + U/p + (1 - 1/p) T. The proof of the schedule is the proof of every piece.
    """
    if pieces < 1:
        raise ScheduleError(f"a pipeline has at least one chunk, not {pieces}.")
    return replace(schedule, strands=tuple(replace(strand, pieces=pieces) for strand in schedule.strands))


def reordered(schedule: Schedule, order: Ints, root: int = 0) -> Schedule:
    """Return the schedule with rank `order[r]` for rank r; for collectives in which no rank owns a block."""
    goal = schedule.collective
    if (
        goal.kind in OWNED | PAIRED
        or goal.to_next
        or schedule.num_helpers
        or sorted(order.tolist()) != list(range(schedule.num_ranks))
    ):
        raise ScheduleError(f"{schedule.name}: only ranks that own no block can change places, each with one other.")
    strands = tuple(
        replace(strand, stages=tuple(replace(stage, members=order[stage.members]) for stage in strand.stages))
        for strand in schedule.strands
    )
    return replace(schedule, collective=replace(goal, root=root), strands=strands)
