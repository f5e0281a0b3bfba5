"""One program's time without simulating every message, exactly where that can be had.

In this order:
1. `recurrence`  no two flows can ever compete: a max-plus recurrence, exact (maxplus.py);
2. `flows`       every flow of every round through the flow engine, where they are few enough: exact by definition;
   `folded ...`  the same with ranks that cannot be told apart simulated as one: exact (symmetry.py);
3. `periodic`    rounds that repeat are run until every rank is late by the same constant from one round to the next;
                 the rest of the repetitions is that constant each: exact, since the state repeats;
4. `barrier`     each different round is solved once as if all ranks began it together: a bound, and labelled so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.sim.flow.engine import Floats, Paths, Tasks, run
from syncline.sim.flow.expand import Expansion, expand, no_waits
from syncline.sim.flow.maxmin import max_min_rates
from syncline.sim.flow.maxplus import contention_free, max_plus_end_s
from syncline.sim.flow.symmetry import fold
from syncline.sim.flow.wired import WiredProgram
from syncline.timeline.columns import sum_by

FEW_FLOWS = 4_000
"""Flows that are simulated one by one before folding is tried."""

MAX_FLOWS = 400_000
"""Flows that are simulated one by one where ranks cannot be folded."""

MOST_KEPT = 40_000
"""Flows of a program whose tasks are kept for other sizes."""

MAX_TOGETHER = 20_000
"""Flows of one round that are simulated one by one: with all of them in one network, each end changes all rates."""

MAX_PERIODIC_FLOWS = 3_000_000
"""Flows that are simulated in search of a steady state before the bound is used."""

FIRST_ROUNDS = 24
STEADY = 1e-9


@dataclass(frozen=True)
class FoldedPrice:
    """What a program takes, how that was found, and whether it is exact for the flow model."""

    time_s: float
    method: str
    exact: bool


def price(wired: WiredProgram, size_bytes: float) -> FoldedPrice:
    """Return the time of a program for a buffer of `size_bytes`."""
    if wired.unit is not None and (found := _windowed(wired, wired.unit, size_bytes)) is not None:
        return found
    if _is_free(wired):
        return FoldedPrice(float(max_plus_end_s(wired, size_bytes).max(initial=0.0)), "recurrence", True)
    if wired.num_flows <= FEW_FLOWS:
        return _simulated(wired, size_bytes)
    if (small := _folded(wired)) is not None and (found := price(small, size_bytes)).exact:
        return FoldedPrice(found.time_s, f"folded {found.method}", True)
    if most_together(wired) <= MAX_TOGETHER:
        if wired.num_flows <= MAX_FLOWS:
            return _simulated(wired, size_bytes)
        if (time_s := _periodic(wired, size_bytes)) is not None:
            return FoldedPrice(time_s, "periodic", True)
        if wired.num_flows <= MAX_PERIODIC_FLOWS:
            return _simulated(wired, size_bytes)
    return FoldedPrice(barrier_s(wired, size_bytes), "barrier", False)


def _windowed(wired: WiredProgram, unit: WiredProgram, size_bytes: float) -> FoldedPrice | None:
    """Return the time of chunks that follow each other in windows of their senders; None where they are too many."""
    flows = unit.num_flows * wired.pieces
    small = _folded(unit) if flows > FEW_FLOWS else None
    if small is not None:
        if small.num_flows * wired.pieces > MAX_FLOWS:
            return None
        if "_by_small" not in wired.__dict__:
            wired.__dict__["_by_small"] = replace(wired, unit=small, network=small.network)
        return replace(_simulated(wired.__dict__["_by_small"], size_bytes), method="folded flows")
    if flows > MAX_FLOWS or most_together(unit) * wired.pieces > MAX_TOGETHER:
        return None
    return _simulated(wired, size_bytes)


def _simulated(wired: WiredProgram, size_bytes: float) -> FoldedPrice:
    """Return the time of every flow of every round."""
    network = (wired.unit or wired).network
    return FoldedPrice(run(network.capacity_Bps, _tasks(wired, size_bytes)).makespan_s, "flows", True)


def _tasks(wired: WiredProgram, size_bytes: float) -> Tasks:
    """Return every flow of every round; kept on the wired program, as all but the bytes does not depend on size."""
    laid = wired.unit or wired
    paths = laid.wires.paths
    if wired.codec.host_s_per_byte() or laid.num_flows * wired.pieces > MOST_KEPT:
        return _expanded(wired, size_bytes).tasks(paths)
    if "_tasks" not in wired.__dict__:
        wired.__dict__["_tasks"] = _expanded(wired, 1.0).tasks(paths)
    one: Tasks = wired.__dict__["_tasks"]
    return replace(one, size_bytes=one.size_bytes * size_bytes)


def most_together(wired: WiredProgram) -> int:
    """Return the flows of the largest round of each lane, added up."""
    return sum(max((len(phase) for phase in lane.phases), default=0) for lane in wired.lanes)


def _is_free(wired: WiredProgram) -> bool:
    """Whether flows never compete; kept on the wired program, as it does not depend on size."""
    if "_free" not in wired.__dict__:
        wired.__dict__["_free"] = contention_free(wired)
    return bool(wired.__dict__["_free"])


def _folded(wired: WiredProgram) -> WiredProgram | None:
    """Return the folded program; kept on the wired program, as it does not depend on size."""
    if "_small" not in wired.__dict__:
        wired.__dict__["_small"] = fold(wired)
    small: WiredProgram | None = wired.__dict__["_small"]
    return small


def _expanded(wired: WiredProgram, size_bytes: float, most: int | None = None) -> Expansion:
    work, laid = Expansion(), wired.unit or wired
    start = work.add(no_waits(laid.num_vertices)) + np.arange(laid.num_vertices)
    expand(work, wired, size_bytes, start, most=most)
    return work


def _periodic(wired: WiredProgram, size_bytes: float) -> float | None:
    """Return the time from a run whose repeated rounds were cut short in their steady state, or None."""
    repeats = {tuple(phase.repeat for phase in lane.phases) for lane in wired.lanes}
    if len(repeats) != 1 or max(repeats.copy().pop(), default=0) <= FIRST_ROUNDS:
        return None  # lanes in different phases at one time do not share one constant
    per_round = sum(len(phase) for lane in wired.lanes for phase in lane.phases)
    most = FIRST_ROUNDS
    while most * per_round <= MAX_PERIODIC_FLOWS:
        work = _expanded(wired, size_bytes, most)
        course = run(wired.network.capacity_Bps, work.tasks(wired.wires.paths))
        skipped = _skipped_s(wired, work, course.end_s, most)
        if skipped is not None:
            return course.makespan_s + skipped
        most *= 3
    return None


def _skipped_s(wired: WiredProgram, work: Expansion, end_s: Floats, most: int) -> float | None:
    """Return the time of the repetitions left out, if every cut phase had reached its steady state."""
    total = 0.0
    for j, phase in enumerate(wired.lanes[0].phases):
        if phase.repeat <= most:
            continue
        steps = []
        for i in range(len(wired.lanes)):
            blocks = [b for b in work.blocks if b.lane == i and b.phase == j]
            ready = np.stack([end_s[b.first_join : b.first_join + len(b.vertices)] for b in blocks])
            steps.append(_constant(ready))
        constants = [step for step in steps if step is not None]
        if len(constants) != len(steps) or max(constants) - min(constants) > STEADY * max(constants):
            return None
        total += (phase.repeat - most) * max(constants)
    return total


def _constant(ready: Floats) -> float | None:
    """Return the constant by which all ranks move on per round, once it held for longer than the ranks' drift.

    While ranks are at most d rounds apart, the state of the system is made by the last d + 1 rounds. If these repeat,
    shifted by one constant, the state does, and so does everything after it.
    """
    step = np.diff(ready, axis=0)
    constant = float(step[-1].max())
    if constant <= 0:
        return None
    drift = float(ready[-1].max() - ready[-1].min()) / constant
    window = int(np.ceil(drift)) + 3
    if window > len(step):
        return None
    tail = step[-window:]
    return constant if float(tail.max() - tail.min()) <= STEADY * constant else None


def barrier_s(wired: WiredProgram, size_bytes: float) -> float:
    """Return the time if all ranks began each round together and flows kept the rates they begin with.

    Each different round is solved once. Lanes run side by side and are solved together, phase by phase.
    """
    total = 0.0
    depth = max((len(lane.phases) for lane in wired.lanes), default=0)
    for j in range(depth):
        parts = [(i, lane.phases[j]) for i, lane in enumerate(wired.lanes) if j < len(lane.phases)]
        connection = np.concatenate([wired.connection[i][j] for i, _ in parts])
        size = np.concatenate([wired.flow_bytes(i, j, size_bytes) for i, _ in parts])
        coding = np.concatenate([wired.coding_s(i, j, size_bytes) for i, _ in parts])
        took = wired.latency_s[connection] + coding + size / _together_Bps(wired, connection)
        posting = [wired.posting_s(i, j) for i, _ in parts]
        busy = max((float(own.max(initial=0.0)) for own in posting if own is not None), default=0.0)
        total += max(float(took.max(initial=0.0)), busy) * max(phase.repeat for _, phase in parts)
    return total


def _together_Bps(wired: WiredProgram, connection: Floats) -> Floats:
    rows = wired.wires.first[connection]
    paths = wired.wires.paths.take(rows)
    alone = np.diff(paths.start) == 0
    if len(paths.share):
        # The plain solver has no shares: a sprayed flow gets at least the least that its links give per share.
        crossing = sum_by(paths.link, paths.share, len(wired.network.capacity_Bps))
        fair = wired.network.capacity_Bps[paths.link] / np.maximum(crossing[paths.link], 1e-300)
        rate = np.full(len(paths), np.inf)
        np.minimum.at(rate, paths.row_of_crossing(), fair)
        return rate
    cap = np.where(alone, 1e30, np.inf)
    rates = max_min_rates(wired.network.capacity_Bps, Paths(paths.start, paths.link), cap_Bps=cap).rate_Bps
    return np.where(alone, np.inf, rates)
