"""One measured collective: its size and how long it took, how often, with the bandwidths nccl-tests makes of that.

algbw is size over time. busbw is algbw times what every rank must at least send and receive, so that it can be held
against the rate of a link, whatever the number of ranks; it is not what a link carried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.schedule.collective import Kind

Floats = NDArray[np.float64]
PROGRAM = {
    Kind.ALL_REDUCE: "all_reduce_perf", Kind.ALL_GATHER: "all_gather_perf", Kind.REDUCE_SCATTER: "reduce_scatter_perf",
    Kind.BROADCAST: "broadcast_perf", Kind.REDUCE: "reduce_perf", Kind.ALL_TO_ALL: "alltoall_perf",
    Kind.ALL_TO_ALLV: "alltoallv_perf", Kind.GATHER: "gather_perf", Kind.SCATTER: "scatter_perf",
    Kind.SEND_RECV: "sendrecv_perf",
}  # fmt: skip
NAMES = {
    name.removesuffix("_perf").replace("_", ""): kind for kind, name in PROGRAM.items() if kind != Kind.ALL_TO_ALLV
}
"""Collectives as nccl-tests names its programs, without the underscores."""
_WHOLE = frozenset({Kind.BROADCAST, Kind.REDUCE, Kind.SEND_RECV})


def bus_factor(kind: Kind, num_ranks: int) -> float:
    """Return busbw over algbw, by nccl-tests' convention."""
    if kind is Kind.ALL_REDUCE:
        return 2 * (num_ranks - 1) / num_ranks
    return 1.0 if kind in _WHOLE else (num_ranks - 1) / num_ranks


@dataclass(frozen=True)
class Timing:
    """Repetitions of one measurement in short: the median, where 80 % of them lie, and how many there were."""

    median_s: float
    p10_s: float
    p90_s: float
    num_repeats: int

    @classmethod
    def of(cls, times_s: Floats) -> Timing:
        """Return the summary of repetitions."""
        p10, median, p90 = np.quantile(times_s, (0.1, 0.5, 0.9)).tolist()
        return cls(median, p10, p90, len(times_s))

    @classmethod
    def single(cls, time_s: float, num_repeats: int = 1) -> Timing:
        """Return a time of which the spread is not known: an average that somebody else took."""
        return cls(time_s, time_s, time_s, num_repeats)

    @property
    def spread(self) -> float:
        """Width of the middle 80 %, over the median."""
        return (self.p90_s - self.p10_s) / self.median_s if self.median_s else 0.0


@dataclass(frozen=True)
class Measurement:
    """One line of a sweep. `num_wrong` is None where nothing was checked."""

    kind: Kind
    num_ranks: int
    size_bytes: int
    timing: Timing
    algorithm: str = "vendor"
    dtype: str = "float"
    num_elements: int = 0
    redop: str = "none"
    root: int = -1
    num_wrong: int | None = None
    error: float | None = None
    in_place: bool = True
    other_s: float | None = None
    """The same size measured in the other place (in place or out of place), where a log has both."""

    @property
    def apart(self) -> float:
        """How far in place and out of place lie apart, over the shorter; 0 where only one was measured."""
        if not self.other_s:
            return 0.0
        short, long = sorted((self.timing.median_s, self.other_s))
        return long / short - 1

    @property
    def algbw_Bps(self) -> float:
        return self.size_bytes / self.timing.median_s if self.timing.median_s > 0 else 0.0

    @property
    def busbw_Bps(self) -> float:
        return self.algbw_Bps * bus_factor(self.kind, self.num_ranks)
