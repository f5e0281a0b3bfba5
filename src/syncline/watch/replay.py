"""A timeline played in the page: a simulated, emulated or recorded run, at any speed, under the same rules."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from syncline.errors import WatchError
from syncline.timeline import COMMUNICATION, Timeline
from syncline.timeline.rates import binned_bytes
from syncline.watch.burst import BURST_SHARE
from syncline.watch.frame import Frame
from syncline.watch.history import History
from syncline.watch.incident import Incident, IncidentEvent
from syncline.watch.job import JobView
from syncline.watch.links import LinkLoad, LinkTable
from syncline.watch.prediction import Prediction
from syncline.watch.rules.engine import RuleEngine
from syncline.watch.rules.thresholds import Thresholds
from syncline.watch.serve.hub import Hub
from syncline.watch.spans.timelines import events_of

NUM_FRAMES = 240
PARTS = 10
"""Finer bins in each frame, whose highest is shown as the peak."""
MAX_CELLS = 50_000_000


class Replay:
    """Frames of a timeline, bin by bin, published to a hub at the pace of the run times `speed`.

    A simulated step lasts milliseconds: such a run is played in slow motion, which the title says; rates, times and
    what the rules see stay the run's own. So a run too short for a rule raises nothing.
    """

    def __init__(
        self,
        timeline: Timeline,
        *,
        speed: float = 1.0,
        num_frames: int = NUM_FRAMES,
        history: History | None = None,
        prediction: Prediction | None = None,
        thresholds: Thresholds | None = None,
        title: str = "",
    ) -> None:
        if not speed > 0:
            raise WatchError(f"the speed must be positive, got {speed}.", hint="1 is as it was, 10 ten times as fast.")
        start_s, end_s = _extent(timeline)
        if not end_s > start_s:
            raise WatchError("the timeline is empty: there is nothing to play.")
        self.timeline, self.speed, self.start_s = timeline, speed, start_s
        # Frames of the page are 50 ms apart at least.
        self.bin_s = (end_s - start_s) / num_frames
        self.slow = max(1.0, 0.05 / self.bin_s)
        self.num_frames = num_frames
        self.hub = Hub()
        self.title = f"{title or timeline.source.name} ({timeline.source.kind.value}, {_pace(self.slow / speed)})"
        self.prediction = prediction or Prediction()
        self._thresholds = thresholds
        self.origin_s = time.time()
        self._own = None if history else tempfile.TemporaryDirectory(prefix="syncline-replay-")
        self.history = History(Path(self._own.name, "replay.db")) if self._own is not None else history

    def pace(self) -> dict[str, float]:
        """Return which moments of the page are which of the run: the first one, how much slower, and how long it is."""
        return {"origin_s": self.origin_s, "slow": self.slow, "length_s": self.bin_s * self.num_frames}

    def frames(self) -> Iterator[Frame]:
        """Give every frame, with the alerts that the rules would have raised."""
        table = link_table(self.timeline)
        rate, peak, saturated = self._columns(len(table))
        view, engine = JobView(self.prediction), RuleEngine(self._thresholds, self.prediction)
        events = sorted(events_of(self.timeline, -self.start_s), key=lambda event: event.end_s)
        at = 0
        for k in range(self.num_frames):
            run_s = (k + 1) * self.bin_s
            ready = []
            while at < len(events) and events[at].end_s <= run_s:
                ready.append(events[at])
                at += 1
            view.add(ready)
            load = replace(LinkLoad.empty(len(table)), rate_Bps=rate[k], peak_Bps=peak[k], saturated=saturated[k])
            frame = Frame(k + 1, self.origin_s + run_s, run_s, self.bin_s, table, load, view.state(run_s))
            busy = [(e.start_s, e.end_s) for e in ready if e.kind in COMMUNICATION]
            changes = engine.update(frame, busy=busy)
            done = self._shown(frame, engine.alerts())
            if self.history is not None:
                self.history.add(done, [self._paced(change).to_json() for change in changes])
            yield done

    def play(self, stop: threading.Event) -> None:
        """Play once, unless told to stop."""
        for frame in self.frames():
            self.hub.publish(frame)
            if stop.wait(self.bin_s * self.slow / self.speed):
                return

    def close(self) -> None:
        """Close the history that was made for this replay."""
        if self.history is not None and self._own is not None:
            self.history.close()
            self._own.cleanup()

    def _shown(self, frame: Frame, alerts: Sequence[Incident]) -> Frame:
        """Return a frame as the page and the history get it: its moments at the page's pace."""
        return replace(
            frame,
            wall_s=self.origin_s + frame.mono_s * self.slow,
            mono_s=frame.mono_s * self.slow,
            interval_s=frame.interval_s * self.slow,
            alerts=tuple(self._at_pace(alert) for alert in alerts),
            health={"host": self.timeline.source.label()},
        )

    def _paced(self, event: IncidentEvent) -> IncidentEvent:
        """Return what happened to an alert, at the page's pace."""
        return replace(event, wall_s=self._page_s(event.wall_s), incident=self._at_pace(event.incident))

    def _at_pace(self, incident: Incident) -> Incident:
        since_s, last_s = self._page_s(incident.since_s), self._page_s(incident.last_s)
        return replace(incident, since_s=since_s, last_s=last_s, effects=tuple(map(self._at_pace, incident.effects)))

    def _page_s(self, moment_s: float | None) -> float:
        return self.origin_s + ((moment_s or self.origin_s) - self.origin_s) * self.slow

    def _columns(self, num_links: int) -> tuple[Any, Any, Any]:
        """Return rate, peak and saturated share by frame and link."""
        parts = max(1, min(PARTS, MAX_CELLS // max(1, num_links * self.num_frames)))
        fine_s, bins = self.bin_s / parts, self.num_frames * parts
        size = (
            binned_bytes(self.timeline.samples, num_links, self.start_s, fine_s, bins)
            if num_links
            else np.zeros((0, bins))
        )
        fine = (size / fine_s).reshape(num_links, self.num_frames, parts)
        capacity = self.timeline.links.capacity_Bps[:, None, None]
        with np.errstate(invalid="ignore"):
            saturated = (fine >= BURST_SHARE * capacity).mean(axis=2)
        return fine.mean(axis=2).T, fine.max(axis=2, initial=0.0).T, saturated.T


def link_table(timeline: Timeline) -> LinkTable:
    """Return the links of a timeline as watch shows them."""
    capacity_Bps = np.where(timeline.links.capacity_Bps > 0, timeline.links.capacity_Bps, np.nan)
    return LinkTable.named(timeline.links.names, capacity_Bps, 1)


def _extent(timeline: Timeline) -> tuple[float, float]:
    starts = [t.start_s.min() for t in (timeline.spans, timeline.samples) if len(t)]
    ends = [t.end_s.max() for t in (timeline.spans, timeline.samples) if len(t)]
    return (float(min(starts)), float(max(ends))) if starts else (0.0, 0.0)


def _pace(slow: float) -> str:
    if abs(slow - 1) < 0.01:
        return "at its own pace"
    return f"{slow:,.0f} times slower" if slow > 1 else f"{1 / slow:,.0f} times faster"
