"""An invented job with faults on a timetable: real rules, history and page, on numbers that need no cluster, no root.

demo = Demo()
demo.run(stop)                  # four looks a second, until told to stop
"""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from syncline.timeline import SpanKind
from syncline.watch.burst import Burst
from syncline.watch.frame import Frame, Health
from syncline.watch.history import History
from syncline.watch.job import JobView
from syncline.watch.links import LinkLoad, LinkTable
from syncline.watch.prediction import Prediction
from syncline.watch.rules.engine import RuleEngine
from syncline.watch.serve.hub import Hub
from syncline.watch.spans.event import SpanEvent

NUM_HOSTS, NUM_RAILS, NUM_SPINES = 8, 2, 2
NUM_RANKS = NUM_HOSTS * NUM_RAILS
CAPACITY_Bps = 50e9
TICK_S = 0.25
COMPUTE_S, COMM_S = 0.15, 0.1
SIZE_BYTES, NAME = 64 << 20, "all-reduce@data/64MiB"
PAST_LOOKS = 80
"""Looks made before the first is shown, so that the rules know what is usual."""
PLAN = Prediction(
    "an invented plan", COMPUTE_S + COMM_S, COMM_S, {NAME: COMM_S},
    {"host-*/nic-* -> *": 0.4 * CAPACITY_Bps}, NUM_RANKS, 2.5,
)  # fmt: skip


@dataclass(frozen=True)
class InventedFault:
    """Something wrong from one second of the timetable to another; communication then takes `longer` times longer."""

    begin_s: float
    end_s: float
    kind: str
    place: str
    depth: float = 0.0
    longer: float = 1.0


TIMETABLE = (
    InventedFault(8, 24, "rate", "host-03/nic-1 -> leaf-1", 0.2, 5.0),
    InventedFault(34, 46, "loss", "leaf-0 -> host-05/nic-0", 40.0, 1.6),
    InventedFault(56, 70, "straggler", "5", 0.12),
    InventedFault(80, 92, "down", "leaf-1 -> spine-1", longer=1.3),
    InventedFault(102, 114, "bursts", "leaf-0 -> spine-0"),
)
QUIET = InventedFault(0, 0, "none", "")
ROUND_S = 125.0


class Demo:
    """Makes frames of the invented job; `hub` and `history` are what a page shows."""

    def __init__(self) -> None:
        self.hub = Hub()
        self._folder = tempfile.TemporaryDirectory(prefix="syncline-demo-")
        self.history = History(Path(self._folder.name, "demo.db"))
        self._table = _table()
        self._view, self._engine = JobView(PLAN), RuleEngine(prediction=PLAN)
        self._rng = np.random.default_rng(7)
        self._seq, self._step = 0, 0
        self._begin_s = time.monotonic()
        self._wall_s = time.time() - self._begin_s
        self._now_s = self._stepped_s = self._begin_s - PAST_LOOKS * TICK_S
        for _ in range(PAST_LOOKS):
            self.look()

    def run(self, stop: threading.Event) -> None:
        """Look four times a second until told to stop."""
        while not stop.wait(max(0.0, self._now_s + TICK_S - time.monotonic())):
            self.look()

    def close(self) -> None:
        """Throw the invented past away."""
        self.history.close()
        self._folder.cleanup()

    def look(self) -> Frame:
        """Make the next frame and tell it."""
        self._now_s += TICK_S
        self._seq += 1
        at_s = (self._now_s - self._begin_s) % ROUND_S if self._now_s >= self._begin_s else -1.0
        fault = next((fault for fault in TIMETABLE if fault.begin_s <= at_s < fault.end_s), QUIET)
        events = self._steps(fault)
        self._view.add(events)
        busy = [(e.start_s, e.end_s) for e in events if e.kind is not SpanKind.COMPUTE]
        load, bursts = self._load(fault)
        job = self._view.state(self._now_s)
        frame = Frame(self._seq, self._wall_s + self._now_s, self._now_s, TICK_S, self._table, load, job)
        changes = [change.to_json() for change in self._engine.update(frame, bursts=bursts, busy=busy)]
        health: Health = {"host": "demo: every number here is invented", "sampled": ["all"], "sampler": "invented"}
        frame = replace(frame, alerts=self._engine.alerts(), health=health)
        self.history.add(frame, changes)
        self.hub.publish(frame, changes)
        return frame

    def _steps(self, fault: InventedFault) -> list[SpanEvent]:
        """Return the spans of every step that has ended by now."""
        late_s = fault.depth if fault.kind == "straggler" else 0.0
        step_s = COMPUTE_S + late_s + COMM_S * fault.longer
        events: list[SpanEvent] = []
        while (end_s := self._stepped_s + step_s) <= self._now_s:
            begin_s, self._stepped_s, self._step = self._stepped_s, end_s, self._step + 1
            for rank in range(NUM_RANKS):
                own_s = late_s if str(rank) == fault.place else 0.0
                ready_s = begin_s + COMPUTE_S + own_s + float(self._rng.uniform(0, 0.004))
                peer = (rank + NUM_RAILS) % NUM_RANKS
                events += [
                    SpanEvent(rank, SpanKind.COMPUTE, "forward and backward", begin_s, ready_s, 0, self._step),
                    SpanEvent(rank, SpanKind.COLLECTIVE, NAME, ready_s, end_s, SIZE_BYTES, self._step),
                    SpanEvent(rank, SpanKind.SEND, "exchange", ready_s, end_s, 2 * SIZE_BYTES, self._step, peer),
                ]
        return events

    def _load(self, fault: InventedFault) -> tuple[LinkLoad, dict[str, list[Burst]]]:
        num, at = len(self._table), self._table.index.get(fault.place, 0)
        late_s = fault.depth if fault.kind == "straggler" else 0.0
        use = 0.4 * (1 + 0.05 * self._rng.standard_normal(num)) * (COMPUTE_S + COMM_S)
        use /= COMPUTE_S + COMM_S * fault.longer + late_s
        load = replace(LinkLoad.empty(num), rate_Bps=use * CAPACITY_Bps, peak_Bps=np.full(num, 0.98 * CAPACITY_Bps))
        load.saturated[:] = 0.3
        if fault.kind == "rate":
            load.peak_Bps[at], load.backlog_bytes[at] = fault.depth * CAPACITY_Bps, 2e6
        elif fault.kind == "loss":
            load.drops_per_s[at] = fault.depth * float(self._rng.uniform(0.7, 1.3))
        elif fault.kind == "down":
            load.up[at] = load.rate_Bps[at] = load.peak_Bps[at] = 0.0
        elif fault.kind == "bursts":
            load.bursts[at] = 3
            starts = [self._stepped_s + 0.02 * (1 + k) for k in range(3)]
            return load, {fault.place: [Burst(start_s, start_s + 0.004, 2e8) for start_s in starts]}
        return load, {}


def _table() -> LinkTable:
    cables = [(f"host-{h:02d}/nic-{r}", f"leaf-{r}", r) for h in range(NUM_HOSTS) for r in range(NUM_RAILS)]
    cables += [(f"leaf-{r}", f"spine-{s}", r) for r in range(NUM_RAILS) for s in range(NUM_SPINES)]
    rows = [(f"{src} -> {dst}", rail) for a, b, rail in cables for src, dst in ((a, b), (b, a))]
    capacity_Bps = np.full(len(rows), CAPACITY_Bps)
    return LinkTable.named([name for name, _ in rows], capacity_Bps, 1, [rail for _, rail in rows])
