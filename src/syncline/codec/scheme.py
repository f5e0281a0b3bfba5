"""A scheme: a way to turn float32 numbers into fewer bytes and back, as far as all kinds of them are alike."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from syncline.codec.codec import Codec


class Scheme(ABC):
    """A way to turn float32 numbers into fewer bytes and back; immutable."""

    name: str

    @abstractmethod
    def wire_bytes(self, num_elements: int) -> int:
        """Return the size of a payload of `num_elements`: every encode fills exactly this much."""

    def price(
        self, *, encode_Bps: float = math.inf, decode_Bps: float = math.inf, num_elements: int = 1 << 22
    ) -> Codec:
        """Return what the planner and a Program need: wire ratio at `num_elements`, and speeds."""
        ratio = self.wire_bytes(num_elements) / (4 * num_elements)
        return Codec(self.name, ratio, encode_Bps, decode_Bps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scheme) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"scheme({self.name!r})"
