"""What a gap costs: lost GPU-hours and dollars a day.

A job spends a share of its step waiting for communication that nothing hides. If that takes f times as long as this
topology allows, then the step takes 1 + share * (1 - 1/f) parts where it could take 1: GPUs that many hours a day do
nothing. `share` is of the step as it is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.bench.verdict import Judgement
from syncline.describe.plain import JsonObject
from syncline.errors import BenchError

HOURS = 24.0


@dataclass(frozen=True)
class Loss:
    """One day's loss, and what it was reckoned from."""

    num_gpus: int
    exposed_share: float
    lost_share: float
    usd_per_gpu_hour: float | None
    price_source: str
    size_bytes: int
    factor: float

    @property
    def gpu_hours_per_day(self) -> float:
        return self.num_gpus * HOURS * self.lost_share

    @property
    def usd_per_day(self) -> float | None:
        return None if self.usd_per_gpu_hour is None else self.gpu_hours_per_day * self.usd_per_gpu_hour

    def to_json(self) -> JsonObject:
        """Return the loss as plain values."""
        return {
            "gpus": self.num_gpus, "exposed_share": self.exposed_share, "lost_share": self.lost_share,
            "gpu_hours_per_day": self.gpu_hours_per_day, "usd_per_day": self.usd_per_day,
            "usd_per_gpu_hour": self.usd_per_gpu_hour, "price_source": self.price_source,
            "size_bytes": self.size_bytes, "factor": self.factor,
        }  # fmt: skip


def loss(
    rows: Sequence[Judgement], num_gpus: int, exposed_share: float, usd_per_gpu_hour: float | None, price_source: str
) -> Loss | None:
    """Return what the gap at the largest size costs: nothing where it is not slow, None without a prediction."""
    if not 0 < exposed_share <= 1:
        raise BenchError(f"the exposed share {exposed_share:g} is not above 0 and up to 1.",
                         hint="Give the part of a step in which only communication happens, as 0.2.")  # fmt: skip
    known = [row for row in rows if row.expected is not None and row.factor is not None]
    if not known:
        return None
    largest = max(row.measured.size_bytes for row in known)
    last = [row for row in known if row.measured.size_bytes == largest]
    # Jobs use the library's own collective; where it was not measured, the fastest that was.
    row = min(last, key=lambda row: (row.measured.algorithm != "vendor", row.measured.timing.median_s))
    factor = row.factor or 1.0
    lost = exposed_share * (1 - 1 / factor) if factor > 1 else 0.0
    return Loss(num_gpus, exposed_share, lost, usd_per_gpu_hour, price_source, row.measured.size_bytes, factor)
