"""Collectives from PyTorch's flight recorder: its dumps (JSON, or the pickles of plain values it writes by default).

A dump tells more than what was done: what is not finished, which is how a hang gets its name.
"""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from syncline.describe.plain_pickle import read_plain_pickle
from syncline.errors import FileError
from syncline.timeline import SpanKind
from syncline.watch.clock import Clock
from syncline.watch.foreign import MAX_RANK, Foreign
from syncline.watch.spans.event import AHEAD_S, MAX_MOMENT_S, Name, PendingEvent, SpanEvent, SpanSource
from syncline.watch.spans.tail import Tail

MAX_BYTES = 256 << 20
_RANK = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl))?$")
_TYPE_BYTES = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Byte": 1, "Char": 1}
Nanos = Annotated[int, Field(ge=0, lt=int(MAX_MOMENT_S * 1e9))]


def _group(value: object) -> object:
    """Return a group's name: PyTorch writes it alone, or as (name, description)."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    named = [part for part in parts if isinstance(part, str) and part and part != "undefined"]
    return named[-1] if named else ""


class DumpEntry(Foreign):
    """One collective of a dump."""

    record_id: Annotated[int, Field(ge=0, lt=1 << 62)]
    profiling_name: Name
    state: Annotated[str, Field(max_length=40)] = ""
    group: Annotated[Name, BeforeValidator(_group)] = Field("", alias="process_group")
    pg_name: Annotated[Name, BeforeValidator(_group)] = ""
    collective_seq_id: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    is_p2p: bool = False
    time_created_ns: Nanos | None = None
    time_discovered_started_ns: Nanos | None = None
    time_discovered_completed_ns: Nanos | None = None
    duration_ms: Annotated[float, Field(ge=0, lt=1e12)] | None = None
    input_sizes: Any = None
    input_dtypes: Any = None
    output_sizes: Any = None
    output_dtypes: Any = None

    @property
    def in_group(self) -> str:
        return self.group or self.pg_name

    @property
    def number(self) -> int:
        return self.record_id if self.collective_seq_id is None else self.collective_seq_id

    def size_bytes(self) -> int:
        """Return the larger of what goes in and what comes out: an all-gather is named by its result."""
        return max(_bytes(self.input_sizes, self.input_dtypes), _bytes(self.output_sizes, self.output_dtypes))


class FlightRecorderSpans(SpanSource):
    """Reads every dump that appears in a folder (the prefix TORCH_NCCL_DEBUG_INFO_TEMP_FILE names); each entry once."""

    name = "flight-recorder"

    def __init__(self, folder: str | os.PathLike[str], clock: Clock) -> None:
        self._clock = clock
        self._tail = Tail(folder, ("",))
        self._last: dict[tuple[int, str], int] = {}

    def read(self) -> list[SpanEvent | PendingEvent]:
        """Return the collectives that dumps hold and that were not given before, and those that are not finished."""
        events: list[SpanEvent | PendingEvent] = []
        for path in self._tail.new_files():
            rank = _RANK.search(path.name)
            if rank is None or len(rank[1]) > 7 or int(rank[1]) >= MAX_RANK:
                continue
            try:
                data = read_dump(path)
            except (FileError, OSError, ValueError, RecursionError) as error:
                self.num_bad += 1
                self.problem = f"{path.name}: {error}"[:300]
                continue
            events += self._new(int(rank[1]), data)
        return events

    def _new(self, rank: int, data: Any) -> list[SpanEvent | PendingEvent]:
        entries = data.get("entries") if isinstance(data, dict) else None
        events: list[SpanEvent | PendingEvent] = []
        for raw in entries if isinstance(entries, list) else []:
            try:
                entry = DumpEntry.model_validate(raw)
            except (ValidationError, RecursionError):
                self.num_bad += 1
                continue
            event = entry_event(rank, entry, self._clock)
            if isinstance(event, PendingEvent):
                events.append(event)
                continue
            key = (rank, entry.pg_name)
            if event is None:
                self.num_bad += 1
            elif entry.record_id > self._last.get(key, -1):
                self._last[key] = entry.record_id
                events.append(event)
        return events


def read_dump(path: Path) -> Any:
    """Return a dump's plain data; a pickle that holds anything but plain values is refused, never run."""
    if path.stat().st_size > MAX_BYTES:
        raise FileError("larger than any flight recorder writes.")
    data = path.read_bytes()
    return json.loads(data) if data[:1] in b"{[ \n" else read_plain_pickle(data)


def entry_event(rank: int, entry: DumpEntry, clock: Clock) -> SpanEvent | PendingEvent | None:
    """Return a collective of a dump: as a span where it finished, else as one that is still waited for."""
    name = entry.profiling_name.removeprefix("nccl:")
    if entry.state in ("scheduled", "started"):
        size = entry.size_bytes()
        return PendingEvent(rank, name, entry.in_group, entry.number, size, entry.state == "started")
    start_ns, end_ns = entry.time_discovered_started_ns or entry.time_created_ns, entry.time_discovered_completed_ns
    if entry.state != "completed" or start_ns is None or end_ns is None:
        return None
    end_s = clock.from_wall(end_ns / 1e9)
    if end_s > clock.now().mono_s + AHEAD_S:
        return None
    took_ms = entry.duration_ms
    start_s = end_s - took_ms / 1e3 if took_ms is not None else min(clock.from_wall(start_ns / 1e9), end_s)
    kind = SpanKind.SEND if entry.is_p2p or "send" in name or "recv" in name else SpanKind.COLLECTIVE
    return SpanEvent(rank, kind, name, start_s, end_s, entry.size_bytes(), group=entry.in_group)


def _bytes(shapes: Any, types: Any) -> int:
    total = 0
    pairs = zip(shapes[:4096], types, strict=False) if isinstance(shapes, list) and isinstance(types, list) else ()
    for shape, dtype in pairs:
        if isinstance(shape, (list, tuple)) and len(shape) < 64 and all(_is_length(n) for n in shape):
            total += math.prod(shape) * _TYPE_BYTES.get(str(dtype), 4)
    return min(total, 2**53)


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48
