"""What crosses from seat to seat, whoever sits there: a quick judgement of many orders at once.

Who sends to whom follows from the job's split alone; an order only decides which of it leaves a host, a rack, a pod or
a site, and over which links. For each kind of traffic the busiest way out (or in) is counted, weighed by what a byte of
it costs the executed step. It misses overlap, so it proposes and `judge.py` decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.placing.judge import Judge
from syncline.placing.seats import Longs, Order
from syncline.sim.reach import fabric_reach
from syncline.sim.step.executed.tasks import StepTasks
from syncline.workload.step_graph import step_graph

Floats = NDArray[np.float64]
TIE = 1e-3
"""What all crossings together count beside the busiest: of two with one bottleneck, the one that crosses less."""
LEAST_WORTH = 0.02
"""A kind of traffic that hides behind compute today may show in a worse order."""


@dataclass(frozen=True, eq=False)
class CellLevel:
    """The cell of each unit at one level, and what leads out of each cell."""

    cell: Longs
    rate_Bps: Floats


@dataclass(frozen=True, eq=False)
class SeatTraffic:
    """Flows between seats in columns: of which kind, from where, to where, how many bytes a step."""

    kind: Longs
    src: Longs
    dst: Longs
    size_bytes: Floats
    worth: Floats
    levels: tuple[CellLevel, ...]
    kinds: tuple[str, ...]

    def cost(self, orders: Longs) -> Floats:
        """Return what each row of orders costs, in about seconds."""
        num, kinds = len(orders), len(self.kinds)
        busiest, crossing = np.zeros((num, kinds)), np.zeros(num)
        a, b = orders[:, self.src], orders[:, self.dst]
        row = np.arange(num)[:, None] * kinds + self.kind
        for level in self.levels:
            out, into, cells = level.cell[a], level.cell[b], len(level.rate_Bps)
            moved = np.where(out != into, self.size_bytes, 0.0)
            for end in (out, into):
                load = np.bincount((row * cells + end).ravel(), moved.ravel(), num * kinds * cells)
                took = load.reshape(num, kinds, cells) / level.rate_Bps
                busiest = np.maximum(busiest, took.max(axis=2))
                crossing += took.sum(axis=(1, 2)) / cells
        return np.asarray(busiest @ self.worth + TIE * crossing)

    def of(self, order: Order) -> float:
        """Return the cost of one order."""
        return float(self.cost(np.array([order], dtype=np.int64))[0])


def seat_traffic(judge: Judge, order: Order) -> SeatTraffic:
    """Return the traffic of a judge's job; what bytes are worth is measured at an order."""
    sent = _sent_bytes(judge, order)
    kinds = tuple(dict.fromkeys(kind for kind, _ in sent))
    rows = [_between(judge, kind, stage, size) for (kind, stage), size in sent.items()]
    number = [np.full(len(src), kinds.index(kind)) for (kind, _), (src, _, _) in zip(sent, rows, strict=True)]
    empty = np.empty(0, np.int64)
    src, dst, size = (np.concatenate([row[i] for row in rows] or [empty]) for i in range(3))
    kind = np.concatenate(number or [empty])
    kept = np.unique(kind)
    total = {name: max(size for (k, _), size in sent.items() if k == name) for name in kinds}
    worth = np.zeros(len(kinds))
    for index in kept.tolist():  # the rest never leaves its unit
        each = judge.worth(order, kinds[index]) / max(total[kinds[index]], 1.0)
        worth[index] = max(each, LEAST_WORTH)
    return SeatTraffic(kind, src, dst, size, worth, _levels(judge), kinds)


def _sent_bytes(judge: Judge, order: Order) -> dict[tuple[str, int], float]:
    """Return what a rank sends in a step, by kind of traffic and stage."""
    result = judge.result
    tasks = StepTasks(judge.stages(order), result, judge.constants, step_graph(result.job, max_micro=4))
    path = tasks.columns.path
    sent = np.bincount(path[path >= 0], tasks.columns.size_bytes[path >= 0], minlength=len(tasks.kinds))
    return dict(zip(tasks.kinds, sent.tolist(), strict=True))


def _between(judge: Judge, kind: str, stage: int, size: float) -> tuple[Longs, Longs, Floats]:
    """Return the flows of one kind and stage that go from one seat to another."""
    seats = judge.seats
    seat = seats.launched() // seats.size
    stages = judge.stages(seats.scheduler_order())
    stages.devices = np.arange(seats.num_ranks, dtype=np.int64)  # ranks themselves, near where they share a seat
    src, dst, weight = stages.flows(kind, stage, seat)
    a, b = seat[src], seat[dst]
    pair, at = np.unique(a * seats.num_seats + b, return_inverse=True)
    total = np.bincount(at.ravel(), weight * size, minlength=len(pair))
    a, b = pair // seats.num_seats, pair % seats.num_seats
    apart = a != b
    return a[apart], b[apart], total[apart]


def _levels(judge: Judge) -> tuple[CellLevel, ...]:
    reach, fitted = fabric_reach(judge.fabric), judge.constants.fitted
    host = judge.seats.host
    found = []
    for cells in reach.cells:
        number, cell = np.unique(cells.of_host[host], return_inverse=True)
        if len(number) > 1:
            rate = np.maximum(cells.even_Bps[number] * fitted.e_net, 1.0)
            found.append(CellLevel(cell.ravel().astype(np.int64), rate))
    return tuple(found)
