"""What the links of a lab carried, sampled every millisecond: a Timeline, queues, drops, and bursts averages hide.

with lab.counters() as recording:
    lab.run(command)
recording.counters.timeline().link_use()
recording.counters.bursts()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.errors import LabError
from syncline.lab.blueprint import Blueprint
from syncline.lab.drafting import IGNORES
from syncline.timeline import Source, SourceKind, Timeline, TimelineBuilder
from syncline.timeline.links import LinkSamples
from syncline.timeline.rates import binned_bytes
from syncline.version import __version__

SAMPLE_ROW = np.dtype([("link", "<i4"), ("start_s", "<f8"), ("end_s", "<f8"), ("size_bytes", "<u8")])
QUEUE_ROW = np.dtype(
    [("link", "<i4"), ("at_s", "<f8"), ("backlog_bytes", "<u4"), ("backlog_packets", "<u4"), ("drops", "<u4")]
)


@dataclass(frozen=True)
class LinkBurst:
    """A link that was nearly full for a moment, while its average over the second around it was not."""

    link: str
    start_s: float
    duration_s: float
    utilisation: float
    average: float
    """Utilisation over the whole second in which it lies."""


@dataclass(frozen=True, eq=False)
class LinkCounters:
    """Samples and queues of all links of a lab, as columns; times count from `origin_s` of the monotonic clock."""

    blueprint: Blueprint
    samples: NDArray[np.void]
    queues: NDArray[np.void]
    origin_s: float
    end_s: float
    interval_s: float

    @property
    def duration_s(self) -> float:
        """How long was recorded."""
        return self.end_s - self.origin_s

    def links(self) -> dict[int, tuple[str, float]]:
        """Return name and emulated rate of every directed link, by link id."""
        names = self.blueprint.link_names
        return {link: (names[link], rate) for c in self.blueprint.cables for _, _, link, rate in c.ends()}

    def timeline(self) -> Timeline:
        """Return what every link carried; rates and capacities are those of the lab, at its scale."""
        source = Source(SourceKind.LAB, "syncline lab", __version__, ignores=IGNORES)
        metadata = {
            "cluster": self.blueprint.name,
            "scale": self.blueprint.scale,
            "interval_s": self.interval_s,
            "monotonic_origin_s": self.origin_s,
            "duration_s": self.duration_s,
            "drops": self.drops(),
        }
        builder = TimelineBuilder(source, metadata)
        place = {link: builder.link(name, rate) for link, (name, rate) in self.links().items()}
        if len(self.samples):
            builder.add_samples(
                link=self._places(place),
                start_s=self.samples["start_s"] - self.origin_s,
                end_s=self.samples["end_s"] - self.origin_s,
                size_bytes=self.samples["size_bytes"].astype(np.float64),
            )
        return builder.build()

    def carried_bytes(self) -> dict[str, int]:
        """Return the bytes every link carried, frames counted as the shaper counts them."""
        links = list(self.links())
        total = dict.fromkeys(links, 0)
        for link in links:
            total[link] = int(self.samples["size_bytes"][self.samples["link"] == link].sum())
        return {self.links()[link][0]: count for link, count in total.items()}

    def drops(self) -> dict[str, int]:
        """Return packets dropped by full queues while recording, for links that lost any."""
        lost = {}
        for link, (name, _) in self.links().items():
            mine = self.queues["drops"][self.queues["link"] == link]
            if len(mine) and int(mine[-1]) > int(mine[0]):
                lost[name] = int(mine[-1]) - int(mine[0])
        return lost

    def peak_backlog_bytes(self) -> dict[str, int]:
        """Return the longest queue seen at every link."""
        peak = {}
        for link, (name, _) in self.links().items():
            mine = self.queues["backlog_bytes"][self.queues["link"] == link]
            peak[name] = int(mine.max()) if len(mine) else 0
        return peak

    def utilisation(self, bin_s: float) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """Return link names and the utilisation of each in bins of `bin_s` (links x bins)."""
        links = self.links()
        place = {link: i for i, link in enumerate(links)}
        bins = max(1, int(np.ceil(self.duration_s / bin_s - 1e-9)))
        rows = LinkSamples(
            self._places(place),
            np.clip(self.samples["start_s"] - self.origin_s, 0.0, None),
            self.samples["end_s"] - self.origin_s,
            self.samples["size_bytes"].astype(np.float64),
        )
        rates = np.array([rate for _, rate in links.values()])
        carried = binned_bytes(rows, len(links), 0.0, bin_s, bins)
        return tuple(name for name, _ in links.values()), carried / bin_s / rates[:, None]

    def bursts(self, *, window_s: float = 0.005, full: float = 0.9, calm: float = 0.5) -> list[LinkBurst]:
        """Return moments at which a link was at least `full` over `window_s`, in seconds whose average is below `calm`.

        A window should hold 20 packets or more: bytes are counted packet by packet.
        """
        names, fine = self.utilisation(window_s)
        _, coarse = self.utilisation(1.0)
        found = []
        for link, name in enumerate(names):
            edges = np.flatnonzero(np.diff(np.concatenate(([False], fine[link] >= full, [False])).astype(np.int8)))
            for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                second = min(int(first * window_s), coarse.shape[1] - 1)
                if coarse[link, second] < calm:
                    peak = float(fine[link, first:last].max())
                    start_s, length_s = first * window_s, (last - first) * window_s
                    found.append(LinkBurst(name, start_s, length_s, peak, float(coarse[link, second])))
        return found

    def _places(self, place: Mapping[int, int]) -> NDArray[np.int32]:
        links = np.fromiter(place, np.int64, len(place))
        order = np.argsort(links)
        values = np.fromiter(place.values(), np.int32, len(place))[order]
        found: NDArray[np.int32] = values[np.searchsorted(links[order], self.samples["link"])]
        return found


def read_rows(data: bytes, row: np.dtype[np.void]) -> NDArray[np.void]:
    """Return whole rows of what a sampler wrote."""
    if len(data) > 1 << 31:
        raise LabError("the recording is larger than 2 GiB.", hint="Record for a shorter time, or less often.")
    return np.frombuffer(data[: len(data) - len(data) % row.itemsize], dtype=row)
