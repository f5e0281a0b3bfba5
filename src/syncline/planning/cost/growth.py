"""Growth: compute against interconnect, fitted to five generations of the parts catalogue."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from syncline.describe.plain import JsonObject
from syncline.fabric.catalog import load_catalog

#: Hosts and the years in which they first shipped.
GENERATIONS = (("dgx-1-v100", 2017), ("dgx-a100", 2020), ("dgx-h100", 2022), ("dgx-b200", 2024), ("dgx-b300", 2025))


@dataclass(frozen=True)
class Trend:
    """Something that grows by `factor` every two years."""

    factor: float

    def after(self, years: float) -> float:
        """Return how many times larger it is after so many years."""
        return float(self.factor ** (years / 2))


def fit(years: Sequence[float], values: Sequence[float]) -> Trend:
    """Return the exponential trend through these points, by least squares on the logarithms."""
    slope = float(np.polyfit(np.asarray(years, float), np.log(np.asarray(values, float)), 1)[0])
    return Trend(math.exp(slope * 2))


def rates() -> Mapping[str, list[float]]:
    """Return what a GPU of each generation computes (dense 16-bit) and sends, from the parts catalogue."""
    catalog = load_catalog()
    found: dict[str, list[float]] = {"compute": [], "scale_up": [], "network": []}
    for name, _ in GENERATIONS:
        host = catalog.host(name)
        gpu = catalog.gpu(host.gpu)
        found["compute"].append(gpu.flops_at("bf16") or gpu.flops_at("fp16") or 0.0)
        found["scale_up"].append(catalog.scale_up_Bps(gpu))
        found["network"].append(host.num_ports * catalog.link(host.link or "").rate_Bps / host.num_gpus)
    return found


def fitted() -> dict[str, Trend]:
    """Return the fitted growth per GPU of compute, scale-up links and network."""
    return {name: fit([year for _, year in GENERATIONS], values) for name, values in rates().items()}


def to_json(years: float = 5.0) -> JsonObject:
    """Return the projection as plain data."""
    trends = fitted()
    after = {name: trend.after(years) for name, trend in trends.items()}
    return {
        "years": years, "per_two_years": {name: trend.factor for name, trend in trends.items()}, "after": after,
        "gap_compute_to_network": after["compute"] / after["network"],
        "gap_compute_to_scale_up": after["compute"] / after["scale_up"],
    }  # fmt: skip
