"""What is proved of each scheme's error when values are encoded without residual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tests.codec.reference import LEVELS

from syncline.codec.dense import F32, Block, Cast, Dense, Sign

TINY = 2.0**-100
"""A block whose largest magnitude is below this is sent as zeros."""
ROUNDED_UP = 1 + 2.0**-7
"""How much larger a scale can be for being a bfloat16."""


@dataclass(frozen=True)
class Bound:
    """`max_abs` holds for each element; `contraction` c says sum(error^2) <= c * sum(values^2). None: not proved."""

    max_abs: F32 | None = None
    contraction: float | None = None


def error_bound(scheme: Dense, values: F32) -> Bound:
    """Return the bound of a scheme on these values."""
    if isinstance(scheme, Block):
        # Half a scale an element; the last factor pays for float32 arithmetic.
        step = block_tops(values, scheme.block) / LEVELS[scheme.bits] * 0.5
        return Bound((np.maximum(step, TINY) * ROUNDED_UP * (1 + 1e-4)).astype(np.float32))
    if isinstance(scheme, Cast):
        # Half a unit in the last place.
        relative, least = {"fp32": (0.0, 0.0), "fp16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}[scheme.name]
        size = np.abs(values.astype(np.float64))
        overflow = size >= (65520.0 if scheme.name == "fp16" else np.inf)
        bound = np.where(overflow, np.inf, np.maximum(size * relative, least) * (1 + 1e-6))
        return Bound(bound.astype(np.float32))
    assert isinstance(scheme, Sign), f"no bound is proved for {scheme.name}: add one"
    return _sign(scheme, values)


def _sign(scheme: Sign, values: F32) -> Bound:
    """With the mean m of a block's magnitudes the error is sum(a^2) - n m^2; an element errs by | |a| - m |."""
    num_blocks = -(-values.size // scheme.block)
    rows = np.zeros((num_blocks, scheme.block))
    rows.reshape(-1)[: values.size] = np.abs(values)
    count = np.minimum(scheme.block, values.size - scheme.block * np.arange(num_blocks))
    square, kept = float((rows**2).sum()), float((rows.sum(axis=1) ** 2 / count).sum())
    top = np.maximum(np.repeat(rows.max(axis=1, initial=0), scheme.block)[: values.size], TINY)
    contraction = min(1.0, 1 - kept / square + 1e-5) if square else 1.0
    return Bound((top * (1 + 1e-4)).astype(np.float32), contraction)


def block_tops(values: F32, block: int) -> np.ndarray:
    """Return for each element the largest magnitude of its block."""
    rows = np.zeros((-(-values.size // block), block))
    rows.reshape(-1)[: values.size] = np.abs(values)
    return np.repeat(rows.max(axis=1), block)[: values.size]
