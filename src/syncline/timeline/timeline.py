"""The timeline: what happened, or would happen, when, on which rank and link, and who says so.

timeline = simulate(program, fabric)          # or lab, runtime, watch: all return this type
timeline.makespan_s, timeline.exposed_s(), timeline.link_use().mean_utilisation
save(timeline, "run.json.gz")                 # for ui.perfetto.dev
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from syncline.describe.frozen import FrozenColumns
from syncline.errors import TimelineError
from syncline.timeline.columns import Array, ColumnError, Floats, Ints, mean_rate_Bps, representative, sum_by
from syncline.timeline.intervals import Intervals, subtract, union
from syncline.timeline.links import LinkSamples, NamedLinks, unique_names
from syncline.timeline.rates import peak_rates_Bps
from syncline.timeline.source import Source, json_safe
from syncline.timeline.spans import COMMUNICATION, Int32s, SpanKind, Spans


@dataclass(frozen=True, eq=False)
class LinkUse:
    """Every link over the whole timeline: columns by link index; utilisations are NaN where the capacity is unknown."""

    size_bytes: Floats
    mean_rate_Bps: Floats
    peak_rate_Bps: Floats
    mean_utilisation: Floats
    peak_utilisation: Floats
    window_s: float


@dataclass(frozen=True, eq=False)
class Timeline(FrozenColumns):
    """Spans per rank and samples per link, with their source: immutable, checked when made."""

    source: Source
    spans: Spans = field(default_factory=Spans.empty)
    names: tuple[str, ...] = ()
    samples: LinkSamples = field(default_factory=LinkSamples.empty)
    links: NamedLinks = field(default_factory=NamedLinks)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", unique_names(self.names, "span"))
        if not isinstance(self.metadata, Mapping):
            raise TimelineError(f"metadata is {type(self.metadata).__name__}; it must be an object with text keys.")
        object.__setattr__(self, "metadata", json_safe(self.metadata))
        _check_index("spans", "name", self.spans.name, len(self.names), "names")
        _check_index("spans", "link", self.spans.link, len(self.links), "links")
        _check_index("samples", "link", self.samples.link, len(self.links), "links")

    # Extent

    @cached_property
    def start_s(self) -> float:
        """First moment: of the spans, or of the samples where there are no spans."""
        return float(self._clock.start_s.min()) if len(self._clock) else 0.0

    @cached_property
    def end_s(self) -> float:
        """Last moment: of the spans, or of the samples where there are no spans."""
        return float(self._clock.end_s.max()) if len(self._clock) else 0.0

    @property
    def makespan_s(self) -> float:
        """Time from the first start to the last end."""
        return self.end_s - self.start_s

    @property
    def _clock(self) -> Spans | LinkSamples:
        return self.spans if len(self.spans) else self.samples

    # Ranks

    @cached_property
    def ranks(self) -> Int32s:
        """Ranks that have a span, ascending; per-rank results are in this order."""
        rank = representative(self.spans.rank)
        if len(rank) and int(rank.max()) < 4 * len(rank) + 1_000_000:
            return np.flatnonzero(np.bincount(rank)).astype(np.int32)
        return np.unique(rank)

    @property
    def num_ranks(self) -> int:
        """Number of ranks that have a span."""
        return len(self.ranks)

    def rank_index(self) -> Ints:
        """Return for each span the position of its rank in `ranks`."""
        rank = self.spans.rank
        if len(self.ranks) and self.ranks[-1] == len(self.ranks) - 1:
            return rank.astype(np.int64)
        return np.searchsorted(self.ranks, rank).astype(np.int64)

    def busy_by_kind_s(self) -> Floats:
        """Return the time each rank spent in each kind (ranks x kinds): union of the spans, so overlap counts once."""
        num_kinds = len(SpanKind)
        group = self.rank_index() * num_kinds + self.spans.kind
        covered = union(group, self.spans.start_s, self.spans.end_s)
        return covered.length_s(self.num_ranks * num_kinds).reshape(self.num_ranks, num_kinds)

    def busy_s(self, kinds: Iterable[SpanKind] | None = None) -> Floats:
        """Return the time each rank spent in any of `kinds` (all but WAIT unless given), overlap counted once."""
        chosen = [kind for kind in SpanKind if kind is not SpanKind.WAIT] if kinds is None else list(kinds)
        return self.covered(chosen).length_s(self.num_ranks)

    def idle_s(self) -> Floats:
        """Return the part of the makespan in which each rank did nothing, or only waited."""
        return np.maximum(self.makespan_s - self.busy_s(), 0.0)

    def covered(self, kinds: Iterable[SpanKind]) -> Intervals:
        """Return when each rank was in any of `kinds`: disjoint intervals, grouped by position in `ranks`."""
        wanted = np.zeros(256, bool)
        wanted[[int(kind) for kind in kinds]] = True
        rows = np.flatnonzero(wanted[self.spans.kind])
        return union(self.rank_index()[rows], self.spans.start_s[rows], self.spans.end_s[rows])

    def exposed(
        self,
        communication: Iterable[SpanKind] = COMMUNICATION,
        compute: Iterable[SpanKind] = (SpanKind.COMPUTE,),
    ) -> Intervals:
        """Return when each rank communicated with no computation of its own to hide it."""
        return subtract(self.covered(communication), self.covered(compute))

    def exposed_s(
        self,
        communication: Iterable[SpanKind] = COMMUNICATION,
        compute: Iterable[SpanKind] = (SpanKind.COMPUTE,),
    ) -> Floats:
        """Return each rank's exposed communication time: communication that its own computation does not cover."""
        return self.exposed(communication, compute).length_s(self.num_ranks)

    @cached_property
    def critical_rank(self) -> int | None:
        """The rank that ends last; of those that end together (to 1e-9 of the makespan) the one that idles least."""
        if not len(self.spans):
            return None
        last = np.full(self.num_ranks, -np.inf)
        np.maximum.at(last, self.rank_index(), self.spans.end_s)
        together = np.flatnonzero(last >= self.end_s - 1e-9 * self.makespan_s)
        if len(together) > 1:
            together = together[[int(self.busy_s()[together].argmax())]]
        return int(self.ranks[together[0]])

    # Links

    def link_use(self, window_s: float = 0.0) -> LinkUse:
        """Return what every link carried: mean over the whole time, peak over any `window_s` (0: at an instant)."""
        size = sum_by(self.samples.link, self.samples.size_bytes, len(self.links))
        start_s, end_s = self._samples_extent()
        mean = mean_rate_Bps(size, np.full(len(self.links), end_s - start_s))
        peak = peak_rates_Bps(self.samples, len(self.links), window_s)
        capacity = np.where(self.links.capacity_Bps > 0, self.links.capacity_Bps, np.nan)
        return LinkUse(size, mean, peak, mean / capacity, peak / capacity, window_s)

    def _samples_extent(self) -> tuple[float, float]:
        """Return the time that spans and samples cover together: counters may run on after the last span."""
        if not len(self.samples):
            return self.start_s, self.end_s
        first, last = float(self.samples.start_s.min()), float(self.samples.end_s.max())
        return (min(first, self.start_s), max(last, self.end_s)) if len(self.spans) else (first, last)

    # Whole

    def where(self, rows: Array, samples: Array | None = None) -> Timeline:
        """Return a timeline with only the chosen spans (mask or indices), and only the chosen samples if given."""
        kept = self.samples if samples is None else self.samples.take(samples)
        return Timeline(self.source, self.spans.take(rows), self.names, kept, self.links, self.metadata)


def _check_index(table: str, column: str, index: Array, size: int, of: str) -> None:
    seen = representative(index)
    if len(seen) and int(seen.max()) >= size:
        row = int(seen.argmax())
        problem = f"{seen[row].item()} is not in the table of {size} {of}."
        hint = f"Indices into {of} run from 0 to {size - 1}." if size else ""
        raise ColumnError(table, column, row, problem, hint=hint)
