"""NCCL's time for an operation at many sizes: what it believes, what it chooses, what that takes, and how sure that is.

prediction = predict(system, "all_reduce", [2**20, 2**30])
prediction.pairs[1]                   # ("NVLS", "Simple")
prediction.time_us, prediction.low_us, prediction.high_us
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncline.errors import SimulationError
from syncline.sim.bound import Bound
from syncline.sim.nccl.belief import CHOSEN_OPS
from syncline.sim.nccl.choose import Pair, choose
from syncline.sim.nccl.constants import NcclConstants, default_constants
from syncline.sim.nccl.expect import expected_us
from syncline.sim.nccl.interval import interval, unverified
from syncline.sim.nccl.job import NcclCalibration, NcclOperation, Scale
from syncline.sim.nccl.measured import OPS, bus_factor, op_name
from syncline.sim.nccl.system import NcclSystem

Floats = npt.NDArray[np.float64]
#: What this model cannot see; printed with its numbers.
IGNORES = (
    "congestion and other jobs",
    "ECMP collisions",
    "stragglers and jitter",
    "first-call warm-up",
)


@dataclass(frozen=True)
class PredictedRow:
    """One size, in SI units: the time with its intervals, what no run can beat, and what NCCL believes."""

    size_bytes: int
    time_s: float
    low_s: float
    high_s: float
    low50_s: float
    high50_s: float
    bound_s: float
    algbw_Bps: float
    busbw_Bps: float
    algorithm: str
    believed_s: float
    fastest: str
    fastest_s: float


@dataclass(frozen=True, eq=False)
class NcclPrediction:
    """One operation on one system at many sizes, in us.

    `low_us` to `high_us` holds 90 % of measurements, `low50_us` to `high50_us` half of them; `basis` says of which.
    """

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
    floor_us: Floats
    low50_us: Floats
    high50_us: Floats
    basis: tuple[str, ...]

    @property
    def busbw_GBps(self) -> Floats:
        """Bus bandwidth as nccl-tests prints it."""
        return self.sizes / self.time_us / 1e3 * bus_factor(self.op, self.system.num_ranks)

    def rows(self) -> list[PredictedRow]:
        """Return one record per size, in SI units."""
        factor = bus_factor(self.op, self.system.num_ranks)
        return [
            PredictedRow(
                size_bytes=int(self.sizes[i]),
                time_s=float(self.time_us[i]) / 1e6,
                low_s=float(self.low_us[i]) / 1e6,
                high_s=float(self.high_us[i]) / 1e6,
                low50_s=float(self.low50_us[i]) / 1e6,
                high50_s=float(self.high50_us[i]) / 1e6,
                bound_s=float(self.floor_us[i]) / 1e6,
                algbw_Bps=float(self.sizes[i] / self.time_us[i]) * 1e6,
                busbw_Bps=float(self.sizes[i] / self.time_us[i]) * 1e6 * factor,
                algorithm="/".join(self.pairs[i]),
                believed_s=float(self.believed_us[i]) / 1e6,
                fastest="/".join(self.fastest[i]),
                fastest_s=float(self.fastest_us[i]) / 1e6,
            )
            for i in range(len(self.sizes))
        ]


def chosen_pairs(system: NcclSystem, op: str, sizes: Floats) -> tuple[list[Pair], dict[Pair, Floats]]:
    """Return the pair in use at each size, and what NCCL believes of all it considered."""
    op = op_name(op)
    if op not in OPS:
        raise SimulationError(
            f'"{op}" is not an operation of nccl-tests that is modelled.', hint=f"Known: {', '.join(OPS)}."
        )
    if op in CHOSEN_OPS:
        return choose(system, op, sizes)
    return [("P2P", "Simple")] * len(sizes), {}


def times_us(job: NcclOperation, pairs: Sequence[Pair], sizes: Floats) -> Floats:
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
    constants: NcclConstants | None = None,
    calibration: NcclCalibration | None = None,
) -> NcclPrediction:
    """Predict nccl-tests for an operation at these sizes (bytes; the total buffer for gathers)."""
    array = np.asarray(sizes, dtype=np.float64)
    op = op_name(op)
    if array.ndim != 1 or len(array) == 0 or not np.all(array > 0):
        raise SimulationError("sizes are a list of positive numbers of bytes.")
    if system.num_ranks < 2:
        raise SimulationError("a collective needs at least two ranks.")
    constants = constants or default_constants()
    pairs, believed = chosen_pairs(system, op, array)
    job = NcclOperation(system, op, constants, calibration.scale if calibration else Scale())
    time_us = times_us(job, pairs, array)
    fastest, fastest_us = _fastest(job, believed, pairs, time_us, array)
    correction = calibration.correction(array) if calibration else np.ones(len(array))
    time_us = time_us * correction
    bounds = interval(system, op, array, calibrated=calibration is not None)
    floor_us = 1e6 * system.bounds.get(op, Bound()).at(array)
    if calibration is None:  # a measurement may know the fabric better than its description
        time_us, fastest_us = np.maximum(time_us, floor_us), np.maximum(fastest_us, floor_us)
    own = np.array([believed[p][i] if p in believed else np.nan for i, p in enumerate(pairs)])
    return NcclPrediction(
        system, op, array, tuple(pairs), own, time_us, _above(time_us * bounds.low_90, floor_us, time_us),
        time_us * bounds.high_90, fastest, fastest_us * correction, unverified(system, pairs), floor_us,
        _above(time_us * bounds.low_50, floor_us, time_us), time_us * bounds.high_50, bounds.basis,
    )  # fmt: skip


def _above(low_us: Floats, floor_us: Floats, time_us: Floats) -> Floats:
    """Return a lower end that no run would have to beat the bound for."""
    return np.maximum(low_us, np.minimum(floor_us, time_us))


def _fastest(
    job: NcclOperation, believed: dict[Pair, Floats], pairs: Sequence[Pair], time_us: Floats, sizes: Floats
) -> tuple[tuple[Pair, ...], Floats]:
    """Return the pair that would really be fastest among the enabled, so that a poor choice is a finding."""
    if not believed:
        return tuple(pairs), time_us
    options = list(believed)
    table = np.stack([expected_us(job, pair, sizes) for pair in options])
    best = np.argmin(table, axis=0)
    return tuple(options[i] for i in best), table.min(axis=0)
