"""Max-min fair rates: what each flow gets when links are shared evenly.

    >>> import numpy as np
    >>> flows = Paths.of([[0], [0, 1], [1]])
    >>> max_min_rates(np.array([10.0, 4.0]), flows).rate_Bps.tolist()
    [8.0, 2.0, 2.0]

No flow can gain rate without taking it from a flow that has no more (per weight). This is the steady state that fair
queueing reaches exactly and congestion control approximates; it sees no queues, no losses and no round-trip times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline import _native
from syncline.errors import SimulationError
from syncline.sim.flow.engine import Paths

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class FairRates:
    """A rate per flow, and the saturated link that holds it back (-1: its own cap does)."""

    rate_Bps: NDArray[np.float64]
    bottleneck: NDArray[np.int32]


def max_min_rates(
    capacity_Bps: ArrayLike,
    flows: Paths,
    *,
    weight: ArrayLike | None = None,
    cap_Bps: ArrayLike | None = None,
) -> FairRates:
    """Return the weighted max-min fair rate of each flow.

    Args:
        capacity_Bps: one per link; 0 is a link that is down.
        flows: the links each flow crosses, in full; a link named twice is paid for twice.
        weight: a flow's share of a link it is held back by, 1 each if not given.
        cap_Bps: the most a flow can use whatever the links allow; infinity where it has no cap.

    Raises:
        SimulationError: the arrays do not fit each other, or a flow crosses no link and has no cap.
    """
    try:
        rate_Bps, bottleneck = _native.max_min_rates(
            _column(capacity_Bps, np.float64, "capacity_Bps"),
            _column(flows.start, np.int64, "flows.start"),
            _column(flows.link, np.int32, "flows.link"),
            np.ones(len(flows)) if weight is None else _column(weight, np.float64, "weight"),
            None if cap_Bps is None else _column(cap_Bps, np.float64, "cap_Bps"),
        )
    except ValueError as error:
        raise SimulationError(f"cannot share links: {error}.") from error
    return FairRates(rate_Bps, bottleneck)


def _column(values: ArrayLike, dtype: type[_Scalar], name: str) -> NDArray[_Scalar]:
    """Return `values` as a contiguous column, refusing a change of kind that would lose digits (1.5 as a link)."""
    array = np.asarray(values)
    if array.size and not np.can_cast(array.dtype, dtype, casting="same_kind"):
        raise ValueError(f"{name} holds {array.dtype} where {np.dtype(dtype)} is needed")
    if array.ndim != 1:
        raise ValueError(f"{name} has {array.ndim} dimensions where 1 is needed")
    column = np.ascontiguousarray(array, dtype=dtype)
    if array.dtype.kind in "iu" and array.dtype != column.dtype and (column != array).any():
        raise ValueError(f"{name} holds a number too large for {column.dtype}")
    return column
