"""
Native loops of syncline; use the typed functions in syncline.sim and syncline.codec instead.
"""

from typing import Annotated

import numpy
from numpy.typing import NDArray

def max_min_rates(
    capacity_Bps: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    flow_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    flow_link: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    weight: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    cap_Bps: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)]
    | None = None,
) -> tuple[
    Annotated[NDArray[numpy.float64], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))]
]:
    """
    Return (rate_Bps, bottleneck link or -1) of each flow; flows are CSR rows of links.
    """
