"""The rounds of a program as a simulator sees them: who sends which share of the buffer to whom, how many times.

Sizes stay out: a flow moves a `share` of the buffer, so one expansion serves every size. Shares are exact fractions of
the buffer; the rounding of chunks to whole bytes (less than a byte a chunk) is not simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SimulationError
from syncline.schedule import Schedule, Strand
from syncline.schedule.collective import Ints
from syncline.schedule.kernel import Stage
from syncline.schedule.moves import Round
from syncline.timeline.columns import sum_by

Floats = NDArray[np.float64]
MAX_FLOWS = 40_000_000
"""Flows of all phases together that are kept in memory; an all-to-all of 4,096 ranks has 17 million."""


@dataclass(frozen=True, eq=False)
class FlowPhase:
    """The same round `repeat` times: flow i carries `share[i]` of the buffer from `src[i]` to `dst[i]`.

    `groups` lists the vertices that take part, one independent group a row.
    """

    src: Ints
    dst: Ints
    share: Floats
    repeat: int
    groups: Ints

    def __len__(self) -> int:
        return len(self.src)

    @cached_property
    def once(self) -> bool:
        """Whether no vertex sends two of the flows, and none receives two."""
        return len(np.unique(self.src)) == len(self.src) and len(np.unique(self.dst)) == len(self.dst)


class FlowLane(NamedTuple):
    """One strand: its channel, its rail and its phases, one after the other."""

    channel: int
    rail: int | None
    phases: tuple[FlowPhase, ...]

    @property
    def num_flows(self) -> int:
        """Count the flows of all rounds."""
        return sum(len(phase) * phase.repeat for phase in self.phases)

    @property
    def num_rounds(self) -> int:
        """Count the rounds."""
        return sum(phase.repeat for phase in self.phases)


def lanes(schedule: Schedule) -> tuple[FlowLane, ...]:
    """Return every strand of a schedule as phases."""
    found: list[FlowLane] = []
    known: dict[tuple[object, ...], tuple[FlowPhase, ...]] = {}
    for number, strand in enumerate(schedule.strands):
        same = (strand.share, strand.pieces, *(id(stage) for stage in strand.stages))
        key = same if _is_even(schedule, strand) else (number,)
        if key not in known:
            known[key] = in_pieces(tuple(_phases(schedule, number)), strand.pieces)
        found.append(FlowLane(strand.channel, strand.rail, known[key]))
    total = sum(len(phase) for lane in found for phase in lane.phases)
    if total > MAX_FLOWS:
        raise SimulationError(f"{schedule.name} has {total:,} different flows, more than the {MAX_FLOWS:,} that fit.",
                              hint="Use fewer ranks, a factored family, or --level analytic.")  # fmt: skip
    return tuple(found)


def _is_even(schedule: Schedule, strand: Strand) -> bool:
    return not schedule.collective.sizes and not strand.weights


def _phases(schedule: Schedule, number: int) -> Iterator[FlowPhase]:
    strand = schedule.strands[number]
    many = schedule.collective.buffers
    even = float(strand.share) * many / strand.num_chunks if _is_even(schedule, strand) else None
    shares = _chunk_shares(schedule, number) if even is None else np.empty(0)
    for stage in strand.stages:
        for entry in stage.kernel.rounds:
            yield from _of_entry(stage, entry, even, shares)


def _chunk_shares(schedule: Schedule, number: int) -> Floats:
    """Return each chunk's share of the buffer, from a layout fine enough to carry the proportions."""
    fine = 1 << 40
    return schedule.whole_chunk_bytes(number, fine) / fine


def in_pieces(phases: tuple[FlowPhase, ...], pieces: int) -> tuple[FlowPhase, ...]:
    """Return the rounds in which one piece of the buffer after the other goes through `phases`, one round apart."""
    if pieces == 1 or not phases:
        return phases
    of_round = np.repeat(np.arange(len(phases)), [phase.repeat for phase in phases])
    found: list[FlowPhase] = []
    before: tuple[int, ...] = ()
    for t in range(len(of_round) + pieces - 1):
        at_work = np.bincount(of_round[max(0, t - pieces + 1) : t + 1], minlength=len(phases))
        now = tuple(at_work.tolist())
        if now == before:
            found[-1] = replace(found[-1], repeat=found[-1].repeat + 1)
        else:
            found.append(_together([(phases[k], now[k] / pieces) for k in np.flatnonzero(at_work)]))
        before = now
    return tuple(found)


def _together(parts: list[tuple[FlowPhase, float]]) -> FlowPhase:
    """Return several rounds as one, each with a part of its bytes; messages of one pair travel as one."""
    if len(parts) == 1:
        phase, part = parts[0]
        return FlowPhase(phase.src, phase.dst, phase.share * part, 1, phase.groups)
    src, dst = (np.concatenate([getattr(phase, end) for phase, _ in parts]) for end in ("src", "dst"))
    share = np.concatenate([phase.share * part for phase, part in parts])
    members = np.unique(np.concatenate([phase.groups.ravel() for phase, _ in parts]))
    return _merged(src, dst, share, 1, members[None, :])


def _of_entry(stage: Stage, entry: Round, even: float | None, shares: Floats) -> Iterator[FlowPhase]:
    if even is None:
        for repetitions in entry.rounds():
            parts = [stage.spread(entry.step(j)) for j in repetitions]
            src, dst, chunk = (
                np.concatenate([getattr(part, end) for part in parts]) for end in ("src", "dst", "chunk")
            )
            if len(src):
                yield _merged(src, dst, shares[chunk], 1, stage.members)
        return
    each = even * stage.span_size
    if entry.at_once:
        ends = [entry.vertices(j) for j in range(entry.repeat)]
        if entry.wrap and ends:
            src, dst = (np.concatenate([pair[k] for pair in ends]) for k in (0, 1))
            yield _spread(stage, src, dst, np.tile(entry.count, entry.repeat).astype(np.float64) * each, 1)
        return
    if not entry.fixed:
        for j in range(entry.repeat):
            moves = entry.step(j)
            if len(moves):
                yield _spread(stage, moves.src, moves.dst, np.full(len(moves), each), 1)
    elif entry.wrap:
        if entry.repeat and len(entry.src):
            yield _spread(stage, entry.src, entry.dst, entry.count.astype(np.float64) * each, entry.repeat)
    else:
        yield from _pipeline(stage, entry, each)


def _pipeline(stage: Stage, entry: Round, each: float) -> Iterator[FlowPhase]:
    """A pipeline that fills and drains: cut where the set of active rows changes."""
    first, last = entry.active_range()
    live = first <= last
    cuts = np.unique(np.concatenate((first[live], last[live] + 1)))
    for begin, end in pairwise(cuts.tolist()):
        rows = np.flatnonzero(live & (first <= begin) & (last >= begin))
        if len(rows):
            yield _spread(
                stage, entry.src[rows], entry.dst[rows], entry.count[rows].astype(np.float64) * each, int(end - begin)
            )


def _spread(stage: Stage, src: Ints, dst: Ints, share: Floats, repeat: int) -> FlowPhase:
    """Return local flows as flows of every group; messages of one pair in one round travel as one."""
    width = stage.kernel.num_vertices
    key, at = np.unique(src * width + dst, return_inverse=True)
    if len(key) < len(src):
        src, dst, share = key // width, key % width, sum_by(at, share, len(key))
    keep = np.flatnonzero(share > 0)
    members = stage.members
    return FlowPhase(
        members[:, src[keep]].ravel(),
        members[:, dst[keep]].ravel(),
        np.tile(share[keep], len(members)),
        repeat,
        members,
    )


def _merged(src: Ints, dst: Ints, share: Floats, repeat: int, groups: Ints) -> FlowPhase:
    width = int(max(src.max(initial=0), dst.max(initial=0))) + 1
    key, at = np.unique(src * width + dst, return_inverse=True)
    total = sum_by(at, share, len(key))
    keep = np.flatnonzero(total > 0)
    return FlowPhase(key[keep] // width, key[keep] % width, total[keep], repeat, groups)
