"""What each rank of a rehearsal runs before training: the operations of an order, timed from a common start."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from syncline.bench.sweep import program_of
from syncline.fabric import load
from syncline.program import place
from syncline.rehearsal.order import OperationTimes, ProgramSpans, RehearsalOrder
from syncline.rehearsal.shown import COLUMNS, Row
from syncline.runtime.execute.executor import Executor
from syncline.runtime.execute.record import gather
from syncline.runtime.execute.trial import measure, once
from syncline.runtime.group import Group
from syncline.runtime.rehearsal import network_time
from syncline.schedule import Kind
from syncline.timeline import Timeline
from syncline.timeline.spans import RULES, Spans

Tell = Callable[[str], object]


def run_all(order: RehearsalOrder, group: Group, tell: Tell) -> list[OperationTimes]:
    """Do everything in the order and return a row an operation."""
    placement = place("spread", load(order["cluster"]), int(order["ranks"]))
    rows: list[OperationTimes] = []
    with Executor(group, send_Bps=own_rate(order, group)) as executor:
        for number, item in enumerate(order["operations"], start=1):
            tell(f"{item['algorithm']}, {item['size_bytes']:,} bytes: {number} of {len(order['operations'])}")
            program = program_of(item["algorithm"], Kind(item["kind"]), placement, group.backend)
            trial = measure(executor, program, int(item["size_bytes"]), warm_up=2, repeats=int(item["repeats"]))
            times = trial.rank_s.max(axis=0)
            rows.append({**item, "times_s": times.tolist(), "num_wrong": trial.num_wrong})
    return rows


def time_network(order: RehearsalOrder, group: Group, tell: Tell) -> dict[str, float]:
    """Return what the backend's all-reduces take on this network, and what they take of the processors."""
    return network_time(group, int(order["probe_bytes"]))


def run_once(order: RehearsalOrder, group: Group) -> list[ProgramSpans]:
    """Run every program of an order once more, after a warm-up; returns its start and the spans of all ranks."""
    items = order.get("programs", ())
    if not items:
        return []
    placement = place("spread", load(order["cluster"]), int(order["ranks"]))
    found: list[ProgramSpans] = []
    with Executor(group, send_Bps=own_rate(order, group)) as executor:
        for item in items:
            program = program_of(item["algorithm"], Kind(item["kind"]), placement, group.backend)
            start_s, timeline = once(executor, program, int(item["size_bytes"]))
            found.append({"start_s": start_s, "rows": everyone(timeline, group, start_s)})
    return found


def everyone(timeline: Timeline, group: Group, origin_s: float = 0.0) -> list[Row]:
    """Return the spans of all ranks as rows, on every rank; names, which each rank numbers in its way, are left out."""
    columns = {rule.name: timeline.spans.column(rule.name) for rule in RULES}
    nameless = Spans(**columns | {"name": np.zeros(len(timeline.spans), np.int32)})
    spans = gather(Timeline(timeline.source, nameless, ("",)), group).spans
    rank, kind, start, end, *rest = (spans.column(name) for name in COLUMNS)
    columns_of = (rank, kind, start + origin_s, end + origin_s, *rest)
    return list(zip(*(column.tolist() for column in columns_of), strict=True))


def own_rate(order: RehearsalOrder, group: Group) -> float | None:
    """Return the rate that an order holds this rank to; None: the network limits it."""
    rates = order.get("send_Bps")
    return float(rates[group.rank]) if rates else None
