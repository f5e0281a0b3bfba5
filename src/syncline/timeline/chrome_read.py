"""Reading back the Chrome traces that `write_chrome` made: streamed, every value checked, the line named in errors."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from syncline.describe.files import open_file
from syncline.errors import TimelineError
from syncline.timeline import links as link_columns
from syncline.timeline import spans as span_columns
from syncline.timeline.chrome import OPENING, OPTIONAL
from syncline.timeline.columns import Array, Column, ColumnError, Ints
from syncline.timeline.header import Header, exact_keys, parse_json, read_header
from syncline.timeline.links import LinkSamples
from syncline.timeline.spans import SpanKind, Spans
from syncline.timeline.timeline import Timeline

MAX_LINE_BYTES = 2**28
BATCH_LINES = 4096
BATCH_BYTES = 2**24

_EVENT_KEYS = {"ph", "pid", "tid", "ts", "dur", "name", "cat", "args"}
_ARG_KEYS = {"rank", "start_s", "end_s", *OPTIONAL}
_KINDS = {kind.name: int(kind) for kind in SpanKind}
_DECOR = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}


def read_chrome(path: str | os.PathLike[str]) -> Timeline:
    """Return the timeline in a trace written by syncline (plain or gzip); other tools' traces are refused."""
    where = os.fspath(path)
    reader = _Reader(where)
    with open_file(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            if packed:
                with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                    reader.read(unpacked)
            else:
                reader.read(file)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = f"is damaged or cut off in its compressed part: {error}."
            raise TimelineError(problem, where=f"{where} line {reader.line}") from None
    return reader.timeline()


class _Reader:
    """The state of one reading: header, columns so far, and the line each span came from."""

    def __init__(self, where: str) -> None:
        self.line = 1
        self._where = where
        self._header: Header | None = None
        self._names: dict[str, int] = {}
        self._origin_s = 0.0
        self._spans: list[dict[str, Array]] = []
        self._span_lines: list[Ints] = []
        self._samples: list[dict[str, Array]] = []
        self._sample_lines: list[Ints] = []
        self._ended = False

    def read(self, file: BinaryIO | gzip.GzipFile) -> None:
        if file.readline(len(OPENING) + 2).rstrip() != OPENING.encode():
            hint = "Only traces that syncline wrote can be read back."
            raise TimelineError("is not a syncline trace.", where=f"{self._where} line 1", hint=hint)
        tail = b""
        for first, lines, closing in _batches(file, self._at):
            self._batch(first, lines)
            tail = closing
        if not tail or not self._ended:
            hint = "The file was not written to its end."
            raise TimelineError("is cut off.", where=self._at(self.line), hint=hint)
        parse_json(b'{"traceEvents":[' + tail, self._at(self.line))
        if file.read(1):
            raise TimelineError("goes on after its end.", where=self._at(self.line))

    def timeline(self) -> Timeline:
        header = self._header
        if header is None:
            raise TimelineError("has no header.", where=self._where)
        self._check_counts(header)
        spans = self._build(Spans, span_columns.RULES, self._spans, self._span_lines)
        samples = self._build(LinkSamples, link_columns.RULES, self._samples, self._sample_lines)
        try:
            return Timeline(header.source, spans, header.names, samples, header.links, header.metadata)
        except ColumnError as error:
            lines = self._span_lines if error.table == "spans" else self._sample_lines
            raise self._located(error, lines) from None

    def _at(self, line: int) -> str:
        self.line = line
        return f"{self._where} line {line}"

    def _batch(self, first: int, lines: list[bytes]) -> None:
        rows, at = [], []
        for number, event in enumerate(self._parse(first, lines), first):
            if not isinstance(event, dict):
                raise TimelineError("is not an event.", where=self._at(number))
            if self._ended:
                raise TimelineError("stands after the end of the trace.", where=self._at(number))
            kind = event.get("ph")
            if kind == "X":
                rows.append(event)
                at.append(number)
            elif kind == "M":
                self._meta(event, number)
            elif kind != "C":
                raise TimelineError(f"has an event of unknown kind {kind!r:.40}.", where=self._at(number))
            if self._header is None:
                raise TimelineError("comes before the header.", where=self._at(number))
        if rows:
            self._span_rows(rows, at)

    def _parse(self, first: int, lines: list[bytes]) -> list[Any]:
        """Return the events of a batch, parsed at once; only if that fails one by one, to name the line."""
        try:
            events = json.loads(f"[{b','.join(lines).decode()}]", parse_constant=_nothing)
            if len(events) == len(lines):
                return list(events)
        except (ValueError, RecursionError):
            pass
        return [parse_json(line, self._at(number)) for number, line in enumerate(lines, first)]

    def _meta(self, event: Mapping[str, Any], line: int) -> None:
        name, args = event.get("name"), event.get("args")
        if name == "syncline" and self._header is None:
            fields = dict(exact_keys(args, None, "header", self._at(line)))
            origin = fields.pop("origin_s", None)
            self._origin_s = float(_columns("header", {"origin_s": [origin]}, "origin_s", float, [line], self._at)[0])
            self._header = read_header(fields, self._at(line))
            self._names = {text: i for i, text in enumerate(self._header.names)}
        elif name == "syncline_samples":
            self._sample_rows(exact_keys(args, {r.name for r in link_columns.RULES}, "samples", self._at(line)), line)
        elif name == "syncline_end":
            self._ended = True
        elif not (isinstance(name, str) and name in _DECOR):
            raise TimelineError(f"has unknown metadata {name!r:.40}.", where=self._at(line))

    def _span_rows(self, events: Sequence[Mapping[str, Any]], lines: list[int]) -> None:
        for event, line in zip(events, lines, strict=True):
            if event.keys() != _EVENT_KEYS:
                exact_keys(event, _EVENT_KEYS, "span", self._at(line))
            if not (isinstance(event["args"], dict) and event["args"].keys() <= _ARG_KEYS):
                args = exact_keys(event["args"], None, "span args", self._at(line))
                exact_keys(args, _ARG_KEYS, "span args", self._at(line))
        raw: dict[str, list[Any]] = {
            key: [event["args"].get(key) for event in events] for key in ("rank", "start_s", "end_s")
        }
        raw |= {key: [event["args"].get(key, default) for event in events] for key, default in OPTIONAL.items()}
        raw["kind"] = [self._known(_KINDS, e["cat"], "kind", n) for e, n in zip(events, lines, strict=True)]
        raw["name"] = [self._known(self._names, e["name"], "name", n) for e, n in zip(events, lines, strict=True)]
        block = {
            r.name: _columns("span", raw, r.name, int if r.is_whole else float, lines, self._at)
            for r in span_columns.RULES
        }
        shown = {key: [event[key] for event in events] for key in ("ts", "dur")}
        self._check_shown(block, {k: _columns("span", shown, k, float, lines, self._at) for k in shown}, lines)
        self._spans.append(block)
        self._span_lines.append(np.array(lines, np.int64))

    def _sample_rows(self, args: dict[str, Any], line: int) -> None:
        sizes = {len(value) if isinstance(value, list) else -1 for value in args.values()}
        if len(sizes) != 1 or -1 in sizes:
            raise TimelineError("samples must be lists of one length.", where=self._at(line))
        lines = [line] * sizes.pop()
        kinds = [(rule.name, int if rule.is_whole else float) for rule in link_columns.RULES]
        self._samples.append({name: _columns("sample", args, name, kind, lines, self._at) for name, kind in kinds})
        self._sample_lines.append(np.array(lines, np.int64))

    def _known(self, table: dict[str, int], key: object, what: str, line: int) -> int:
        index = table.get(key) if isinstance(key, str) else None
        if index is None:
            raise TimelineError(f"span {what} {key!r:.60} is unknown.", where=self._at(line))
        return index

    def _check_shown(self, block: dict[str, Array], shown: dict[str, Array], lines: list[int]) -> None:
        """Raise where what a viewer shows is not what the columns say: someone edited one and not the other."""
        start, end = block["start_s"], block["end_s"]
        with np.errstate(all="ignore"):
            for key, exact in (("ts", (start - self._origin_s) * 1e6), ("dur", (end - start) * 1e6)):
                off = np.isfinite(exact) & ~np.isclose(shown[key], exact, rtol=1e-9, atol=1e-3)
                if off.any():
                    i = int(off.argmax())
                    problem = f'"{key}" says {shown[key][i]:.15g} us and "start_s" and "end_s" say {exact[i]:.15g} us.'
                    raise TimelineError(problem, where=self._at(lines[i]))

    def _check_counts(self, header: Header) -> None:
        for what, lines, stated in (
            ("spans", self._span_lines, header.num_spans),
            ("samples", self._sample_lines, header.num_samples),
        ):
            found = sum(map(len, lines))
            if found != stated:
                raise TimelineError(f"has {found} {what}; its header says {stated}.", where=self._where)

    def _build(self, table: Any, rules: tuple[Column, ...], blocks: list[dict[str, Array]], lines: list[Ints]) -> Any:
        if not blocks:
            return table.empty()
        try:
            return table(**{rule.name: np.concatenate([block[rule.name] for block in blocks]) for rule in rules})
        except ColumnError as error:
            raise self._located(error, lines) from None

    def _located(self, error: ColumnError, lines: list[Ints]) -> TimelineError:
        line = int(np.concatenate(lines)[error.row or 0])
        return TimelineError(error.message, where=f"{self._where} line {line}", hint=error.hint)


def _batches(file: BinaryIO | gzip.GzipFile, at: Any) -> Iterator[tuple[int, list[bytes], bytes]]:
    """Yield (number of the first line, event lines without their commas, closing line once it is reached)."""
    number, first, held = 1, 2, 0
    lines: list[bytes] = []
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        if len(line) >= MAX_LINE_BYTES:
            raise TimelineError(f"is longer than {MAX_LINE_BYTES} bytes.", where=at(number))
        at(number)
        if line.startswith(b"]"):
            yield first, lines, line
            return
        lines.append(line.rstrip().removesuffix(b","))
        held += len(line)
        if len(lines) >= BATCH_LINES or held >= BATCH_BYTES:
            yield first, lines, b""
            lines, first, held = [], number + 1, 0
            at(number)
    yield first, lines, b""
    at(number)


def _columns(what: str, raw: dict[str, list[Any]], key: str, kind: type, lines: list[int], at: Any) -> Array:
    """Return one column of a batch; a value of another type is an error at its line."""
    values = raw[key]
    allowed = {int} if kind is int else {int, float}
    if not set(map(type, values)) <= allowed:
        i = next(i for i, value in enumerate(values) if type(value) not in allowed)
        wanted = "a whole number" if kind is int else "a number"
        raise TimelineError(f'{what} "{key}" is {values[i]!r:.60}; it must be {wanted}.', where=at(lines[i]))
    try:
        return np.array(values, np.int64 if kind is int else np.float64)
    except OverflowError:
        i = next(i for i, value in enumerate(values) if not -(2**63) <= value < 2**63)
        raise TimelineError(f'{what} "{key}" is {values[i]!r:.40}, too large.', where=at(lines[i])) from None


def _nothing(constant: str) -> None:
    raise ValueError(constant)
