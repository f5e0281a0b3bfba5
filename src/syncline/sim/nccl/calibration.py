"""What a measured sweep says of the model: multipliers, and what they leave at each size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncline.sim.nccl.job import Scale

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NcclCalibration:
    """Multipliers on the model and the log-ratio left at each measured size."""

    scale: Scale
    knots: Floats
    left: Floats

    def correction(self, sizes: Floats) -> Floats:
        """Return the factor on the scaled model: interpolated in log size, constant outside the measured sizes."""
        return np.asarray(np.exp(np.interp(np.log(sizes), self.knots, self.left)))
