"""
The search of syncline.diagnose for the texts of its rules; use syncline.diagnose.scan instead.
"""

from typing import Annotated

import numpy
from numpy.typing import NDArray

class TextScanner:
    """Looks for many texts at once in one stream of blocks."""

    def __init__(
        self,
        texts: list,
        code: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        offset: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        step: int,
        rest: int,
        rest_every: int,
        before: int,
        max_line: int,
    ) -> None: ...
    def drop(self, text: int) -> None:
        """Look for a text no more."""

    def scan(
        self, block: bytes, start: int, stop: int, line: int
    ) -> tuple[
        int,
        Annotated[NDArray[numpy.int64], dict(shape=(None,))],
        Annotated[NDArray[numpy.int64], dict(shape=(None,))],
        Annotated[NDArray[numpy.int64], dict(shape=(None,))],
        Annotated[NDArray[numpy.int64], dict(shape=(None,))],
        Annotated[NDArray[numpy.int32], dict(shape=(None,))],
    ]:
        """
        Return (line after it, then of each line with a text: number, begin, end, where its texts end; all texts).
        """
