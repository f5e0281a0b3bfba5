"""
Native codec kernels; use syncline.codec instead. Nothing is converted on the way in.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

def variants() -> list[int]:
    """Return the variants this machine runs: 0 portable, 1 AVX2, 2 AVX-512."""

def block_encode(
    values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    bits: int,
    block: int,
    stochastic: bool,
    key: int,
    variant: int = -1,
) -> bool:
    """
    Quantise by block to codes of 8 or 4 bits; return whether all was finite.
    """

def block_decode(
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    bits: int,
    block: int,
    add: bool,
    scale: float,
    variant: int = -1,
) -> None:
    """Read what block_encode wrote."""

def block_reduce(
    payloads: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)]],
    own: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")] | None,
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    bits: int,
    block: int,
    stochastic: bool,
    key: int,
    before: float,
    after: float,
    variant: int = -1,
) -> bool:
    """Add payloads to own and encode the sum."""

def sign_encode(
    values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    block: int,
    variant: int = -1,
) -> bool:
    """Keep signs and mean magnitudes; return whether all was finite."""

def sign_decode(
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    block: int,
    add: bool,
    scale: float,
    variant: int = -1,
) -> None:
    """Read what sign_encode wrote."""

def sign_reduce(
    payloads: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)]],
    own: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")] | None,
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    block: int,
    before: float,
    after: float,
    variant: int = -1,
) -> bool:
    """Add payloads to own and encode the sum."""

def cast_encode(
    values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    kind: str,
    variant: int = -1,
) -> bool:
    """Round to fp16 or bf16, or copy fp32; return whether all was finite."""

def cast_decode(
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    kind: str,
    add: bool,
    scale: float,
    variant: int = -1,
) -> None:
    """Read what cast_encode wrote."""

def cast_reduce(
    payloads: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)]],
    own: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")] | None,
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    kind: str,
    before: float,
    after: float,
    variant: int = -1,
) -> bool:
    """Add payloads to own and encode the sum."""

def fp8_encode(
    values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    format: str,
    block: int,
    variant: int = -1,
) -> bool:
    """
    Scale by block and round to e4m3 or e5m2; return whether all was finite.
    """

def fp8_decode(
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    format: str,
    block: int,
    add: bool,
    scale: float,
    variant: int = -1,
) -> None:
    """Read what fp8_encode wrote."""

def fp8_reduce(
    payloads: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)]],
    own: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    payload: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")] | None,
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    format: str,
    block: int,
    before: float,
    after: float,
    variant: int = -1,
) -> bool:
    """Add payloads to own and encode the sum."""

def threshold(
    values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    wanted: int,
    stride: int,
    offset: int,
    histogram: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu")],
    variant: int = -1,
) -> tuple[int, int]:
    """
    Return (bits of a magnitude that about `wanted` elements reach, how many that equal it to keep).
    """

def select(
    values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    residual: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")] | None,
    threshold_bits: int,
    ties: int,
    index: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    value: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu")],
    variant: int = -1,
) -> tuple[int, bool]:
    """Keep what reaches the threshold; return (count, poisoned)."""

def scatter(
    index: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    value: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    count: int,
    out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    add: bool,
    scale: float,
) -> None:
    """
    Put kept values at their places; ValueError, and nothing written, when one lies outside.
    """
