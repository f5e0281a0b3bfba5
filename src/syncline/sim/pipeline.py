"""Into how many chunks a buffer of a given size is best cut, and a program cut so.

A program of S rounds whose rounds need U seconds on their own links one after the other, and whose busiest link needs T
in all, takes about

    A + U/c + (c - 1) max(T/c + a, P)

with c chunks that follow each other one round apart, where A is the latency of all S rounds (at most S a), a that of
the longest, and P what the busiest sender needs to post a chunk's messages: the first chunk goes through alone, then
one comes out every T/c + a, or P. The best c is near sqrt((U - T) / a), and never far above T/P. Where U = T (a ring)
cutting gains nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.errors import SimulationError
from syncline.program.program import ProgramStep
from syncline.schedule.schedule import pipelined
from syncline.sim.analytic import link_need_s
from syncline.sim.flow.fold import barrier_s
from syncline.sim.flow.rounds import FlowLane, FlowPhase, in_pieces
from syncline.sim.flow.wired import Longs, WiredProgram, with_posting

MAX_CHUNKS = 128
MAX_FLOWS = 1_000_000
"""Flows of a pipeline that `auto` tries; past this fewer chunks are taken."""

MAX_CUT_FLOWS = 8_000_000
"""Flows of a pipeline whose number of chunks the user gives."""

GAIN = 1.02
"""A pipeline is tried where the rounds one after the other need this much more than the busiest link."""

FEW_FLOWS = 4_000
"""Programs with so few flows are also priced in more and in fewer chunks than the guess."""

_UNIT = 1 << 30
_CHUNKS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, MAX_CHUNKS)


@dataclass(frozen=True)
class ChunkCosts:
    """What decides the number of chunks of one program: rounds, latencies, seconds a byte, and posting its messages."""

    rounds: int
    latency_s: float
    round_latency_s: float
    alone_s_per_byte: float
    busiest_s_per_byte: float
    flows: int
    posting_s: float = 0.0

    @property
    def overlaps(self) -> bool:
        """Whether rounds of several chunks could overlap to any use."""
        return self.rounds > 1 and self.alone_s_per_byte > GAIN * self.busiest_s_per_byte

    def time_s(self, size_bytes: int, chunks: int) -> float:
        """Return the quick guess."""
        if chunks == 1:
            return self.latency_s + self.alone_s_per_byte * size_bytes
        # Rounds inside a site do not wait as long as those between sites.
        through = min(self.rounds * self.round_latency_s, self.latency_s)
        first = through + self.alone_s_per_byte * size_bytes / chunks
        each = self.busiest_s_per_byte * size_bytes / chunks + self.round_latency_s
        return max(first + (chunks - 1) * max(each, self.posting_s), self.busiest_s_per_byte * size_bytes)

    def guess(self, size_bytes: int) -> int:
        """Return how many chunks look best."""
        if not self.overlaps:
            return 1
        most = max(1, MAX_FLOWS // max(1, self.flows))
        return min((c for c in _CHUNKS if c <= most), key=lambda chunks: self.time_s(size_bytes, chunks))


def beside(chunks: int, way: int) -> int:
    """Return the number of chunks that is tried next, upwards (1) or downwards (-1); 0 where there is none.

    >>> beside(8, 1), beside(8, -1), beside(1, -1), beside(MAX_CHUNKS, 1)
    (10, 6, 0, 0)
    """
    at = _CHUNKS.index(chunks) + way
    return _CHUNKS[at] if 0 <= at < len(_CHUNKS) else 0


def pace(wired: WiredProgram) -> ChunkCosts:
    """Return the pace of a program that is not cut."""
    latency = barrier_s(wired, 0.0)
    need = link_need_s(wired.link_bytes(_UNIT), wired.network.capacity_Bps)
    return ChunkCosts(
        max((lane.num_rounds for lane in wired.lanes), default=0),
        latency,
        float(wired.latency_s.max(initial=0.0)),
        (barrier_s(wired, _UNIT) - latency) / _UNIT,
        float(need.max(initial=0.0)) / _UNIT,
        sum(len(phase) for lane in wired.lanes for phase in lane.phases),
        max((_posting_s(wired, i) for i in range(len(wired.lanes))), default=0.0),
    )


def _posting_s(wired: WiredProgram, lane: int) -> float:
    """Return how long the busiest vertex posts the messages of a lane, in all its rounds."""
    total = np.zeros(wired.num_vertices)
    for j, phase in enumerate(wired.lanes[lane].phases):
        busy = wired.posting_s(lane, j)
        if busy is not None:
            total += busy * phase.repeat
    return float(total.max(initial=0.0))


def wired_in_pieces(wired: WiredProgram, chunks: int) -> WiredProgram:
    """Return the program with its buffer cut in `chunks` that follow each other one round apart, on the same paths."""
    step = wired.program.steps[0]
    if not isinstance(step, ProgramStep) or chunks < 1:
        raise SimulationError(f"{wired.program.name} cannot be cut in {chunks} chunks.")
    already = max(strand.pieces for strand in step.proved.schedule.strands)
    if already > 1:
        raise SimulationError(f"{wired.program.name} is already cut into {already} pieces.",
                              hint="Leave the number of chunks out: the schedule says it.")  # fmt: skip
    flows = chunks * sum(len(phase) for lane in wired.lanes for phase in lane.phases)
    if flows > MAX_CUT_FLOWS:
        raise SimulationError(f"{wired.program.name} in {chunks:,} chunks has {flows:,} flows, more than the "
                              f"{MAX_CUT_FLOWS:,} that are simulated.", hint="Give fewer --chunks.")  # fmt: skip
    cut = replace(step, proved=replace(step.proved, schedule=pipelined(step.proved.schedule, chunks)))
    lanes, connection = [], []
    for lane, known in zip(wired.lanes, wired.connection, strict=True):
        phases = in_pieces(lane.phases, chunks)
        lanes.append(FlowLane(lane.channel, lane.rail, phases))
        connection.append(_connections(wired, lane, known, phases))
    program = replace(wired.program, steps=(cut,))
    if chunks == 1:
        return wired
    unit = with_posting(wired, every=True)
    return with_posting(
        replace(wired, program=program, lanes=tuple(lanes), connection=tuple(connection), unit=unit, pieces=chunks)
    )


def _connections(
    wired: WiredProgram, lane: FlowLane, known: tuple[Longs, ...], phases: tuple[FlowPhase, ...]
) -> tuple[Longs, ...]:
    """Return the connection of every flow of the cut phases: a pair of a lane always uses the same one."""
    if not lane.phases:
        return ()
    width = wired.num_vertices
    key = np.concatenate([phase.src * width + phase.dst for phase in lane.phases])
    pairs, first = np.unique(key, return_index=True)
    uses = np.concatenate(known)[first]
    return tuple(uses[np.searchsorted(pairs, phase.src * width + phase.dst)] for phase in phases)
