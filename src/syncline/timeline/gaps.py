"""Gaps between two timelines by kind of work, by span name and by link; always measured minus predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from syncline.describe.units import show_rate, show_size, show_time
from syncline.timeline.align import Alignment
from syncline.timeline.columns import Floats, Ints, mean_rate_Bps, sum_by
from syncline.timeline.intervals import union
from syncline.timeline.spans import SpanKind
from syncline.timeline.timeline import Timeline


@dataclass(frozen=True)
class Gap:
    """One quantity as predicted and as measured, in seconds."""

    label: str
    predicted_s: float
    measured_s: float

    @property
    def gap_s(self) -> float:
        """Measured minus predicted."""
        return self.measured_s - self.predicted_s

    @property
    def relative(self) -> float | None:
        """Gap over predicted; None where nothing was predicted."""
        return self.gap_s / self.predicted_s if self.predicted_s else None

    def line(self) -> str:
        """Return the gap as one line of text."""
        share = "" if self.relative is None else f" ({self.relative:+.1%})"
        sign = "-" if self.gap_s < 0 else "+"
        shown = f"predicted {show_time(self.predicted_s)}, measured {show_time(self.measured_s)}"
        return f"{self.label}: {shown}, gap {sign}{show_time(abs(self.gap_s))}{share}"


@dataclass(frozen=True, eq=False)
class Gaps:
    """The same quantity for many things, in columns."""

    labels: tuple[str, ...]
    predicted_s: Floats
    measured_s: Floats

    @property
    def gap_s(self) -> Floats:
        """Measured minus predicted."""
        return self.measured_s - self.predicted_s

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, label: str) -> Gap:
        i = self.labels.index(label)
        return Gap(label, float(self.predicted_s[i]), float(self.measured_s[i]))

    def worst(self, count: int) -> list[Gap]:
        """Return the largest gaps, by seconds."""
        order = np.argsort(-np.abs(self.gap_s), kind="stable")[:count]
        return [self[self.labels[int(i)]] for i in order if self.gap_s[i] != 0]


@dataclass(frozen=True, eq=False)
class LinkGaps:
    """Links that both timelines sampled: bytes, mean rate while they carried any; and those only one sampled."""

    names: tuple[str, ...]
    predicted_bytes: Floats
    measured_bytes: Floats
    predicted_rate_Bps: Floats
    measured_rate_Bps: Floats
    only_predicted: tuple[str, ...]
    only_measured: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """Return the largest difference in bytes and in rate, and the links only one side saw, as text."""
        result: list[str] = []
        if self.names:
            result += self._largest("bytes", self.predicted_bytes, self.measured_bytes, show_size)
            result += self._largest("rate", self.predicted_rate_Bps, self.measured_rate_Bps, show_rate)
        for label, names in (("predicted", self.only_predicted), ("measured", self.only_measured)):
            if names:
                more = " ..." if len(names) > 3 else ""
                result.append(f"{len(names):,} links carry traffic only as {label}: {', '.join(names[:3])}{more}")
        return tuple(result)

    def _largest(self, what: str, predicted: Floats, measured: Floats, show: Callable[[float], str]) -> list[str]:
        i = int(np.abs(measured - predicted).argmax())
        old, new = float(predicted[i]), float(measured[i])
        if old == new:
            return []
        share = f" ({(new - old) / old:+.1%})" if old else ""
        return [
            f"largest difference in link {what}, {self.names[i]}: predicted {show(old)}, measured {show(new)}{share}"
        ]


def kind_gaps(predicted: Timeline, measured: Timeline, scale: float) -> Gaps:
    """Return the time ranks were busy by kind (overlap counted once), mean over the ranks of each timeline."""
    means = [t.busy_by_kind_s().sum(axis=0) / max(1, t.num_ranks) for t in (predicted, measured)]
    used = [kind for kind in SpanKind if means[0][kind] or means[1][kind]]
    rows = np.array([int(kind) for kind in used], np.int64)
    return Gaps(tuple(kind.name for kind in used), means[0][rows], means[1][rows] * scale)


def name_gaps(predicted: Timeline, measured: Timeline, pairs: Alignment, scale: float) -> Gaps:
    """Return the summed duration of matched spans by name: like against like, so that the gaps subtract."""
    name = predicted.spans.name[pairs.first]
    sums = []
    for spans, rows in ((predicted.spans, pairs.first), (measured.spans, pairs.second)):
        sums.append(sum_by(name, (spans.end_s - spans.start_s)[rows], len(predicted.names)))
    used = np.flatnonzero(np.bincount(name, minlength=len(predicted.names)))
    return Gaps(tuple(predicted.names[i] for i in used), sums[0][used], sums[1][used] * scale)


def link_gaps(predicted: Timeline, measured: Timeline, scale: float) -> LinkGaps:
    """Return what links carried as predicted and as measured, matched by name."""
    first, second = _sampled(predicted), _sampled(measured)
    shared = [name for name in first if name in second]
    rows = [np.array([table[name] for name in shared], np.int64) for table in (first, second)]
    size = [_link_bytes(t)[r] for t, r in zip((predicted, measured), rows, strict=True)]
    rate = [_active_rate(t)[r] for t, r in zip((predicted, measured), rows, strict=True)]
    alone = [tuple(n for n in mine if n not in other) for mine, other in ((first, second), (second, first))]
    return LinkGaps(tuple(shared), size[0], size[1], rate[0], rate[1] / scale, alone[0], alone[1])


def _sampled(timeline: Timeline) -> dict[str, int]:
    """Return the links that carried bytes, by name."""
    return {timeline.links.names[i]: int(i) for i in np.flatnonzero(_link_bytes(timeline) > 0)}


def _link_bytes(timeline: Timeline) -> Floats:
    return sum_by(timeline.samples.link, timeline.samples.size_bytes, len(timeline.links))


def _active_rate(timeline: Timeline) -> Floats:
    samples = timeline.samples
    rows: Ints = np.flatnonzero(samples.size_bytes > 0)
    busy = union(samples.link[rows], samples.start_s[rows], samples.end_s[rows]).length_s(len(timeline.links))
    return mean_rate_Bps(_link_bytes(timeline), busy)
