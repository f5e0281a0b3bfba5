"""What sweeps of nccl-tests say of all collectives of a system.

    seen = seen_in(system, read_log(text, "run.log"))            # how far off the model is at each size
    predict(system, "all_gather", sizes, calibration=calibration_of(seen, "all_gather", num_hosts=4))

Operations and numbers of hosts share part of what the model is off by (`sim/shared.py`): one log of all-reduce moves
all of them, each as far as published systems say. What was measured is reproduced. Six sizes evenly spread in log size
are enough; a log that starts at 32 MiB says nothing of small messages, and does not pretend to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from syncline.errors import SimulationError
from syncline.sim.nccl.constants import NcclConstants
from syncline.sim.nccl.job import NcclCalibration, Scale
from syncline.sim.nccl.measured import Series
from syncline.sim.nccl.predict import predict
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.shared import ErrorKey, KnownError, learnt, levels_of

Floats = npt.NDArray[np.float64]
#: Sizes worth measuring: 256 B, 32 KiB, 256 KiB, 2 MiB, 16 MiB, 256 MiB.
SIX_SIZES = (2**8, 2**15, 2**18, 2**21, 2**24, 2**28)
#: Where a correction is worked out besides the measured sizes: every doubling from 8 bytes to 64 GiB.
DOUBLINGS = tuple(2.0**power for power in range(3, 37))


def pick_six(sizes: Floats) -> Floats:
    """Return the sizes of a sweep nearest to the six worth measuring (fewer when they coincide)."""
    logs = np.log(sizes)
    return np.unique([sizes[np.argmin(np.abs(logs - np.log(wanted)))] for wanted in SIX_SIZES])


def seen_in(system: NcclSystem, series: Series, constants: NcclConstants | None = None) -> tuple[KnownError, ...]:
    """Return how far off the model is at every size of a sweep; hiccups are left out."""
    if len(series.sizes) == 0:
        raise SimulationError("a calibration needs at least one measured size.")
    modelled = predict(system, series.op, series.sizes, constants=constants).time_us
    keep = _plausible(series.time_us, modelled)
    off = np.log(series.time_us / modelled)
    keys = {"op": series.op, "hosts": str(system.num_hosts)}
    return tuple(
        KnownError(ErrorKey(keys, float(size)), float(ratio))
        for size, ratio, kept in zip(series.sizes, off, keep, strict=True)
        if kept
    )


def calibration_of(seen: Sequence[KnownError], op: str, num_hosts: int) -> NcclCalibration:
    """Return the correction of an operation on so many hosts."""
    keys = {"op": op, "hosts": str(num_hosts)}
    own = {one.thing.size for one in seen if dict(one.thing.keys) == keys}
    sizes = np.array(sorted(own | set(DOUBLINGS)))
    found = learnt(levels_of("collective"), seen, [ErrorKey(keys, float(size)) for size in sizes])
    return NcclCalibration(Scale(), np.log(sizes), found.mean)


def _plausible(measured: Floats, modelled: Floats) -> npt.NDArray[np.bool_]:
    """Mark the points to keep: not those that took 1.1 times longer than a larger size for no reason the model knows.

    Such a point is warm-up or a hiccup. All-to-all below 256 bytes a peer really is slower than above.
    """
    later = np.append(np.minimum.accumulate(measured[::-1])[::-1][1:], np.inf)
    later_modelled = np.append(np.minimum.accumulate(modelled[::-1])[::-1][1:], np.inf)
    return np.asarray((measured <= 1.1 * later) | (modelled > 1.1 * later_modelled))
