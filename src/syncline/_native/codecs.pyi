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
