"""The past on disk: one SQLite file in WAL mode, a transaction a second, bounded in size, never in the sampler's way.

A process killed at any moment loses at most what was not yet written: the last second. A disk that is full, or a file
that cannot be written, is a state (`problem`), not an error: frames then stay in memory, the newest ones, until it can.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections import deque
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from syncline.describe.plain import JsonObject
from syncline.errors import WatchError
from syncline.watch.frame import Frame, column, unpack
from syncline.watch.links import LinkTable

FORMAT = 1
MAX_BYTES = 256 << 20
MAX_PENDING = 600
PAGE_BYTES = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS layout (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS frame (
    seq INTEGER PRIMARY KEY, wall_s REAL NOT NULL, layout INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS frame_wall ON frame (wall_s);
CREATE TABLE IF NOT EXISTS alert (
    id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS note (body TEXT NOT NULL);
"""


class Extent(TypedDict):
    """From when to when there are frames, how many, and how many wait to be written."""

    first_s: float | None
    last_s: float | None
    num_frames: int
    num_pending: int


class LinkHistory(TypedDict):
    """One link over time; null where nothing is known."""

    link: str
    wall_s: list[float]
    rate_Bps: list[float | None]
    peak_Bps: list[float | None]


class History:
    """Frames and alert events, oldest dropped first. One writer; readers may be other threads and other processes."""

    def __init__(self, path: str | os.PathLike[str], max_bytes: int = MAX_BYTES, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.problem = ""
        self.num_dropped = 0
        self._max_pages = max(64, max_bytes // PAGE_BYTES)
        self._lock = threading.Lock()
        self._pending: deque[tuple[Frame, list[JsonObject]]] = deque(maxlen=MAX_PENDING)
        self._layouts: dict[str, int] = {}
        self._last_layout: tuple[LinkTable, int] | None = None
        self._read_only = read_only
        try:
            if not read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = self._open()
            self._next = 1 + int(self._one("SELECT coalesce(max(seq), 0) FROM frame"))
        except (sqlite3.Error, OSError) as error:
            hint = "Name another file with --history, or move this one away."
            if read_only:
                hint = "Name a history that `syncline watch --history` wrote."
            raise WatchError(f"the history cannot be opened: {error}.", where=str(path), hint=hint) from None

    def add(self, frame: Frame, events: list[JsonObject] | None = None) -> None:
        """Keep a frame and what happened to alerts in it; what cannot be written now is written later, or dropped."""
        with self._lock:
            if len(self._pending) == MAX_PENDING:
                self.num_dropped += 1
            self._pending.append((frame, events or []))
            try:
                self._write()
                self.problem = ""
            except (sqlite3.Error, OSError) as error:
                with contextlib.suppress(sqlite3.Error):
                    self._base.rollback()
                self._forget_layouts()
                self.problem = f"{type(error).__name__}: {error}"

    def extent(self) -> Extent:
        """Return from when to when there are frames, and how many."""
        with self._lock:
            first, last, count = self._base.execute("SELECT min(wall_s), max(wall_s), count(*) FROM frame").fetchone()
        return {"first_s": first, "last_s": last, "num_frames": count, "num_pending": len(self._pending)}

    def at(self, wall_s: float) -> dict[str, Any] | None:
        """Return the last frame at or before a moment (else the first after it), with its table of links."""
        look = "SELECT seq, layout, body FROM frame WHERE wall_s {} ? ORDER BY wall_s {} LIMIT 1"
        with self._lock:
            row = self._base.execute(look.format("<=", "DESC"), (wall_s,)).fetchone()
            row = row or self._base.execute(look.format(">", "ASC"), (wall_s,)).fetchone()
            layout = row and self._base.execute("SELECT body FROM layout WHERE id = ?", (row[1],)).fetchone()
        return {"frame": unpack(row[2]), "layout": json.loads(layout[0])} if row and layout else None

    def moments(self, start_s: float, end_s: float) -> list[float]:
        """Return when there are frames in a time."""
        look = "SELECT wall_s FROM frame WHERE wall_s BETWEEN ? AND ? ORDER BY wall_s"
        with self._lock:
            return [float(row[0]) for row in self._base.execute(look, (start_s, end_s))]

    def series(self, link: str, start_s: float, end_s: float, max_points: int = 600) -> LinkHistory:
        """Return one link over time in at most `max_points` bins: mean rate and highest peak of each."""
        with self._lock:
            layouts = dict(self._base.execute("SELECT id, body FROM layout"))
            where = "FROM frame WHERE wall_s BETWEEN ? AND ? ORDER BY seq"
            keys = self._base.execute(f"SELECT seq, layout, wall_s {where}", (start_s, end_s)).fetchall()
        index = {key: _index(body, link) for key, body in layouts.items()}
        points = []
        # A day has 86,400 frames: beyond a few thousand, every n-th is read.
        for seq, layout, wall_s in keys[:: max(1, len(keys) // (4 * max_points))]:
            at = index.get(layout)
            if at is None:
                continue
            with self._lock:
                row = self._base.execute("SELECT body FROM frame WHERE seq = ?", (seq,)).fetchone()
            if row:
                body = unpack(row[0])
                rate, peak = column(body, "rate_Bps")[at], column(body, "peak_Bps")[at]
                points.append((wall_s, rate, rate if np.isnan(peak) else peak))
        return _binned(link, points, max_points)

    def alerts(self, start_s: float = 0.0, end_s: float = 1e12, limit: int = 1000) -> list[dict[str, Any]]:
        """Return what happened to alerts in a time, the newest first."""
        look = "SELECT wall_s, event, body FROM alert WHERE wall_s BETWEEN ? AND ? ORDER BY id DESC LIMIT ?"
        with self._lock:
            rows = self._base.execute(look, (start_s, end_s, limit)).fetchall()
        return [{"wall_s": wall_s, "event": event, **json.loads(body)} for wall_s, event, body in rows]

    def keep_notes(self, notes: list[JsonObject]) -> None:
        """Keep people's notes on alerts, in place of the earlier ones."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._base.execute("DELETE FROM note")
            self._base.executemany("INSERT INTO note (body) VALUES (?)", [(json.dumps(note),) for note in notes])
            self._base.commit()

    def notes(self) -> list[str]:
        """Return the notes that were kept, each as its JSON text."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            return [row[0] for row in self._base.execute("SELECT body FROM note")]
        return []

    def close(self) -> None:
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._base.close()

    def _open(self) -> sqlite3.Connection:
        mode = "ro" if self._read_only else "rwc"
        base = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}", uri=True, check_same_thread=False, timeout=1.0
        )
        if self._read_only:
            return base
        base.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        base.execute("PRAGMA auto_vacuum = INCREMENTAL")
        base.execute("PRAGMA journal_mode = WAL")
        # A commit survives a kill; a power cut may cost the last seconds, never the file.
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute(f"PRAGMA journal_size_limit = {4 << 20}")
        found = base.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, FORMAT):
            raise sqlite3.DatabaseError(f"format {found} of another version of syncline")
        base.executescript(_SCHEMA)
        base.execute(f"PRAGMA user_version = {FORMAT}")
        base.commit()
        return base

    def _write(self) -> None:
        base = self._base
        waiting = list(self._pending)
        for offset, (frame, events) in enumerate(waiting):
            layout = self._layout(frame.table)
            row = (self._next + offset, frame.wall_s, layout, frame.pack())
            base.execute("INSERT INTO frame (seq, wall_s, layout, body) VALUES (?, ?, ?, ?)", row)
            rows = [(event["wall_s"], event["event"], json.dumps(event["alert"])) for event in events]
            base.executemany("INSERT INTO alert (wall_s, event, body) VALUES (?, ?, ?)", rows)
        self._trim()
        base.commit()
        self._next += len(waiting)
        self._pending.clear()

    def _layout(self, table: LinkTable) -> int:
        if self._last_layout is not None and self._last_layout[0] is table:
            return self._last_layout[1]
        body = json.dumps({**table.to_json(), "version": 0})
        if body not in self._layouts:
            if len(self._layouts) > 64:
                self._layouts.clear()
            self._base.execute("INSERT OR IGNORE INTO layout (body) VALUES (?)", (body,))
            row = self._base.execute("SELECT id FROM layout WHERE body = ?", (body,)).fetchone()
            self._layouts[body] = int(row[0])
        self._last_layout = (table, self._layouts[body])
        return self._layouts[body]

    def _trim(self) -> None:
        """Drop the oldest frames, a twentieth at a time, while the file is over its bound."""
        used = int(self._one("PRAGMA page_count")) - int(self._one("PRAGMA freelist_count"))
        if used <= self._max_pages:
            return
        count = int(self._one("SELECT count(*) FROM frame"))
        drop = "DELETE FROM frame WHERE seq IN (SELECT seq FROM frame ORDER BY seq LIMIT ?)"
        self._base.execute(drop, (max(1, count // 20),))
        self._base.execute("DELETE FROM alert WHERE wall_s < (SELECT min(wall_s) FROM frame)")
        self._base.execute("DELETE FROM layout WHERE id NOT IN (SELECT DISTINCT layout FROM frame)")
        self._forget_layouts()

    def _forget_layouts(self) -> None:
        """Look layouts up anew: those known may be gone from the file."""
        self._layouts.clear()
        self._last_layout = None

    def _one(self, look: str) -> Any:
        return self._base.execute(look).fetchone()[0]


def _index(layout: str, link: str) -> int | None:
    names = json.loads(layout)["names"]
    return names.index(link) if link in names else None


def _binned(link: str, points: list[tuple[float, float, float]], max_points: int) -> LinkHistory:
    if not points:
        return {"link": link, "wall_s": [], "rate_Bps": [], "peak_Bps": []}
    table = np.array(points)
    size = -(-len(table) // max_points)
    groups = [table[i : i + size] for i in range(0, len(table), size)]
    return {
        "link": link,
        "wall_s": [round(float(g[-1, 0]), 3) for g in groups],
        "rate_Bps": [_plain(np.nanmean(g[:, 1])) if not np.isnan(g[:, 1]).all() else None for g in groups],
        "peak_Bps": [_plain(np.nanmax(g[:, 2])) if not np.isnan(g[:, 2]).all() else None for g in groups],
    }


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
