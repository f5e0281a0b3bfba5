"""Programs as tasks of the flow engine: one task a transfer, one a (vertex, round) that joins the round.

A vertex posts all transfers of a round, waits for them, and goes on; a transfer starts when both ends have posted it;
lanes do not wait for each other. Where chunks follow each other, every chunk does so by itself: a sender has a window,
in which the chunks of a connection are sent one after the other, and none waits until the one before it has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from syncline.sim.flow.engine import Floats, Paths, Tasks
from syncline.sim.flow.rounds import FlowPhase
from syncline.sim.flow.wired import Longs, WiredProgram


@dataclass(frozen=True)
class Share:
    """How a job's flows are treated where links are contested: weight, traffic class (0 first), rate cap per flow.

    Flows of a tenant with a guarantee (see `flow.simulate`) have their part of every link before all that.
    """

    weight: float = 1.0
    priority: int = 0
    cap_Bps: float = np.inf
    tenant: str = ""


@dataclass(frozen=True, eq=False)
class TransferRows:
    """Where a block of transfers stands among the tasks: `first .. first + len(phase) - 1`, and the joins after it."""

    lane: int
    phase: int
    repetition: int
    round: int
    first: int
    first_join: int
    vertices: Longs


@dataclass
class Expansion:
    """Tasks of one or several jobs under construction."""

    num_tasks: int = 0
    blocks: list[TransferRows] = field(default_factory=list)
    tenants: tuple[str, ...] = ()
    _columns: list[tuple[slice, dict[str, ArrayLike]]] = field(default_factory=list)
    _wait_count: list[Longs] = field(default_factory=list)
    _wait_for: list[Longs] = field(default_factory=list)

    def add(self, waits: tuple[Longs, Longs], **columns: ArrayLike) -> int:
        """Append tasks and return the number of the first; `waits` are how many each waits for, and for whom."""
        first = self.num_tasks
        self.num_tasks += len(waits[0])
        self._columns.append((slice(first, self.num_tasks), columns))
        self._wait_count.append(waits[0])
        self._wait_for.append(waits[1])
        return first

    def tenant(self, share: Share) -> int:
        """Return the number of the tenant with a guarantee whose share this is; -1 if it has none."""
        return self.tenants.index(share.tenant) if share.tenant in self.tenants else -1

    def tasks(self, paths: Paths) -> Tasks:
        """Return all tasks as columns."""
        columns = {name: np.full(self.num_tasks, value, kind) for name, (value, kind) in _COLUMNS.items()}
        for rows, values in self._columns:
            for name, value in values.items():
                columns[name][rows] = value
        count = np.concatenate(self._wait_count) if self._wait_count else np.empty(0, np.int64)
        return Tasks(
            paths,
            **columns,
            wait_start=np.concatenate(([0], np.cumsum(count))).astype(np.int64),
            wait_for=np.concatenate(self._wait_for).astype(np.int32) if self._wait_for else np.empty(0, np.int32),
        )


_COLUMNS: dict[str, tuple[float, type[np.generic]]] = {
    "first_path": (0, np.int32),
    "num_paths": (0, np.int32),
    "size_bytes": (0.0, np.float64),
    "delay_s": (0.0, np.float64),
    "start_s": (0.0, np.float64),
    "weight": (1.0, np.float64),
    "cap_Bps": (np.inf, np.float64),
    "priority": (0, np.uint8),
    "tenant": (-1, np.int32),
}
"""What a task is unless its columns say otherwise."""


def no_waits(count: int) -> tuple[Longs, Longs]:
    """Return the waits of tasks that wait for nobody."""
    return np.zeros(count, np.int64), np.empty(0, np.int64)


def expand(
    into: Expansion,
    wired: WiredProgram,
    size_bytes: float,
    start: Longs,
    *,
    share: Share | None = None,
    first_path: int = 0,
    most: int | None = None,
    slow: Floats | None = None,
    pause_s: Floats | None = None,
) -> list[Longs]:
    """Append a job's tasks and return, lane by lane, the task at whose end each vertex is done.

    `start` is the task each vertex waits for first. With `most`, a round that repeats is done at most so often. `slow`
    divides the rate of everything a vertex sends or receives, `pause_s` is its own work after each round.
    """
    share = share or Share()
    if wired.unit is not None:
        return _in_window(into, wired.unit, wired.pieces, size_bytes, start, share, first_path, slow, pause_s)
    done = []
    for i, lane in enumerate(wired.lanes):
        last, round_ = start.astype(np.int64).copy(), 0
        for j, phase in enumerate(lane.phases):
            if len(phase) == 0:
                continue
            vertices, order = participants(phase)
            columns = _flow_columns(wired, i, j, size_bytes, share, first_path, slow)
            columns["tenant"] = into.tenant(share)
            two = np.full(len(phase), 2)
            ends = np.bincount(np.searchsorted(vertices, order[0]), minlength=len(vertices))
            pause: ArrayLike = 0.0 if pause_s is None else pause_s[vertices]
            posting = wired.posting_s(i, j)
            for repetition in range(phase.repeat if most is None else min(most, phase.repeat)):
                waits = np.stack((last[phase.src], last[phase.dst]), axis=1)
                first = into.add((two, waits.ravel()), **columns)
                flows, count = first + order[1], ends
                if posting is not None:  # a vertex is not done before it has posted all its messages
                    posted = into.add((np.ones_like(ends), last[vertices]), delay_s=posting[vertices])
                    at = np.cumsum(ends)
                    flows, count = np.insert(flows, at, posted + np.arange(len(vertices))), ends + 1
                joins = into.add((count, flows), delay_s=pause)
                last[vertices] = joins + np.arange(len(vertices))
                into.blocks.append(TransferRows(i, j, repetition, round_, first, joins, vertices))
                round_ += 1
        done.append(last)
    return done


def _in_window(
    into: Expansion, unit: WiredProgram, pieces: int, size_bytes: float, start: Longs, share: Share, first_path: int,
    slow: Floats | None, pause_s: Floats | None,
) -> list[Longs]:  # fmt: skip
    """Append the tasks of chunks that follow each other, wave after wave: chunk p does round t - p in wave t."""
    done = []
    for i, lane in enumerate(unit.lanes):
        order = [j for j, phase in enumerate(lane.phases) for _ in range(phase.repeat) if len(phase)]
        last = np.tile(start.astype(np.int64), (pieces, 1))
        sent: list[int | None] = [None] * len(order)
        posts = start.astype(np.int64).copy()
        each = size_bytes / pieces
        known = {}
        for j in set(order):
            columns = _flow_columns(unit, i, j, each, share, first_path, slow) | {"tenant": into.tenant(share)}
            known[j] = _Round.of(lane.phases[j], columns, unit.posting_s(i, j), pause_s)
        for wave in range(len(order) + pieces - 1):
            for piece in range(max(0, wave - len(order) + 1), min(pieces, wave + 1)):
                at = wave - piece
                r, ready, before = known[order[at]], last[piece], sent[at]
                num, vertices = len(r.flows), r.vertices
                waits = [ready[r.phase.src], ready[r.phase.dst]]
                waits += [before + r.flows] if before is not None else []
                first = sent[at] = into.add((np.full(num, len(waits)), np.array(waits).T.ravel()), **r.moving)
                arrived = into.add((r.one, first + r.flows), delay_s=r.delay_s)
                flows = arrived + r.ends
                if r.posting_s is not None:  # a vertex posts all its messages one after the other
                    posted = into.add((r.alone, posts[vertices]), delay_s=r.posting_s)
                    posts[vertices] = posted + r.each
                    flows = np.concatenate((flows, posts[vertices]))[r.by_vertex]
                joins = into.add((r.waited, flows), delay_s=r.pause_s)
                last[piece, vertices] = joins + r.each
                into.blocks.append(TransferRows(i, order[at], piece, wave, first, joins, vertices))
        done.append(_all_of(into, last))
    return done


class _Round(NamedTuple):
    """What a round has in common over all waves."""

    phase: FlowPhase
    flows: Longs  # 0, 1, ...
    moving: dict[str, ArrayLike]
    delay_s: ArrayLike
    vertices: Longs
    each: Longs  # 0, 1, ... of the vertices
    ends: Longs  # the flows of each vertex, vertex by vertex
    waited: Longs  # how many each vertex joins: its flows, and that it has posted them
    by_vertex: Longs  # the order of flows and posts that has those of a vertex together
    posting_s: Floats | None
    pause_s: ArrayLike
    one: Longs
    alone: Longs

    @classmethod
    def of(
        cls, phase: FlowPhase, columns: dict[str, ArrayLike], posting: Floats | None, pause_s: Floats | None
    ) -> _Round:
        vertices, (of_vertex, flow) = participants(phase)
        owner = np.searchsorted(vertices, of_vertex)
        each, posts = np.arange(len(vertices)), posting is not None
        by_vertex = np.argsort(np.concatenate((owner, each)), kind="stable")
        count = np.bincount(owner, minlength=len(vertices)) + posts
        return cls(
            phase, np.arange(len(phase)), columns | {"delay_s": 0.0}, columns["delay_s"], vertices, each, flow, count,
            by_vertex, None if posting is None else posting[vertices], 0.0 if pause_s is None else pause_s[vertices],
            np.ones(len(phase), np.int64), np.ones(len(vertices), np.int64),
        )  # fmt: skip


def _all_of(into: Expansion, last: Longs) -> Longs:
    """Return the tasks at whose end each vertex is done with all its chunks."""
    pieces, num = last.shape
    return into.add((np.full(num, pieces), last.T.ravel())) + np.arange(num)


def participants(phase: FlowPhase) -> tuple[Longs, tuple[Longs, Longs]]:
    """Return the vertices of a phase, and (vertex, flow) of every end of every flow, ordered by vertex."""
    ends = np.concatenate((phase.src, phase.dst))
    flow = np.tile(np.arange(len(phase)), 2)
    order = np.argsort(ends, kind="stable")
    return np.unique(ends), (ends[order], flow[order])


def _flow_columns(
    wired: WiredProgram, lane: int, phase: int, size_bytes: float, share: Share, first_path: int, slow: Floats | None
) -> dict[str, ArrayLike]:
    connection = wired.connection[lane][phase]
    wires = wired.wires
    cap: ArrayLike = share.cap_Bps
    if slow is not None:
        part = wired.lanes[lane].phases[phase]
        factor = np.maximum(slow[part.src], slow[part.dst])
        solo = np.minimum(wired.solo_Bps[connection], 1e29)
        cap = np.minimum(cap, np.where(factor > 1, solo / factor, np.inf))
    # A flow between two vertices of one device crosses no link: it only takes its delay.
    alone = np.diff(wires.paths.start)[wires.first[connection]] == 0
    return {
        "first_path": wires.first[connection] + first_path,
        "num_paths": np.where(alone, 0, wires.count[connection]),
        "size_bytes": np.where(alone, 0.0, wired.flow_bytes(lane, phase, size_bytes)),
        "delay_s": wired.latency_s[connection] + wired.coding_s(lane, phase, size_bytes),
        "weight": share.weight,
        "cap_Bps": cap,
        "priority": share.priority,
    }
