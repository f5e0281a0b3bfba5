"""Tables, loads and frames for tests, and waiting for spans."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from syncline.timeline import SpanKind
from syncline.watch.frame import Frame
from syncline.watch.job import JobState, JobView
from syncline.watch.links import LinkLoad, LinkTable
from syncline.watch.prediction import Prediction
from syncline.watch.rules.reach import LinkReach
from syncline.watch.spans.event import SpanEvent
from syncline.watch.spans.unix_socket import SocketSpans

CAPACITY = 12.5e9
TICK_S = 0.25


def table(num_links: int = 4, *, num_rails: int = 2, version: int = 1) -> LinkTable:
    """Return links of hosts to leaves, rail by rail: link i sends from host i // rails on rail i % rails."""
    src = tuple(f"host-{i // num_rails:02d}/nic-{i % num_rails}" for i in range(num_links))
    dst = tuple(f"leaf-{i % num_rails}" for i in range(num_links))
    names = tuple(f"{a} -> {b}" for a, b in zip(src, dst, strict=True))
    rail = np.arange(num_links) % num_rails
    return LinkTable(names, names, ("tx",) * num_links, np.full(num_links, CAPACITY), rail, src, dst, version)


def load(links: LinkTable, use: float | np.ndarray = 0.5, **columns: object) -> LinkLoad:
    """Return a load with every link at `use` of its capacity, peaks at its ceiling."""
    base = replace(
        LinkLoad.empty(len(links)),
        rate_Bps=np.broadcast_to(use, len(links)) * links.capacity_Bps,
        peak_Bps=links.capacity_Bps.copy(),
    )
    return replace(base, **{name: np.asarray(value, float) for name, value in columns.items()})  # type: ignore[arg-type]


def frame(number: int, links: LinkTable, of: LinkLoad, job: JobState | None = None, tick_s: float = TICK_S) -> Frame:
    """Return the n-th frame of a steady clock."""
    now = 1000.0 + number * tick_s
    return Frame(number, 1.7e9 + now, now, tick_s, links, of, job or JobState())


def reached(links: LinkTable, usual_Bps: np.ndarray | float, now_Bps: np.ndarray, looks: int = 6) -> LinkReach:
    """Return what links reach: for twenty seconds one rate, and another in the last looks."""
    reach = LinkReach()
    for _ in range(80):
        reach.look(links.names, np.broadcast_to(usual_Bps, len(links)).astype(float))
        reach.learn(False)
    for _ in range(looks):
        reach.look(links.names, now_Bps)
    return reach


class Job:
    """A job of four ranks that reports its spans, step by step."""

    def __init__(self, prediction: Prediction | None = None, num_ranks: int = 4) -> None:
        self.view = JobView(prediction)
        self.num_ranks = num_ranks
        self.step = 0

    def run_step(
        self, now_s: float, compute_s: float = 0.15, comm_s: float = 0.1, late: dict[int, float] | None = None
    ) -> list[SpanEvent]:
        """Report one step that ended now; `late` ranks compute longer and the others wait for them."""
        late = late or {}
        start = now_s - compute_s - comm_s - max(late.values(), default=0.0)
        end = now_s
        events = []
        for rank in range(self.num_ranks):
            ready = start + compute_s + late.get(rank, 0.0)
            events += [
                SpanEvent(rank, SpanKind.COMPUTE, "fb", start, ready, 0, self.step),
                SpanEvent(rank, SpanKind.COLLECTIVE, "all_reduce", ready, end, 1 << 20, self.step),
                SpanEvent(rank, SpanKind.SEND, "ring", ready, end, 1000, self.step, (rank + 1) % self.num_ranks),
            ]
        self.step += 1
        self.view.add(events)
        return events


def come(source: SocketSpans, count: int) -> None:
    """Wait until so many datagrams have been taken."""
    until = time.monotonic() + 120
    while len(source._came) < count and time.monotonic() < until:
        time.sleep(0.001)
