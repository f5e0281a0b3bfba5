"""Many hosts on one page: frames of other agents put side by side, one thread for each, none of them waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from syncline.watch.frame import Frame, column
from syncline.watch.history import History
from syncline.watch.hub import Hub
from syncline.watch.job import CollectiveStat, JobState, RankStat, StepStat
from syncline.watch.links import LOAD_COLUMNS, LinkLoad, LinkTable

STALE_S = 5.0
MAX_WORKERS = 32


class Reader(Protocol):
    """One origin of frames in their JSON form, with the layout they belong to. Raises OSError or ValueError."""

    name: str

    def read(self) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]: ...


class Fleet:
    """Asks every reader once an interval and shows what answered as one frame."""

    def __init__(self, readers: Sequence[Reader], *, every_s: float = 1.0, history: History | None = None) -> None:
        self.hub = Hub()
        self.history = history
        self.every_s = every_s
        self._readers = list(readers)
        self._last: dict[str, tuple[float, list[tuple[Mapping[str, Any], Mapping[str, Any]]]]] = {}
        self._problems: dict[str, str] = {}
        self._seq = 0
        self._table: LinkTable | None = None
        self._layout_key: tuple[Any, ...] = ()
        self._known: set[tuple[str, str, str]] = set()

    def run(self, stop: threading.Event) -> None:
        """Ask until told to stop."""
        with ThreadPoolExecutor(min(MAX_WORKERS, len(self._readers))) as pool:
            while not stop.is_set():
                begun_s = time.monotonic()
                list(pool.map(self._ask, self._readers))
                self.tell()
                stop.wait(max(0.05, self.every_s - (time.monotonic() - begun_s)))

    def tell(self) -> Frame | None:
        """Put the newest frames of all side by side and publish them; None as long as there is nothing to say."""
        now_s = time.monotonic()
        parts = [
            part for name, (seen_s, found) in sorted(self._last.items()) if now_s - seen_s < STALE_S for part in found
        ]
        if not parts and not any(self._problems.values()):
            return None
        frame = self._joined(parts, now_s)
        events = self._changes(frame)
        if self.history is not None and parts:
            self.history.add(frame, events)
        self.hub.publish(frame, events)
        return frame

    def _ask(self, reader: Reader) -> None:
        try:
            self._last[reader.name] = (time.monotonic(), reader.read())
            self._problems[reader.name] = ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._problems[reader.name] = f"{type(error).__name__}: {error}"[:200]

    def _joined(self, parts: list[tuple[Mapping[str, Any], Mapping[str, Any]]], now_s: float) -> Frame:
        self._seq += 1
        table = self._table_of([layout for _, layout in parts])
        bodies = [body for body, _ in parts]
        columns = {name: [column(body, name) for body in bodies] for name in LOAD_COLUMNS}
        load = LinkLoad(**{name: np.concatenate(of) if of else np.zeros(0) for name, of in columns.items()})
        alerts: list[Mapping[str, Any]] = []
        for body in bodies:
            host = str(body.get("health", {}).get("host", ""))
            alerts += [_at_host(alert, host, table) for alert in body.get("alerts", [])[:200]]
        problems = {name: problem for name, problem in self._problems.items() if problem}
        health = {"host": "", "num_hosts": len(parts), "problems": problems}
        wall_s = max((float(body["wall_s"]) for body in bodies), default=time.time())
        alerts.sort(key=lambda a: (a.get("severity") != "critical", a.get("since_s") or 0.0))
        return Frame(self._seq, wall_s, now_s, self.every_s, table, load, _job(bodies), tuple(alerts[:500]), health)

    def _table_of(self, layouts: list[Mapping[str, Any]]) -> LinkTable:
        key = tuple((id(layout), layout.get("version"), len(layout["names"])) for layout in layouts)
        if self._table is None or key != self._layout_key:
            joined: dict[str, list[Any]] = {
                name: [] for name in ("names", "devices", "capacity_Bps", "rail", "src", "dst")
            }
            for layout in layouts:
                for name, values in joined.items():
                    values += list(layout[name])
            capacity = np.array([np.nan if c is None else c for c in joined["capacity_Bps"]], np.float64)
            version = 1 + (self._table.version if self._table else 0)
            self._table = LinkTable(
                _unique(joined["names"]), tuple(joined["devices"]), tuple("tx" for _ in joined["names"]), capacity,
                np.array(joined["rail"], np.int64), tuple(joined["src"]), tuple(joined["dst"]), version,
            )  # fmt: skip
            self._layout_key = key
        return self._table

    def _changes(self, frame: Frame) -> list[dict[str, Any]]:
        """Return which alerts came and went since the last frame, as the agents' own events were not seen here."""
        now = {(str(a.get("host", "")), str(a["rule"]), str(a["place"])): a for a in frame.alerts}
        raised = [{"event": "raised", "wall_s": frame.wall_s, "alert": dict(now[k])} for k in now.keys() - self._known]
        cleared = [
            {
                "event": "cleared",
                "wall_s": frame.wall_s,
                "alert": {"rule": rule, "place": place, "host": host, "severity": ""},
            }
            for host, rule, place in self._known - now.keys()
        ]
        self._known = set(now)
        return raised + cleared


def _at_host(alert: Mapping[str, Any], host: str, table: LinkTable) -> dict[str, Any]:
    place = str(alert.get("place", ""))
    # Ranks, steps and rails are the job's; what is only the host's own is told with its name.
    shown = f"{host}: {place}" if place == "host" and host else place
    return {**alert, "place": shown, "host": host}


def _unique(names: list[str]) -> tuple[str, ...]:
    """Return names without a repeat: two agents may watch the same link."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return tuple(result)


def _job(bodies: list[Mapping[str, Any]]) -> JobState:
    """Return one job of what the hosts tell: their collectives and steps by the slowest, their ranks together."""
    collectives: dict[str, CollectiveStat] = {}
    steps: dict[int, StepStat] = {}
    ranks: dict[int, RankStat] = {}
    size = max((len(body["job"]["pairs_Bps"]) for body in bodies), default=0)
    pairs = np.zeros((size, size))
    for body in bodies:
        job = body["job"]
        for row in job["collectives"]:
            stat = CollectiveStat(**row)
            if row["key"] not in collectives or stat.p99_s > collectives[row["key"]].p99_s:
                collectives[row["key"]] = stat
        for row in job["steps"]:
            stat_ = StepStat(**{k: row[k] for k in ("step", "end_s", "step_s", "compute_s", "exposed_s", "num_ranks")})
            if stat_.step not in steps or stat_.step_s > steps[stat_.step].step_s:
                steps[stat_.step] = stat_
        for row in job["ranks"]:
            ranks[row["rank"]] = RankStat(**row)
        matrix = np.array(job["pairs_Bps"], np.float64)
        if matrix.size:
            pairs[: len(matrix), : len(matrix)] += matrix
    cell = max((int(body["job"].get("ranks_per_cell", 1)) for body in bodies), default=1)
    return JobState(
        tuple(sorted(collectives.values(), key=lambda c: -c.num * c.p50_s)),
        tuple(steps[k] for k in sorted(steps)[-120:]),
        tuple(ranks[k] for k in sorted(ranks)),
        pairs,
        cell,
    )
