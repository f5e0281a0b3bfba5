"""What a schedule costs, counted from its moves: rounds, bytes each rank sends, bytes between each pair.

Nothing here knows a formula of any family. Rounds that repeat are counted in one go (a ring's n - 1 repetitions are
one sum over a circle of chunks), so counting costs what the factored form does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from syncline.errors import ScheduleError
from syncline.schedule.collective import Ints
from syncline.schedule.kernel import Stage
from syncline.schedule.moves import Round
from syncline.schedule.schedule import NO_HOME, Schedule, Strand

MAX_PAIRS = 1 << 25


@dataclass(frozen=True, eq=False)
class VertexTraffic:
    """Bytes from vertex `src[i]` to vertex `dst[i]` over the whole schedule; each pair once."""

    src: Ints
    dst: Ints
    nbytes: Ints

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True)
class CountedCost:
    """Rounds, and bytes sent as shares of the buffer: by the rank that sends most, and by all vertices together."""

    rounds: int
    sent_max: Fraction
    sent_total: Fraction


def sent_bytes(schedule: Schedule, size_bytes: int) -> Ints:
    """Return the bytes each vertex sends to other devices for a buffer of `size_bytes`.

    A helper that lives with a rank sends from that rank's device and is counted there.
    """
    out = np.zeros(schedule.num_vertices, dtype=np.int64)
    for number, strand in enumerate(schedule.strands):
        out += _sent(schedule, strand, schedule.whole_chunk_bytes(number, size_bytes))
    return out


def counted_cost(schedule: Schedule) -> CountedCost:
    """Return rounds and shares sent, counted from the moves of a schedule."""
    whole = schedule.collective.buffers
    units = [chunk_units(schedule, strand) for strand in schedule.strands]
    scale = [strand.share * whole / int(unit.sum()) for strand, unit in zip(schedule.strands, units, strict=True)]
    common = lcm(*(factor.denominator for factor in scale))
    sent = np.zeros(schedule.num_vertices, dtype=np.int64)
    for strand, unit, factor in zip(schedule.strands, units, scale, strict=True):
        sent += _sent(schedule, strand, unit) * int(factor * common)
    most = int(sent[: schedule.num_ranks].max())
    return CountedCost(schedule.num_rounds, Fraction(most, common), Fraction(int(sent.sum()), common))


def traffic(schedule: Schedule, size_bytes: int) -> VertexTraffic:
    """Return the bytes between every pair of vertices on different devices."""
    _check_pairs(schedule)
    home = schedule.device_rank()
    parts: list[tuple[Ints, Ints, Ints]] = []
    for number, strand in enumerate(schedule.strands):
        sizes = schedule.whole_chunk_bytes(number, size_bytes)
        parts += [pair for stage in strand.stages for pair in _stage_pairs(stage, sizes)]
    none = np.zeros(0, dtype=np.int64)
    src, dst, nbytes = (np.concatenate([none, *(part[k] for part in parts)]) for k in range(3))
    keep = _leaves(home, src, dst) & (nbytes > 0)
    keys, at = np.unique(src[keep] * schedule.num_vertices + dst[keep], return_inverse=True)
    total = np.zeros(len(keys), dtype=np.int64)
    np.add.at(total, at, nbytes[keep])
    return VertexTraffic(keys // schedule.num_vertices, keys % schedule.num_vertices, total)


def _check_pairs(schedule: Schedule) -> None:
    """Refuse to list more pairs than fit, before any is made."""
    pairs = 0
    for strand in schedule.strands:
        for stage in strand.stages:
            rows = sum(e.num_rows * (1 if e.fixed else e.repeat) for e in stage.kernel.rounds)
            pairs += rows * stage.num_groups
    if pairs > MAX_PAIRS:
        raise ScheduleError(
            f"{schedule.name}: {pairs:,} pairs of ranks exchange data, more than {MAX_PAIRS:,}.",
            hint="Count a smaller schedule of the same family.",
        )


def _leaves(home: Ints, src: Ints, dst: Ints) -> NDArray[np.bool_]:
    """Say which moves leave the device they start on."""
    away: NDArray[np.bool_] = (home[src] != home[dst]) | (home[src] == NO_HOME)
    return away


def chunk_units(schedule: Schedule, strand: Strand) -> Ints:
    """Return the relative size of each chunk of a strand as whole numbers."""
    if strand.weights:
        return np.asarray(strand.weights, dtype=np.int64)
    if not schedule.collective.sizes:
        return np.ones(strand.num_chunks, dtype=np.int64)
    return np.asarray(schedule.collective.sizes, dtype=np.int64)[schedule.collective.blocks(strand.num_chunks)]


def _sent(schedule: Schedule, strand: Strand, sizes: Ints) -> Ints:
    out = np.zeros(schedule.num_vertices, dtype=np.int64)
    home = schedule.device_rank()
    local = bool((home[schedule.num_ranks :] != NO_HOME).any())
    for stage in strand.stages:
        for src, dst, nbytes in _stage_pairs(stage, sizes, need_dst=local):
            if local:
                keep = _leaves(home, src, dst)
                src, nbytes = np.where(home[src] == NO_HOME, src, home[src])[keep], nbytes[keep]
            np.add.at(out, src, nbytes)
    return out


def _stage_pairs(stage: Stage, sizes: Ints, *, need_dst: bool = True) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield (src, dst, bytes) over all groups; unless destinations are needed, rows whose source stays are summed."""
    bases, which = np.unique(stage.base, return_inverse=True)
    places = stage.chunk_offsets()[None, :, None] + stage.span_offsets()[None, None, :]
    upper = np.zeros((len(bases), stage.kernel.num_chunks + 1), dtype=np.int64)
    for number, base in enumerate(bases):  # base by base: a stage over all ranks at once has many chunks
        np.cumsum(sizes[base + places[0]].sum(axis=1), out=upper[number, 1:])
    for entry in stage.kernel.rounds:
        if not entry.num_rows:
            continue
        fixed = entry.fixed or (not need_dst and entry.src_step == 0)
        for first, last in [(0, entry.repeat)] if fixed else ((j, j + 1) for j in range(entry.repeat)):
            src, dst = entry.vertices(first)
            nbytes = _row_bytes(entry, upper, first, last)[which]
            yield stage.members[:, src].ravel(), stage.members[:, dst].ravel(), nbytes.ravel()


def _row_bytes(entry: Round, upper: Ints, first: int, last: int) -> Ints:
    """Return what each row moves in repetitions first .. last - 1, for each of the size tables `upper`."""
    low = entry.chunk + first * entry.chunk_step
    many = last - first
    if not entry.wrap:
        return _pipeline_bytes(entry, upper, first, last)
    if entry.chunk_step == 0 or many == 1:
        return _arc(upper, entry, low, entry.count) * many
    if abs(entry.chunk_step) == 1 and (entry.count == 1).all():
        start = low if entry.chunk_step > 0 else low - (many - 1)
        return _arc(upper, entry, start, np.full(entry.num_rows, many))
    return _sum([_row_bytes(entry, upper, j, j + 1) for j in range(first, last)])


def _pipeline_bytes(entry: Round, upper: Ints, first: int, last: int) -> Ints:
    if abs(entry.chunk_step) != 1 and last - first > 1:
        return _sum([_pipeline_bytes(entry, upper, j, j + 1) for j in range(first, last)])
    ends = entry.chunk + entry.chunk_step * first, entry.chunk + entry.chunk_step * (last - 1)
    low = np.clip(np.minimum(*ends), 0, entry.window)
    high = np.clip(np.maximum(*ends) + 1, 0, entry.window)
    moved: Ints = upper[:, entry.block + high] - upper[:, entry.block + low]
    return moved


def _sum(parts: list[Ints]) -> Ints:
    total = np.zeros_like(parts[0])
    for part in parts:
        total += part
    return total


def _arc(upper: Ints, entry: Round, start: Ints, length: Ints) -> Ints:
    """Return the bytes of `length` chunks from `start` on, round the window as often as it takes."""
    turns, rest = np.divmod(length, entry.window)
    low = start % entry.window
    block, end = entry.block, low + rest
    circle = upper[:, block + entry.window] - upper[:, block]
    ahead = upper[:, block + np.minimum(end, entry.window)] - upper[:, block + low]
    around = upper[:, block + np.maximum(end - entry.window, 0)] - upper[:, block]
    total: Ints = turns * circle + ahead + around
    return total
