"""The 1 ms loop of syncline.watch; use syncline.watch.sampler instead."""

from typing import Annotated

import numpy
from numpy.typing import NDArray

class CounterSampler:
    """Reads byte counters of interfaces in a thread of its own."""

    def __init__(
        self,
        socket: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        interface: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        period_ns: int,
        num_rows: int,
    ) -> None: ...
    def take(
        self,
    ) -> tuple[
        Annotated[NDArray[numpy.int64], dict(shape=(None,))],
        Annotated[NDArray[numpy.uint64], dict(shape=(None,))],
        int,
        int,
        int,
        float,
    ]:
        """
        Return (time_ns, counters row by row, lost, late, failed, cpu_s) since the last call.
        """

    def stop(self) -> None:
        """End the thread."""

    @property
    def width(self) -> int:
        """Counters in a row: two of each interface."""
