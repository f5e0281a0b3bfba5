"""The few numbers of a timeline that people ask first, as data and as lines of text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.describe.units import show_rate, show_size, show_time
from syncline.timeline.spans import SpanKind
from syncline.timeline.timeline import Timeline


@dataclass(frozen=True)
class BusiestLink:
    """The link with the highest mean utilisation (the most bytes where no capacity is known)."""

    name: str
    size_bytes: float
    mean_rate_Bps: float
    mean_utilisation: float | None
    peak_utilisation: float | None


@dataclass(frozen=True)
class Summary:
    """Makespan, who was busy with what, what was exposed, and the busiest link; seconds are means over ranks."""

    source: str
    makespan_s: float
    num_ranks: int
    num_spans: int
    num_links: int
    num_samples: int
    busy_s: dict[str, float]
    exposed_mean_s: float
    exposed_worst_s: float
    exposed_worst_rank: int | None
    critical_rank: int | None
    busiest_link: BusiestLink | None

    def lines(self) -> tuple[str, ...]:
        """Return the summary as text, the source first: a number never travels alone."""
        extent = f"makespan {show_time(self.makespan_s)}, {self.num_ranks} ranks, {self.num_spans:,} spans"
        result = [self.source, extent]
        shown = ", ".join(f"{kind.lower()} {show_time(time_s)}" for kind, time_s in self.busy_s.items())
        if shown:
            result.append(f"busy, mean by rank: {shown}")
        if self.exposed_worst_rank is not None:
            worst = f"worst {show_time(self.exposed_worst_s)} at rank {self.exposed_worst_rank}"
            result.append(f"exposed communication, mean {show_time(self.exposed_mean_s)}, {worst}")
        if self.critical_rank is not None:
            result.append(f"critical rank {self.critical_rank}")
        if self.busiest_link is not None:
            result.append(_link_line(self.busiest_link))
        return tuple(result)


def summarise(timeline: Timeline) -> Summary:
    """Return the summary of a timeline."""
    busy = timeline.busy_by_kind_s()
    means = busy.mean(axis=0) if timeline.num_ranks else np.zeros(len(SpanKind))
    exposed = timeline.exposed_s()
    worst = int(exposed.argmax()) if len(exposed) else None
    return Summary(
        source=timeline.source.label(),
        makespan_s=timeline.makespan_s,
        num_ranks=timeline.num_ranks,
        num_spans=len(timeline.spans),
        num_links=len(timeline.links),
        num_samples=len(timeline.samples),
        busy_s={kind.name: float(means[kind]) for kind in SpanKind if means[kind] > 0},
        exposed_mean_s=float(exposed.mean()) if len(exposed) else 0.0,
        exposed_worst_s=0.0 if worst is None else float(exposed[worst]),
        exposed_worst_rank=None if worst is None else int(timeline.ranks[worst]),
        critical_rank=timeline.critical_rank,
        busiest_link=_busiest(timeline),
    )


def _busiest(timeline: Timeline) -> BusiestLink | None:
    use = timeline.link_use()
    if not len(timeline.links) or not use.size_bytes.any():
        return None
    known = not np.isnan(use.mean_utilisation).all()
    i = int(np.nanargmax(np.round(use.mean_utilisation, 9))) if known else int(use.size_bytes.argmax())
    return BusiestLink(
        name=timeline.links.names[i],
        size_bytes=float(use.size_bytes[i]),
        mean_rate_Bps=float(use.mean_rate_Bps[i]),
        mean_utilisation=_known(use.mean_utilisation[i]),
        peak_utilisation=_known(use.peak_utilisation[i]),
    )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _link_line(link: BusiestLink) -> str:
    share = "capacity unknown"
    if link.mean_utilisation is not None and link.peak_utilisation is not None:
        share = f"{link.mean_utilisation:.1%} of capacity, peak {link.peak_utilisation:.1%}"
    return f"busiest link {link.name}: {show_size(link.size_bytes)} at {show_rate(link.mean_rate_Bps)}, {share}"
