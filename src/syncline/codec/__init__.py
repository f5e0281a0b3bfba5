"""How bytes shrink: what each scheme costs, and the schemes themselves."""

from __future__ import annotations

from syncline.codec.codec import RAW, Codec
from syncline.codec.names import scheme
from syncline.codec.scheme import Scheme

__all__ = ["RAW", "Codec", "Scheme", "scheme"]
