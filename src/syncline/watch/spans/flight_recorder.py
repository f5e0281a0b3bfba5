"""Collectives from PyTorch's flight recorder: its dumps (JSON, or the pickles of plain values it writes by default)."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

from syncline.errors import FileError
from syncline.timeline import SpanKind
from syncline.watch.clock import Clock
from syncline.watch.spans.event import MAX_RANK, SpanEvent
from syncline.watch.spans.plain_pickle import read_plain_pickle
from syncline.watch.spans.tail import Tail

MAX_BYTES = 256 << 20
_RANK = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl))?$")
_TYPE_BYTES = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Byte": 1, "Char": 1}


class FlightRecorderSpans:
    """Reads every dump that appears in a folder (the prefix TORCH_NCCL_DEBUG_INFO_TEMP_FILE names); each entry once."""

    def __init__(self, folder: str | os.PathLike[str], clock: Clock) -> None:
        self.name = "flight-recorder"
        self.problem = ""
        self.num_bad = 0
        self._clock = clock
        self._tail = Tail(folder, ("",))
        self._last: dict[tuple[int, str], int] = {}

    def read(self) -> list[SpanEvent]:
        """Return the collectives that dumps hold and that were not given before."""
        events: list[SpanEvent] = []
        for path in self._tail.new_files():
            rank = _RANK.search(path.name)
            if rank is None:
                continue
            try:
                data = read_dump(path)
            except (FileError, ValueError, RecursionError) as error:
                self.num_bad += 1
                self.problem = f"{path.name}: {error}"
                continue
            events += self._new(int(rank[1]), data)
        return events

    def close(self) -> None:
        """Nothing is held open between looks."""

    def _new(self, rank: int, data: Any) -> list[SpanEvent]:
        entries = data.get("entries") if isinstance(data, dict) else None
        events = []
        for entry in entries if isinstance(entries, list) else []:
            event = entry_event(rank, entry, self._clock)
            number = entry.get("record_id") if isinstance(entry, dict) else None
            if event is None or not isinstance(number, int):
                self.num_bad += 1
                continue
            key = (rank, str(entry.get("pg_name", "")))
            if number > self._last.get(key, -1):
                self._last[key] = number
                events.append(event)
        return events


def read_dump(path: Path) -> Any:
    """Return a dump's plain data; a pickle that holds anything but plain values is refused, never run."""
    if path.stat().st_size > MAX_BYTES:
        raise FileError("larger than any flight recorder writes.")
    data = path.read_bytes()
    return json.loads(data) if data[:1] in b"{[ \n" else read_plain_pickle(data)


def entry_event(rank: int, entry: Any, clock: Clock) -> SpanEvent | None:
    """Return a finished collective of a dump, or None."""
    if not isinstance(entry, dict) or entry.get("state") != "completed" or not 0 <= rank < MAX_RANK:
        return None
    name = entry.get("profiling_name")
    start = entry.get("time_discovered_started_ns") or entry.get("time_created_ns")
    end = entry.get("time_discovered_completed_ns")
    took_ms: Any = entry.get("duration_ms")
    if not isinstance(name, str) or not isinstance(end, int) or not isinstance(start, int):
        return None
    end_s = clock.from_wall(end / 1e9)
    known = isinstance(took_ms, (int, float)) and math.isfinite(took_ms) and took_ms >= 0
    start_s = end_s - took_ms / 1e3 if known else min(clock.from_wall(start / 1e9), end_s)
    kind = SpanKind.SEND if "send" in name or "recv" in name else SpanKind.COLLECTIVE
    return SpanEvent(rank, kind, name.removeprefix("nccl:")[:80], start_s, end_s, _size(entry))


def _size(entry: dict[str, Any]) -> int:
    total = 0
    sizes, types = entry.get("input_sizes"), entry.get("input_dtypes")
    for shape, dtype in zip(sizes or [], types or [], strict=False):
        if isinstance(shape, (list, tuple)) and all(isinstance(n, int) and n >= 0 for n in shape):
            total += math.prod(shape) * _TYPE_BYTES.get(str(dtype), 4)
    return min(total, 2**53)
