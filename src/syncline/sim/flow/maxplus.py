"""Exact times where no two flows ever compete: a recurrence over rounds instead of events.

When every link can carry all the flows that could meet on it at the rate each has alone, every flow always has that
rate. Then a vertex is ready for its next round when the last of its transfers is done, a transfer starts when both its
ends are ready, and nothing else matters: a max-plus recurrence, one vector operation a round. A round that repeats is
left as soon as each group of ranks moves on by one constant: from there all further repetitions are that constant.
"""

from __future__ import annotations

import numpy as np

from syncline.sim.flow.rounds import FlowPhase
from syncline.sim.flow.routing import Floats
from syncline.sim.flow.wired import Longs, WiredProgram
from syncline.timeline.columns import sum_by

MAX_CROSSINGS = 30_000_000
STEADY = 1e-9


def contention_free(wired: WiredProgram) -> bool:
    """Whether no link can ever be asked for more than it has: then the recurrence is exact.

    A vertex is in one round of a lane at a time, so what it sends over a link is at most its largest round; the same
    holds for what it receives. The smaller of the two sums bounds the load, whatever the ranks' drift.
    """
    if not wired.single_path:
        return False
    paths = wired.wires.paths.take(wired.wires.first)
    length = np.diff(paths.start)
    crossings = sum(int(length[c].sum()) for lane in _distinct(wired) for _, c in lane)
    if crossings > MAX_CROSSINGS:
        return False
    load = wired.solo_Bps[paths.row_of_crossing()] * paths.shares()
    capacity = wired.network.capacity_Bps
    total = [np.zeros(len(capacity)), np.zeros(len(capacity))]
    for lane in _distinct(wired):
        for side in range(2):
            keys, sums = [], []
            for phase, connection in lane:
                at = _crossings_of(paths.start, length, connection)
                vertex = np.repeat((phase.src, phase.dst)[side], length[connection])
                key, index = np.unique(
                    paths.link[at].astype(np.int64) * wired.num_vertices + vertex, return_inverse=True
                )
                keys.append(key)
                sums.append(sum_by(index, load[at], len(key)))
            if keys:
                key, index = np.unique(np.concatenate(keys), return_inverse=True)
                most = np.zeros(len(key))
                np.maximum.at(most, index, np.concatenate(sums))
                total[side] += sum_by(key // wired.num_vertices, most, len(capacity))
    return bool((np.minimum(*total) <= capacity * (1 + 1e-9)).all())


def _distinct(wired: WiredProgram) -> list[list[tuple[FlowPhase, Longs]]]:
    """Return the phases of each lane, those over the same connections once."""
    found = []
    for lane, connections in zip(wired.lanes, wired.connection, strict=True):
        kept: list[tuple[FlowPhase, Longs]] = []
        for phase, connection in zip(lane.phases, connections, strict=True):
            if not any(np.array_equal(connection, other) for _, other in kept[-4:]):
                kept.append((phase, connection))
        found.append(kept)
    return found


def _crossings_of(start: Longs, length: Longs, rows: Longs) -> Longs:
    counts = length[rows]
    first = np.cumsum(counts) - counts
    return np.repeat(start[rows] - first, counts) + np.arange(int(counts.sum()))


def max_plus_end_s(wired: WiredProgram, size_bytes: float) -> Floats:
    """Return when each vertex is done with all its lanes."""
    end = np.zeros(wired.num_vertices)
    for i, lane in enumerate(wired.lanes):
        ready = np.zeros(wired.num_vertices)
        for j, phase in enumerate(lane.phases):
            connection = wired.connection[i][j]
            took = wired.latency_s[connection] + wired.flow_bytes(i, j, size_bytes) / wired.solo_Bps[connection]
            ready = _repeat(phase, took + wired.coding_s(i, j, size_bytes), ready, wired.posting_s(i, j))
        np.maximum(end, ready, out=end)
    return end


def _repeat(phase: FlowPhase, took: Floats, ready: Floats, posting: Floats | None = None) -> Floats:
    """Apply one round `repeat` times, jumping ahead once every group moves on by a constant of its own."""
    src, dst, groups = phase.src, phase.dst, phase.groups
    ready = ready.copy()
    for done in range(1, phase.repeat + 1):
        end = np.maximum(ready[src], ready[dst]) + took
        after = ready.copy()
        if phase.once:
            after[src] = end
            after[dst] = np.maximum(after[dst], end)
        else:
            np.maximum.at(after, src, end)
            np.maximum.at(after, dst, end)
        if posting is not None:
            after = np.maximum(after, ready + posting)
        if phase.repeat - done > 2:
            step = (after - ready)[groups]
            low, high = step.min(axis=1), step.max(axis=1)
            if (high - low <= STEADY * high).all():
                after[groups] += (high * (phase.repeat - done))[:, None]
                return after
        ready = after
    return ready
