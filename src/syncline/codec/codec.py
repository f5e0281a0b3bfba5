"""What a codec costs: how many bytes go on the wire, and how fast they are made and read.

A codec here is its price, which is all that schedules and simulators need; the schemes themselves live beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.errors import ProgramError


@dataclass(frozen=True)
class Codec:
    """A way to shrink what is sent: wire bytes per byte of the buffer, and bytes of the buffer per second each way."""

    name: str
    wire_ratio: float = 1.0
    encode_Bps: float = math.inf
    decode_Bps: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.wire_ratio <= 4:
            raise ProgramError(
                f'codec "{self.name}" sends {self.wire_ratio} bytes per byte; it must be above 0 and at most 4.'
            )
        if not (self.encode_Bps > 0 and self.decode_Bps > 0):
            raise ProgramError(f'codec "{self.name}" must encode and decode at a rate above 0.')

    def host_s_per_byte(self) -> float:
        """Return the seconds that encoding and decoding one byte of the buffer cost."""
        return 1 / self.encode_Bps + 1 / self.decode_Bps


RAW = Codec("raw")
"""Bytes as they are."""
