"""Three values by block: minus the largest magnitude, zero, plus the largest magnitude."""

from __future__ import annotations

from syncline.codec.block import Block


class Ternary(Block):
    """Two bits an element. Stochastic rounding (the default) errs not on average, as TernGrad does."""

    default_rounding = "stochastic"

    def __init__(self, block: int = 256, rounding: str = "stochastic") -> None:
        super().__init__(2, block, rounding)
