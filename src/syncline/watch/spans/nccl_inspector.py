"""Collectives from NCCL Inspector's JSON lines: what each took and moved, by rank, as the files grow."""

from __future__ import annotations

import json
import os
from typing import Any

from syncline.timeline import SpanKind
from syncline.watch.clock import Clock
from syncline.watch.spans.event import MAX_RANK, SpanEvent
from syncline.watch.spans.tail import Tail

SUFFIXES = (".log", ".json", ".jsonl")
_KEYS = (("coll_perf", "coll"), ("p2p_perf", "p2p"))


class InspectorSpans:
    """Follows the folder that NCCL_INSPECTOR_DUMP_DIR names."""

    def __init__(self, folder: str | os.PathLike[str], clock: Clock) -> None:
        self.name = "nccl-inspector"
        self.problem = ""
        self.num_bad = 0
        self._clock = clock
        self._tail = Tail(folder, SUFFIXES)

    def read(self) -> list[SpanEvent]:
        """Return the collectives written since the last look."""
        events = []
        for _, line in self._tail.new_lines():
            if not line.strip():
                continue
            try:
                event = inspector_event(json.loads(line), self._clock)
            except (ValueError, RecursionError):
                event = None
            if event is None:
                self.num_bad += 1
            else:
                events.append(event)
        return events

    def close(self) -> None:
        """Nothing is held open between looks."""


def inspector_event(data: Any, clock: Clock) -> SpanEvent | None:
    """Return the collective of one record, or None if it is not one; it ended when it was dumped, at the latest."""
    if not isinstance(data, dict):
        return None
    header = data.get("header", data)
    for part, word in _KEYS:
        perf = data.get(part)
        if not isinstance(perf, dict) or not isinstance(header, dict):
            continue
        rank: Any = header.get("rank")
        took_us: Any = perf.get(f"{word}_exec_time_us")
        size, name = perf.get(f"{word}_msg_size_bytes", 0), perf.get(word)
        numbers = isinstance(took_us, (int, float)) and isinstance(size, int) and isinstance(rank, int)
        if not numbers or not isinstance(name, str) or not 0 <= rank < MAX_RANK or not 0 <= took_us < 1e12 or size < 0:
            return None
        stamp_us = data["metadata"].get("dump_timestamp_us") if isinstance(data.get("metadata"), dict) else None
        end_s = clock.from_wall(stamp_us / 1e6) if isinstance(stamp_us, (int, float)) else clock.now().mono_s
        kind = SpanKind.SEND if part == "p2p_perf" else SpanKind.COLLECTIVE
        return SpanEvent(rank, kind, name[:80], end_s - took_us / 1e6, end_s, size)
    return None
