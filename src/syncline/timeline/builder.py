"""Make a timeline piece by piece: rows in blocks of arrays, or one at a time from something that is running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from syncline.errors import TimelineError
from syncline.timeline.columns import Array, Table, checked
from syncline.timeline.links import LinkSamples, NamedLinks
from syncline.timeline.source import Source, check_text
from syncline.timeline.spans import SpanKind, Spans
from syncline.timeline.timeline import Timeline

BLOCK_ROWS = 8192


class TimelineBuilder:
    """Collects spans and link samples, then `build()`s a Timeline.

    builder = TimelineBuilder(source)
    builder.add_spans(rank=ranks, start_s=starts, end_s=ends, kind=SpanKind.SEND, name="chunk")
    builder.add_span(0, 0.0, 1e-3, SpanKind.COMPUTE, "forward")
    builder.add_samples(link=builder.link("leaf-0 -> spine-1", 50e9), start_s=t0, end_s=t1, size_bytes=sizes)
    timeline = builder.build()
    """

    def __init__(self, source: Source, metadata: Mapping[str, Any] | None = None) -> None:
        self.source = source
        self.metadata = dict(metadata or {})
        self._names: dict[str, int] = {}
        self._links: dict[str, int] = {}
        self._capacity_Bps: list[float] = []
        self._spans = _Rows(Spans)
        self._samples = _Rows(LinkSamples)

    def name(self, text: str) -> int:
        """Return the index of a span name, entering it in the table when new."""
        return self._names.setdefault(check_text(text, "span name"), len(self._names))

    def link(self, name: str, capacity_Bps: float = float("nan")) -> int:
        """Return the index of a link, entering it when new; a known link must not change its capacity."""
        index = self._links.get(name)
        if index is None:
            index = self._links[check_text(name, "link name")] = len(self._capacity_Bps)
            self._capacity_Bps.append(capacity_Bps)
        elif np.isnan(self._capacity_Bps[index]):
            self._capacity_Bps[index] = capacity_Bps
        elif not np.isnan(capacity_Bps) and capacity_Bps != self._capacity_Bps[index]:
            before = self._capacity_Bps[index]
            raise TimelineError(f'link "{name}" has capacity {before} B/s and cannot become {capacity_Bps} B/s.')
        return index

    def add_spans(self, **columns: object) -> None:
        """Append a block of spans: the columns of `Spans`; one value stands for all rows; `name` may be a text."""
        if isinstance(columns.get("name"), str):
            columns["name"] = self.name(str(columns["name"]))
        self._spans.add_block(columns)

    def add_span(
        self,
        rank: int,
        start_s: float,
        end_s: float,
        kind: SpanKind,
        name: str,
        *,
        stream: int = 0,
        step: int = -1,
        round: int = -1,
        size_bytes: int = 0,
        peer: int = -1,
        link: int = -1,
    ) -> None:
        """Append one span; it is checked with its block, at the latest in `build()`."""
        index = self.name(name)
        self._spans.add_row((rank, start_s, end_s, int(kind), index, stream, step, round, size_bytes, peer, link))

    def add_samples(self, **columns: object) -> None:
        """Append a block of samples: the columns of `LinkSamples`; `link` may be a name, `rate_Bps` left out."""
        if isinstance(columns.get("link"), str):
            columns["link"] = self.link(str(columns["link"]))
        if columns.get("rate_Bps") is None:
            columns["rate_Bps"] = _own_rate(columns)
        self._samples.add_block(columns)

    def build(self) -> Timeline:
        """Return the timeline so far; the builder can go on."""
        spans = Spans(**self._spans.columns())
        samples = LinkSamples(**self._samples.columns())
        links = NamedLinks(tuple(self._links), np.array(self._capacity_Bps, np.float64))
        return Timeline(self.source, spans, tuple(self._names), samples, links, self.metadata)


class _Rows:
    """Blocks of one table's columns, checked as they come, joined at the end."""

    def __init__(self, table: type[Table]) -> None:
        self._table = table.TABLE
        self._rules = table.RULES
        self._blocks: list[list[Array]] = []
        self._loose: list[tuple[float, ...]] = []

    def add_row(self, row: tuple[float, ...]) -> None:
        self._loose.append(row)
        if len(self._loose) >= BLOCK_ROWS:
            self._flush()

    def add_block(self, columns: Mapping[str, object]) -> None:
        self._flush()
        unknown = columns.keys() - {rule.name for rule in self._rules}
        if unknown:
            known = ", ".join(rule.name for rule in self._rules)
            raise TimelineError(f'{self._table} have no column "{min(unknown)}".', hint=f"Columns: {known}.")
        num_rows = _num_rows(columns)
        # Copied: producers often fill the same buffer again.
        block = [checked(self._table, rule, columns.get(rule.name), num_rows).copy() for rule in self._rules]
        self._blocks.append(block)

    def columns(self) -> dict[str, Array]:
        self._flush()
        if len(self._blocks) > 1:
            self._blocks = [[np.concatenate(parts) for parts in zip(*self._blocks, strict=True)]]
        if not self._blocks:
            return {rule.name: np.empty(0, rule.dtype) for rule in self._rules}
        return {rule.name: column for rule, column in zip(self._rules, self._blocks[0], strict=True)}

    def _flush(self) -> None:
        if self._loose:
            loose, self._loose = self._loose, []
            self.add_block({r.name: np.array(v) for r, v in zip(self._rules, zip(*loose, strict=True), strict=True)})


def _num_rows(columns: Mapping[str, object]) -> int:
    sizes = [np.asarray(value).size for value in columns.values() if np.asarray(value).ndim]
    return max(sizes, default=1)


def _own_rate(columns: Mapping[str, object]) -> object:
    if not {"start_s", "end_s", "size_bytes"} <= columns.keys():
        return None
    parts = np.broadcast_arrays(*(np.asarray(columns[key]) for key in ("start_s", "end_s", "size_bytes")))
    start, end, size = (np.atleast_1d(part) for part in parts)
    return LinkSamples(np.zeros(len(start), np.int32), start, end, size).rate_Bps
