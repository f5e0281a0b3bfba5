"""Collectives from NCCL Inspector's JSON lines: what each took and moved, by rank, as the files grow."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import Field

from syncline.timeline import SpanKind
from syncline.watch.clock import Clock
from syncline.watch.foreign import Foreign, admit
from syncline.watch.spans.event import AHEAD_S, MAX_MOMENT_S, Name, Rank, SpanEvent, SpanSource
from syncline.watch.spans.tail import Tail

SUFFIXES = (".log", ".json", ".jsonl")
Micros = Annotated[float, Field(ge=0, lt=1e12)]
Size = Annotated[int, Field(ge=0, lt=1 << 62)]


class _Header(Foreign):
    rank: Rank


class _Stamp(Foreign):
    dump_timestamp_us: Annotated[float, Field(ge=0, lt=MAX_MOMENT_S * 1e6)] | None = None


class _Collective(Foreign):
    name: Name = Field(alias="coll")
    took_us: Micros = Field(alias="coll_exec_time_us")
    size: Size = Field(0, alias="coll_msg_size_bytes")


class _Peer(Foreign):
    name: Name = Field(alias="p2p")
    took_us: Micros = Field(alias="p2p_exec_time_us")
    size: Size = Field(0, alias="p2p_msg_size_bytes")


class InspectorRecord(Foreign):
    """One line of NCCL Inspector: who, what it took, and when that was written down."""

    header: _Header | None = None
    rank: Rank | None = None
    metadata: _Stamp = _Stamp()
    coll_perf: _Collective | None = None
    p2p_perf: _Peer | None = None


class InspectorSpans(SpanSource):
    """Follows the folder that NCCL_INSPECTOR_DUMP_DIR names."""

    name = "nccl-inspector"

    def __init__(self, folder: str | os.PathLike[str], clock: Clock) -> None:
        self._clock = clock
        self._tail = Tail(folder, SUFFIXES)

    def read(self) -> list[SpanEvent]:
        """Return the collectives written since the last look."""
        events = []
        for _, line in self._tail.new_lines():
            if not line.strip():
                continue
            event = inspector_event(line, self._clock)
            if event is None:
                self.num_bad += 1
            else:
                events.append(event)
        return events


def inspector_event(line: bytes, clock: Clock) -> SpanEvent | None:
    """Return the collective of one record, or None if it is not one; it ended when it was dumped, at the latest."""
    try:
        record = admit(InspectorRecord, line)
    except (ValueError, RecursionError):
        return None
    perf = record.coll_perf or record.p2p_perf
    rank = record.header.rank if record.header is not None else record.rank
    if perf is None or rank is None:
        return None
    now_s, stamp_us = clock.now().mono_s, record.metadata.dump_timestamp_us
    end_s = clock.from_wall(stamp_us / 1e6) if stamp_us is not None else now_s
    if end_s > now_s + AHEAD_S:
        return None
    kind = SpanKind.SEND if record.coll_perf is None else SpanKind.COLLECTIVE
    return SpanEvent(rank, kind, perf.name, end_s - perf.took_us / 1e6, end_s, perf.size)
