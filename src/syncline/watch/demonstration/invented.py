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

from syncline.timeline import COMMUNICATION, SpanKind
from syncline.watch.burst import Burst
from syncline.watch.frame import Frame
from syncline.watch.history import History
from syncline.watch.job import JobView
from syncline.watch.links import LinkLoad, LinkTable
from syncline.watch.prediction import Prediction
from syncline.watch.rules.engine import RuleEngine
from syncline.watch.serve.hub import Hub
from syncline.watch.spans.event import SpanEvent

NUM_HOSTS, NUM_RAILS, NUM_SPINES = 8, 2, 2
CAPACITY_Bps = 50e9
TICK_S = 0.25
COMPUTE_S, COMM_S = 0.15, 0.1
SIZE_BYTES, NAME = 64 << 20, "all-reduce@data/64MiB"
PAST_LOOKS = 80
"""Looks made before the first is shown, so that the rules know what is usual."""
PLAN = Prediction(
    "an invented plan", COMPUTE_S + COMM_S, COMM_S, {NAME: COMM_S},
    {"host-*/nic-* -> *": 0.4 * CAPACITY_Bps}, 16, 2.5,
)  # fmt: skip


@dataclass(frozen=True)
class InventedFault:
    """Something wrong from one second of the timetable to another."""

    begin_s: float
    end_s: float
    kind: str
    place: str
    depth: float = 0.0


TIMETABLE = (
    InventedFault(8, 24, "rate", "host-03/nic-1 -> leaf-1", 0.2),
    InventedFault(34, 46, "loss", "leaf-0 -> host-05/nic-0", 40.0),
    InventedFault(56, 70, "straggler", "5", 0.12),
    InventedFault(80, 92, "down", "leaf-1 -> spine-1"),
    InventedFault(102, 114, "bursts", "leaf-0 -> spine-0"),
)
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
        self._now_s = time.monotonic() - PAST_LOOKS * TICK_S
        self._stepped_s = self._now_s
        self._begin_s = time.monotonic()
        self._wall_s = time.time() - time.monotonic()
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
        faults = self._faults()
        events = self._steps(faults)
        self._view.add(events)
        busy = [(e.start_s, e.end_s) for e in events if e.kind in COMMUNICATION]
        load, bursts = self._load(faults)
        job = self._view.state(self._now_s)
        frame = Frame(self._seq, self._wall_s + self._now_s, self._now_s, TICK_S, self._table, load, job)
        changes = [change.to_json() for change in self._engine.update(frame, bursts=bursts, busy=busy)]
        health = {"host": "demo: every number here is invented", "sampled": ["all"], "sampler": "invented"}
        frame = replace(frame, alerts=self._engine.alerts(), health=health)
        self.history.add(frame, changes)
        self.hub.publish(frame, changes)
        return frame

    def _faults(self) -> dict[str, InventedFault]:
        at_s = (self._now_s - self._begin_s) % ROUND_S if self._now_s >= self._begin_s else -1.0
        return {fault.kind: fault for fault in TIMETABLE if fault.begin_s <= at_s < fault.end_s}

    def _pace(self, faults: dict[str, InventedFault]) -> float:
        """Return how much longer communication takes: all wait for the slowest link."""
        slow = 1 / faults["rate"].depth if "rate" in faults else 1.0
        return slow * (1.6 if "loss" in faults else 1.0) * (1.3 if "down" in faults else 1.0)

    def _steps(self, faults: dict[str, InventedFault]) -> list[SpanEvent]:
        """Return the spans of every step that has ended by now."""
        comm_s = COMM_S * self._pace(faults)
        slow = faults.get("straggler")
        late_s = slow.depth if slow else 0.0
        events: list[SpanEvent] = []
        while self._stepped_s + COMPUTE_S + late_s + comm_s <= self._now_s:
            begin_s, self._step = self._stepped_s, self._step + 1
            end_s = begin_s + COMPUTE_S + late_s + comm_s
            for rank in range(NUM_HOSTS * NUM_RAILS):
                own_s = late_s if slow and str(rank) == slow.place else 0.0
                ready_s = begin_s + COMPUTE_S + own_s + float(self._rng.uniform(0, 0.004))
                peer = (rank + NUM_RAILS) % (NUM_HOSTS * NUM_RAILS)
                events += [
                    SpanEvent(rank, SpanKind.COMPUTE, "forward and backward", begin_s, ready_s, 0, self._step),
                    SpanEvent(rank, SpanKind.COLLECTIVE, NAME, ready_s, end_s, SIZE_BYTES, self._step),
                    SpanEvent(rank, SpanKind.SEND, "exchange", ready_s, end_s, 2 * SIZE_BYTES, self._step, peer),
                ]
            self._stepped_s = end_s
        return events

    def _load(self, faults: dict[str, InventedFault]) -> tuple[LinkLoad, dict[str, list[Burst]]]:
        table, num = self._table, len(self._table)
        use = 0.4 * (1 + 0.05 * self._rng.standard_normal(num)) * (COMPUTE_S + COMM_S)
        use /= COMPUTE_S + COMM_S * self._pace(faults) + (faults["straggler"].depth if "straggler" in faults else 0.0)
        load = replace(LinkLoad.empty(num), rate_Bps=use * CAPACITY_Bps, peak_Bps=np.full(num, 0.98 * CAPACITY_Bps))
        load.saturated[:] = 0.3
        bursts: dict[str, list[Burst]] = {}
        for fault in faults.values():
            if fault.place not in table.index:
                continue
            i = table.index[fault.place]
            if fault.kind == "rate":
                load.peak_Bps[i], load.backlog_bytes[i] = fault.depth * CAPACITY_Bps, 2e6
            elif fault.kind == "loss":
                load.drops_per_s[i] = fault.depth * float(self._rng.uniform(0.7, 1.3))
            elif fault.kind == "down":
                load.up[i] = load.rate_Bps[i] = load.peak_Bps[i] = 0.0
            elif fault.kind == "bursts":
                quiet_s = self._stepped_s + 0.02
                bursts[fault.place] = [Burst(quiet_s + k * 0.02, quiet_s + k * 0.02 + 0.004, 2e8) for k in range(3)]
                load.bursts[i] = 3
        return load, bursts


def _table() -> LinkTable:
    cables = [(f"host-{h:02d}/nic-{r}", f"leaf-{r}", r) for h in range(NUM_HOSTS) for r in range(NUM_RAILS)]
    cables += [(f"leaf-{r}", f"spine-{s}", r) for r in range(NUM_RAILS) for s in range(NUM_SPINES)]
    rows = [(src, dst, rail) for a, b, rail in cables for src, dst in ((a, b), (b, a))]
    names = tuple(f"{src} -> {dst}" for src, dst, _ in rows)
    rail = np.array([rail for _, _, rail in rows], np.int64)
    src, dst = tuple(src for src, _, _ in rows), tuple(dst for _, dst, _ in rows)
    return LinkTable(names, names, ("tx",) * len(rows), np.full(len(rows), CAPACITY_Bps), rail, src, dst, 1)
