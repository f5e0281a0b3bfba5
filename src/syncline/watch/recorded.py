"""A history read back: the last day as it was, frame by frame, and what every incident in it was.

with closing(Recorded("watch.db")) as recorded:
    recorded.incidents()        # first to last
    recorded.play(stop)         # frames of the last day go to recorded.hub, at a pace that takes two minutes
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from syncline.describe.plain import JsonObject
from syncline.errors import WatchError
from syncline.watch.fleet.door import ForeignFrame, ForeignIncident, ForeignLayout
from syncline.watch.foreign import complaint
from syncline.watch.frame import Frame, column
from syncline.watch.history import History, LinkHistory
from syncline.watch.incident import SAME_S, Incident, IncidentKey
from syncline.watch.links import LinkTable
from syncline.watch.serve.hub import Hub

DAY_S = 86_400.0
PLAYED_S = 120.0
MAX_EVENTS = 100_000
AROUND_S = 60.0
MAX_POINTS = 400
REACH_FRAMES = 600
"""Frames out of which another run learns what links reached."""
_MAGIC = b"SQLite format 3\0"


def is_history(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file is a history of a watch, by its first bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


@dataclass(frozen=True)
class IncidentRecord:
    """One incident from its first moment to its last (None: it was open when the history ended)."""

    incident: Incident
    start_s: float
    end_s: float | None
    num_opened: int = 1

    def cost_usd(self, until_s: float) -> float | None:
        """Return what it has cost until it ended, or until a moment."""
        per_hour = self.incident.cost_usd_per_hour
        end_s = until_s if self.end_s is None else self.end_s
        return None if per_hour is None else per_hour * max(0.0, end_s - self.start_s) / 3600


class Recorded:
    """The last day of a history; it changes nothing in the file."""

    def __init__(self, path: str | os.PathLike[str], *, speed: float | None = None) -> None:
        if speed is not None and not speed > 0:
            raise WatchError(f"the speed must be positive, got {speed}.", hint="1 is as it was, 10 ten times as fast.")
        self.history = History(path, read_only=True)
        extent = self.history.extent()
        if extent["first_s"] is None or extent["last_s"] is None:
            self.history.close()
            raise WatchError("this history has no frames.", where=str(path), hint="Name one that --history wrote.")
        self.end_s = extent["last_s"]
        self.start_s = max(extent["first_s"], self.end_s - DAY_S)
        self.speed = speed or max(1.0, (self.end_s - self.start_s) / PLAYED_S)
        self.hub = Hub()
        self.title = f"{Path(path).name}, {self.speed:,.3g} times as fast"
        self._tables: dict[str, LinkTable] = {}

    def close(self) -> None:
        """Let go of the file."""
        self.history.close()

    def frames(self) -> Iterator[Frame]:
        """Give every frame of the day, with the incidents as they were shown."""
        for wall_s in self.history.moments(self.start_s, self.end_s):
            yield self._frame(wall_s)

    def play(self, stop: threading.Event) -> None:
        """Show the day, unless told to stop."""
        before_s = self.start_s
        for frame in self.frames():
            if stop.wait(max(0.0, frame.wall_s - before_s) / self.speed):
                return
            before_s = frame.wall_s
            self.hub.publish(frame)

    def incidents(self) -> list[IncidentRecord]:
        """Return every incident of the day, first to last; one that opened again within a minute is one."""
        events = self.history.alerts(self.start_s - DAY_S, self.end_s, MAX_EVENTS)
        found: list[IncidentRecord] = []
        last: dict[IncidentKey, int] = {}
        for event in sorted(events, key=lambda event: float(event["wall_s"])):
            wall_s, incident = float(event["wall_s"]), _incident(event)
            at = last.get(incident.key)
            known = found[at] if at is not None else None
            if event["event"] == "cleared":
                if at is not None and known is not None and known.end_s is None:
                    found[at] = replace(known, incident=incident, end_s=wall_s)
            elif at is not None and known is not None and (known.end_s is None or wall_s - known.end_s <= SAME_S):
                found[at] = replace(known, incident=incident, end_s=None, num_opened=known.num_opened + 1)
            else:
                last[incident.key] = len(found)
                found.append(IncidentRecord(incident, incident.since_s or wall_s, None))
        return [self._as_last_seen(record) for record in found]

    def around(self, record: IncidentRecord) -> LinkHistory:
        """Return the link of an incident, a minute before it to a minute after it."""
        end_s = self.end_s if record.end_s is None else record.end_s
        return self.history.series(record.incident.place, record.start_s - AROUND_S, end_s + AROUND_S, MAX_POINTS)

    def reached_Bps(self) -> dict[str, float]:
        """Return what each link reached while no incident was open: the median of its highest rates."""
        peaks: dict[str, list[float]] = {}
        moments = self.history.moments(self.start_s, self.end_s)
        for wall_s in moments[:: max(1, len(moments) // REACH_FRAMES)]:
            found = self.history.at(wall_s)
            if found is None or found["frame"].get("alerts"):
                continue
            rate, peak = (column(found["frame"], name) for name in ("rate_Bps", "peak_Bps"))
            for name, value in zip(
                found["layout"]["names"], np.where(np.isnan(peak), rate, peak).tolist(), strict=True
            ):
                peaks.setdefault(name, []).append(value)
        tops = {name: np.array([v for v in values if v > 0.02 * max(values)]) for name, values in peaks.items()}
        return {name: float(np.median(values)) for name, values in tops.items() if len(values)}

    def _as_last_seen(self, record: IncidentRecord) -> IncidentRecord:
        """Return a record with what was last shown of its incident: the evidence and the effects it had then."""
        seen = self.history.at(self.end_s if record.end_s is None else record.end_s - 0.01)
        for alert in (seen or {"frame": {}})["frame"].get("alerts", ()):
            incident = _incident(alert)
            if incident.key == record.incident.key:
                return replace(record, incident=incident)
        return record

    def _frame(self, wall_s: float) -> Frame:
        found = self.history.at(wall_s)
        if found is None:
            raise WatchError("a frame of the history was dropped while it was read.", hint="Try again.")
        names = "|".join(found["layout"]["names"])
        try:
            if names not in self._tables:
                layout = {**found["layout"], "version": len(self._tables) + 1}
                self._tables[names] = ForeignLayout.model_validate(layout).table()
            kept, body = ForeignFrame.model_validate(found["frame"]), found["frame"]
        except ValidationError as error:
            raise WatchError(f"a frame of the history is damaged: {complaint(error)}.") from None
        incidents = tuple(alert.incident() for alert in kept.alerts)
        return Frame(
            kept.seq, kept.wall_s, float(body["mono_s"]), float(body["interval_s"]), self._tables[names], kept.load(),
            kept.job.state(), incidents, {"host": kept.health.host},
        )  # fmt: skip


def _incident(row: JsonObject) -> Incident:
    try:
        return replace(ForeignIncident.model_validate(row).incident(), host=str(row.get("host", ""))[:300])
    except ValidationError as error:
        raise WatchError(f"an incident of the history is damaged: {complaint(error)}.") from None
