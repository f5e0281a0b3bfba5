"""Which algorithm and protocol NCCL takes at each size: the least believed time, unless a tuner says otherwise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from syncline.sim.nccl.belief import believe, believed_us
from syncline.sim.nccl.enable import enabled_pairs
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.nccl.tuner import overrides

Floats = npt.NDArray[np.float64]
Pair = tuple[str, str]


def choose(system: NcclSystem, op: str, sizes: Floats) -> tuple[list[Pair], dict[Pair, Floats]]:
    """Return the pair NCCL takes at each size, and the believed time (us) of every pair it considered."""
    cells = believe(system, op)
    enabled = enabled_pairs(system, op, cells)
    believed = believed_us(system, op, {pair: cells[pair] for pair in enabled}, sizes)
    stacked = np.stack([believed[pair] for pair in enabled])
    chosen = [enabled[i] for i in np.argmin(stacked, axis=0)]
    forced = overrides(system, op, sizes, enabled)
    return [override or pair for pair, override in zip(chosen, forced, strict=True)], believed
