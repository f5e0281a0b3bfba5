"""The Chrome trace form, which Perfetto and chrome://tracing show.

One event per line. A process per rank (or host), a thread per stream, a counter per link. The last events are metadata
that viewers skip: the timeline in its compact form, in base64, so that `read_chrome` reads it back without loss.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np

from syncline.describe.files import atomic, open_file
from syncline.errors import TimelineError
from syncline.timeline.columns import Array, Ints
from syncline.timeline.compact import pack, unpack
from syncline.timeline.intervals import grouped_order
from syncline.timeline.lanes import lanes
from syncline.timeline.rates import rate_steps
from syncline.timeline.spans import SpanKind
from syncline.timeline.timeline import Timeline

CHUNK_ROWS = 16384
OPENING = '{"traceEvents":['
PIECE_BYTES = 3 << 18
_OWN = "syncline"
_OPTIONAL = {"stream": 0, "step": -1, "round": -1, "size_bytes": 0, "peer": -1, "link": -1}
"""Span columns that a line leaves out where they hold this."""


def write_chrome(timeline: Timeline, path: str | os.PathLike[str], *, hosts: Mapping[int, str] | None = None) -> None:
    """Write a trace; `.gz` compresses it; `hosts` (rank to host name) makes one process per host, not per rank."""
    with atomic(path) as file:
        if os.fspath(path).endswith(".gz"):
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5, mtime=0, filename="") as packed:
                _write(timeline, packed, hosts)
        else:
            _write(timeline, file, hosts)


def _write(timeline: Timeline, file: BinaryIO | gzip.GzipFile, hosts: Mapping[int, str] | None) -> None:
    file.write(f"{OPENING}\n".encode())
    for text in _events(timeline, hosts):
        file.write(text.encode())
    other = _compact({"source": timeline.source.label(), "metadata": timeline.metadata})
    file.write(f'],"displayTimeUnit":"ns","otherData":{other}}}\n'.encode())


def read_chrome(path: str | os.PathLike[str]) -> Timeline:
    """Return the timeline in a trace written by syncline, plain or gzip; other tools' traces are refused."""
    where = os.fspath(path)
    with open_file(path) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        try:
            with gzip.GzipFile(fileobj=raw, mode="rb") if packed else raw as file:
                return unpack(BytesIO(b"".join(_pieces(file, where))), where)
        except (EOFError, zlib.error, gzip.BadGzipFile, binascii.Error) as error:
            raise TimelineError(f"is cut off or damaged: {error}.", where=where) from None


def _pieces(file: BinaryIO | gzip.GzipFile, where: str) -> Iterator[bytes]:
    """Yield the bytes of the compact form that a trace carries."""
    if file.readline(len(OPENING) + 2).rstrip() != OPENING.encode():
        hint = "Only traces that syncline wrote can be read back."
        raise TimelineError("is not a syncline trace.", where=where, hint=hint)
    begin, _, end = _meta(_OWN, 0, 0, {"timeline": "|"}).encode().partition(b"|")
    line = b""
    for line in file:
        if line.startswith(begin):
            yield base64.b64decode(line[len(begin) :].rstrip(end), validate=True)
    if not (line.startswith(b"]") and line.endswith(b"}\n")):
        raise TimelineError("is cut off.", where=where, hint="The file was not written to its end.")


def _events(timeline: Timeline, hosts: Mapping[int, str] | None) -> Iterator[str]:
    """Yield blocks of event lines; the last event has no comma after it."""
    layout = _Layout(timeline, hosts)
    yield from layout.lines()
    yield from _span_lines(timeline, layout)
    yield from _counter_lines(timeline, layout.num_processes + 1)
    whole = BytesIO()
    pack(timeline, whole)
    pieces = [whole.getvalue()[at : at + PIECE_BYTES] for at in range(0, whole.tell(), PIECE_BYTES)]
    lines = [_meta(_OWN, 0, 0, {"timeline": base64.b64encode(piece).decode()}) for piece in pieces]
    yield "".join(lines).rstrip(",\n") + "\n"


class _Layout:
    """Which process and thread of the viewer each span belongs to; both count from 1, since 0 is special to viewers."""

    def __init__(self, timeline: Timeline, hosts: Mapping[int, str] | None) -> None:
        self._label = timeline.source.kind.value
        self._ranks = timeline.ranks.tolist()
        self._processes = _process_names(self._ranks, hosts)
        self.num_processes = len(self._processes)
        self.process_of_rank = [self._processes[_process(rank, hosts)] for rank in self._ranks]
        self._hosts = hosts
        spans = timeline.spans
        rank_index = timeline.rank_index()
        stream = rank_index * 2**15 + spans.stream
        lane = lanes(stream, spans.start_s, spans.end_s)
        self._threads, thread = np.unique(stream * 64 + lane, return_inverse=True)
        self.thread: Ints = thread.reshape(-1) + 1
        self.process: Ints = np.array(self.process_of_rank, np.int64)[rank_index]

    def lines(self) -> Iterator[str]:
        """Yield the events that name processes and threads and put them in order."""
        for name, pid in self._processes.items():
            yield _meta("process_name", pid, 0, {"name": name})
            yield _meta("process_labels", pid, 0, {"labels": self._label})
            yield _meta("process_sort_index", pid, 0, {"sort_index": pid})
        for tid, key in enumerate(self._threads.tolist(), 1):
            index, stream, lane = key >> 21, key >> 6 & 0x7FFF, key & 63
            rank = f"rank {self._ranks[index]} " if self._hosts else ""
            more = f" ({lane + 1})" if lane else ""
            pid = self.process_of_rank[index]
            yield _meta("thread_name", pid, tid, {"name": f"{rank}stream {stream}{more}"})
            yield _meta("thread_sort_index", pid, tid, {"sort_index": tid})


def _process(rank: int, hosts: Mapping[int, str] | None) -> str:
    return hosts.get(rank, f"rank {rank}") if hosts else f"rank {rank}"


def _process_names(ranks: list[int], hosts: Mapping[int, str] | None) -> dict[str, int]:
    names = dict.fromkeys(_process(rank, hosts) for rank in ranks)
    return {name: pid for pid, name in enumerate(names, 1)}


def _span_lines(timeline: Timeline, layout: _Layout) -> Iterator[str]:
    spans, origin_s = timeline.spans, timeline.start_s
    names = [json.dumps(name) for name in timeline.names]
    kinds = [kind.name for kind in SpanKind]
    line = (
        '{"ph":"X","pid":%d,"tid":%d,"ts":%r,"dur":%r,"name":%s,"cat":"%s",'
        '"args":{"rank":%d,"start_s":%r,"end_s":%r%s%s%s%s%s%s}},\n'
    )
    for begin in range(0, len(spans), CHUNK_ROWS):
        part = slice(begin, begin + CHUNK_ROWS)
        start, end = spans.start_s[part], spans.end_s[part]
        columns: list[list[Any]] = [
            layout.process[part].tolist(),
            layout.thread[part].tolist(),
            ((start - origin_s) * 1e6).tolist(),
            ((end - start) * 1e6).tolist(),
            [names[i] for i in spans.name[part].tolist()],
            [kinds[i] for i in spans.kind[part].tolist()],
            spans.rank[part].tolist(),
            start.tolist(),
            end.tolist(),
            *(_optional(key, spans.column(key)[part], default) for key, default in _OPTIONAL.items()),
        ]
        yield "".join([line % row for row in zip(*columns, strict=True)])


def _optional(key: str, column: Array, default: int) -> list[str]:
    if (column == default).all():
        return [""] * len(column)
    return ["" if value == default else f',"{key}":{value}' for value in column.tolist()]


def _counter_lines(timeline: Timeline, pid: int) -> Iterator[str]:
    """Yield each link's summed rate as a counter: for the eye only."""
    samples = timeline.samples
    if len(samples):
        yield _meta("process_name", pid, 0, {"name": "links"})
        yield _meta("process_sort_index", pid, 0, {"sort_index": pid})
    order = grouped_order(samples.link, samples.start_s)
    cuts = np.searchsorted(samples.link[order], np.arange(len(timeline.links) + 1))
    for i, name in enumerate(timeline.links.names):
        if cuts[i] == cuts[i + 1]:
            continue
        time_s, rate = rate_steps(samples.take(order[cuts[i] : cuts[i + 1]]))
        head, shown = f'{{"ph":"C","pid":{pid},"ts":', json.dumps(name)
        pairs = zip(((time_s - timeline.start_s) * 1e6).tolist(), rate.tolist(), strict=True)
        yield "".join([f'{head}{ts!r},"name":{shown},"args":{{"rate_Bps":{now!r}}}}},\n' for ts, now in pairs])


def _meta(name: str, pid: int, tid: int, args: Mapping[str, object]) -> str:
    return f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{name}","args":{_compact(args)}}},\n'


def _compact(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)
