"""NCCL's time for an operation at many sizes: what it believes, what it chooses, what that takes, and how sure that is.

prediction = predict(system, "all_reduce", [2**20, 2**30])
prediction.pairs[1]                   # ("NVLS", "Simple")
prediction.time_us, prediction.low_us, prediction.high_us
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from syncline.errors import SimulationError
from syncline.sim.nccl.belief import CHOSEN_OPS
from syncline.sim.nccl.choose import Pair, choose
from syncline.sim.nccl.constants import Constants, default_constants
from syncline.sim.nccl.expect import expected_us
from syncline.sim.nccl.interval import interval, unverified
from syncline.sim.nccl.job import Job, Scale
from syncline.sim.nccl.measured import OPS, bus_factor
from syncline.sim.nccl.system import NcclSystem

if TYPE_CHECKING:
    from syncline.sim.nccl.calibrate import Calibration

Floats = npt.NDArray[np.float64]
#: What this model cannot see; printed with its numbers.
IGNORES = (
    "congestion and other jobs",
    "ECMP collisions",
    "oversubscribed uplinks",
    "stragglers and jitter",
    "first-call warm-up",
)


@dataclass(frozen=True, eq=False)
class Prediction:
    """One operation on one system at many sizes, in us; `low_us` to `high_us` holds about 90 % of measurements."""

    system: NcclSystem
    op: str
    sizes: Floats
    pairs: tuple[Pair, ...]
    believed_us: Floats
    time_us: Floats
    low_us: Floats
    high_us: Floats
    fastest: tuple[Pair, ...]
    fastest_us: Floats
    unverified: tuple[str, ...]

    @property
    def busbw_GBps(self) -> Floats:
        """Bus bandwidth as nccl-tests prints it."""
        return self.sizes / self.time_us / 1e3 * bus_factor(self.op, self.system.num_ranks)

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per size, in SI units."""
        factor = bus_factor(self.op, self.system.num_ranks)
        return [
            {
                "size_bytes": int(self.sizes[i]),
                "time_s": float(self.time_us[i]) / 1e6,
                "low_s": float(self.low_us[i]) / 1e6,
                "high_s": float(self.high_us[i]) / 1e6,
                "algbw_Bps": float(self.sizes[i] / self.time_us[i]) * 1e6,
                "busbw_Bps": float(self.sizes[i] / self.time_us[i]) * 1e6 * factor,
                "algorithm": "/".join(self.pairs[i]),
                "believed_s": float(self.believed_us[i]) / 1e6,
                "fastest": "/".join(self.fastest[i]),
                "fastest_s": float(self.fastest_us[i]) / 1e6,
            }
            for i in range(len(self.sizes))
        ]


def chosen_pairs(system: NcclSystem, op: str, sizes: Floats) -> tuple[list[Pair], dict[Pair, Floats]]:
    """Return the pair in use at each size, and what NCCL believes of all it considered."""
    if op not in OPS:
        raise SimulationError(
            f'"{op}" is not an operation of nccl-tests that is modelled.', hint=f"Known: {', '.join(OPS)}."
        )
    if op in CHOSEN_OPS:
        return choose(system, op, sizes)
    return [("P2P", "Simple")] * len(sizes), {}


def times_us(job: Job, pairs: Sequence[Pair], sizes: Floats) -> Floats:
    """Return the time of each size with its pair, one formula call per pair."""
    out = np.empty(len(sizes))
    for pair in dict.fromkeys(pairs):
        mine = np.array([p == pair for p in pairs])
        out[mine] = expected_us(job, pair, sizes[mine])
    return out


def predict(
    system: NcclSystem,
    op: str,
    sizes: Sequence[float] | Floats,
    *,
    constants: Constants | None = None,
    calibration: Calibration | None = None,
) -> Prediction:
    """Predict nccl-tests for an operation at these sizes (bytes; the total buffer for gathers)."""
    array = np.asarray(sizes, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.all(array > 0):
        raise SimulationError("sizes are a list of positive numbers of bytes.")
    if system.num_ranks < 2:
        raise SimulationError("a collective needs at least two ranks.")
    constants = constants or default_constants()
    pairs, believed = chosen_pairs(system, op, array)
    job = Job(system, op, constants, calibration.scale if calibration else Scale())
    time_us = times_us(job, pairs, array)
    fastest, fastest_us = _fastest(job, believed, pairs, time_us, array)
    correction = calibration.correction(array) if calibration else np.ones(len(array))
    time_us = time_us * correction
    low, high = interval(system, op, array, calibrated=calibration is not None)
    own = np.array([believed[p][i] if p in believed else np.nan for i, p in enumerate(pairs)])
    return Prediction(
        system, op, array, tuple(pairs), own, time_us, time_us * low, time_us * high,
        fastest, fastest_us * correction, unverified(system, op, pairs),
    )  # fmt: skip


def _fastest(
    job: Job, believed: dict[Pair, Floats], pairs: Sequence[Pair], time_us: Floats, sizes: Floats
) -> tuple[tuple[Pair, ...], Floats]:
    """Return the pair that would really be fastest among the enabled, so that a poor choice is a finding."""
    if not believed:
        return tuple(pairs), time_us
    options = list(believed)
    table = np.stack([expected_us(job, pair, sizes) for pair in options])
    best = np.argmin(table, axis=0)
    return tuple(options[i] for i in best), table.min(axis=0)
