"""Calibration from a short sweep: six multipliers on the model, then what is left interpolated in log size.

    calibration = calibrate(system, read_log(text, "run.log"))
    predict(system, "all_reduce", sizes, calibration=calibration)

Six sizes evenly spread in log size are enough; a log that starts at 32 MiB calibrates bandwidth only. Calibrate each
operation and number of hosts on its own: switch points move with scale.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import numpy.typing as npt

from syncline.errors import SimulationError
from syncline.sim.nccl.constants import NcclConstants, default_constants
from syncline.sim.nccl.job import NcclCalibration, NcclOperation, Scale
from syncline.sim.nccl.measured import Series
from syncline.sim.nccl.predict import chosen_pairs, times_us
from syncline.sim.nccl.robust import minimise
from syncline.sim.nccl.system import NcclSystem

Floats = npt.NDArray[np.float64]
#: Sizes worth measuring: 256 B, 32 KiB, 256 KiB, 2 MiB, 16 MiB, 256 MiB.
SIX_SIZES = (2**8, 2**15, 2**18, 2**21, 2**24, 2**28)
#: How far each multiplier may be from 1, in log units, in the order of `Scale`.
_SIGMA = np.array([0.35, 0.35, 0.35, 0.12, 0.25, 0.2])


def pick_six(sizes: Floats) -> Floats:
    """Return the sizes of a sweep nearest to the six worth measuring (fewer when they coincide)."""
    logs = np.log(sizes)
    return np.unique([sizes[np.argmin(np.abs(logs - np.log(wanted)))] for wanted in SIX_SIZES])


def calibrate(system: NcclSystem, series: Series, constants: NcclConstants | None = None) -> NcclCalibration:
    """Fit the model to a measured sweep."""
    constants = constants or default_constants()
    if len(series.sizes) == 0:
        raise SimulationError("a calibration needs at least one measured size.")
    pairs, _ = chosen_pairs(system, series.op, series.sizes)
    keep = _plausible(series.time_us, times_us(NcclOperation(system, series.op, constants), pairs, series.sizes))
    sizes, measured = series.sizes[keep], series.time_us[keep]
    pairs = [pair for pair, kept in zip(pairs, keep, strict=True) if kept]

    def residuals(x: Floats) -> Floats:
        job = NcclOperation(system, series.op, constants, _scale(x))
        return np.asarray(np.log(times_us(job, pairs, sizes) / measured))

    scale = _scale(minimise(residuals, _SIGMA))
    left = np.log(measured / times_us(NcclOperation(system, series.op, constants, scale), pairs, sizes))
    return NcclCalibration(scale, np.log(sizes), left)


def _scale(x: Floats) -> Scale:
    return Scale(**{f.name: float(np.exp(v)) for f, v in zip(fields(Scale), x, strict=True)})


def _plausible(measured: Floats, modelled: Floats) -> npt.NDArray[np.bool_]:
    """Mark the points to keep: not those that took 1.1 times longer than a larger size for no reason the model knows.

    Such a point is warm-up or a hiccup. All-to-all below 256 bytes a peer really is slower than above.
    """
    later = np.append(np.minimum.accumulate(measured[::-1])[::-1][1:], np.inf)
    later_modelled = np.append(np.minimum.accumulate(modelled[::-1])[::-1][1:], np.inf)
    return np.asarray((measured <= 1.1 * later) | (modelled > 1.1 * later_modelled))
