"""How sure it is that a collective is slower than it should be, from what each size says.

The upper end of a prediction's interval is what 95 of 100 sound clusters stay below. How far a slow size lies outside,
in those terms, is the chance that a sound cluster would not take that long; the middle one of the slow sizes counts. It
is lowered by sizes that contradict it, and where only one or two sizes show it.

Sizes have a say where they measure the same thing: those that the rate of a link bounds (their limiting link is at
least half as busy as at the busiest size), or, where only small sizes are slow, the small ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from syncline.bench.expect import Expectation
from syncline.bench.measured import Measurement

Row = tuple[Measurement, Expectation]

SMALL = 1 << 20
"""Bytes below which latency decides, not a rate."""
MOST = 0.99
_HIGH = NormalDist().inv_cdf(0.95)
_ONE_ODD = 0.25
"""A single slow size may be an accident of the measurement, one time in four; each further one must be too."""


@dataclass(frozen=True)
class Certainty:
    """How sure a slowdown is, and the sizes that say so."""

    confidence: float
    num_slow: int
    num_slower: int
    num_sizes: int
    small: bool

    def line(self) -> str:
        """Return what the confidence rests on."""
        which = "small size" if self.small else "size that a link's rate bounds"
        sizes = which if self.num_sizes == 1 else which.replace("size", "sizes", 1)
        return f"{self.num_slow} of {self.num_sizes} {sizes} above the interval, {self.num_slower} above the prediction"


def certainty(slow: Sequence[Row], rows: Sequence[Row]) -> Certainty:
    """Return how sure it is that the slow rows are slow, among all predicted rows of the algorithm."""
    small = all(measured.size_bytes < SMALL for measured, _ in slow)
    busiest = max(_busy(row) for row in rows)
    heard = [row for row in rows if row in slow or (row[0].size_bytes < SMALL if small else _busy(row) >= busiest / 2)]
    slower = [row for row in heard if _factor(row) > 1]
    outside = NormalDist().cdf(median(_deviation(row) for row in slow))
    sure = outside * len(slower) / len(heard) * (1 - _ONE_ODD ** len(slow))
    return Certainty(min(MOST, round(sure, 2)), len(slow), len(slower), len(heard), small)


def _factor(row: Row) -> float:
    return row[0].timing.median_s / row[1].time_s


def _busy(row: Row) -> float:
    """Return the share of its line rate that the limiting link should carry."""
    expected = row[1]
    return expected.wire_Bps(expected.time_s) / expected.line_Bps if expected.line_Bps else 0.0


def _deviation(row: Row) -> float:
    """Return how far a time lies above the prediction, in standard deviations of sound clusters' log times."""
    spread = math.log(row[1].high_s / row[1].time_s) / _HIGH
    return math.log(_factor(row)) / spread if spread > 0 else math.inf
