"""Growth: compute against interconnect, as claimed and as fitted to five generations of the parts catalogue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncline.describe.plain import JsonObject
from syncline.fabric.catalog import load_catalog

# Years in which the hosts first shipped.
GENERATIONS = (("dgx-1-v100", 2017), ("dgx-a100", 2020), ("dgx-h100", 2022), ("dgx-b200", 2024), ("dgx-b300", 2025))


@dataclass(frozen=True)
class Trend:
    """Something that grows by `factor` every `period_years`."""

    name: str
    factor: float
    period_years: float = 2.0

    def after(self, years: float) -> float:
        """Return how many times larger it is after so many years."""
        return float(self.factor ** (years / self.period_years))

    def years_to(self, times: float) -> float:
        """Return how long it takes to grow so many times."""
        return math.log(times) / math.log(self.factor) * self.period_years if self.factor > 1 else math.inf


@dataclass(frozen=True)
class Generation:
    """One generation of host: what each of its GPUs can compute and send."""

    host: str
    year: int
    flops: float
    scale_up_Bps: float
    network_Bps: float

    @property
    def flops_per_byte(self) -> float:
        """Operations a GPU does in the time it sends one byte: how much work must hide each byte."""
        return self.flops / self.network_Bps


def gap(faster: Trend, slower: Trend, years: float) -> float:
    """Return how many times wider the gap between two trends is after so many years."""
    return faster.after(years) / slower.after(years)


def generations() -> tuple[Generation, ...]:
    """Return the generations with dense 16-bit rates and network rates per GPU, from the parts catalogue."""
    catalog = load_catalog()
    rows = []
    for name, year in GENERATIONS:
        host = catalog.host(name)
        gpu = catalog.gpu(host.gpu)
        flops = gpu.flops_at("bf16") or gpu.flops_at("fp16") or 0.0
        rate = host.num_ports * catalog.link(host.link or "").rate_Bps / host.num_gpus
        rows.append(Generation(host.name, year, flops, catalog.scale_up_Bps(gpu), rate))
    return tuple(rows)


def fit(name: str, years: Sequence[float], values: Sequence[float], period_years: float = 2.0) -> Trend:
    """Return the exponential trend through these points, by least squares on the logarithms."""
    slope = float(np.polyfit(np.asarray(years, float), np.log(np.asarray(values, float)), 1)[0])
    return Trend(name, math.exp(slope * period_years), period_years)


def fitted() -> dict[str, Trend]:
    """Return the fitted growth per GPU of compute, scale-up links and network."""
    rows = generations()
    years = [float(row.year) for row in rows]
    return {
        "compute": fit("compute", years, [row.flops for row in rows]),
        "scale_up": fit("scale-up links", years, [row.scale_up_Bps for row in rows]),
        "network": fit("network", years, [row.network_Bps for row in rows]),
    }


def to_json(years: float = 5.0) -> JsonObject:
    """Return the projection as plain data."""
    trends = fitted()
    return {
        "years": years,
        "per_two_years": {name: trend.factor for name, trend in trends.items()},
        "after": {name: trend.after(years) for name, trend in trends.items()},
        "gap_compute_to_network": gap(trends["compute"], trends["network"], years),
        "gap_compute_to_scale_up": gap(trends["compute"], trends["scale_up"], years),
    }
