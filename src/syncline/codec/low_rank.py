"""Low rank (PowerSGD): a matrix as two thin factors, which many ranks can sum.

A gradient of several parameters travels in two exchanges a step, both plain sums of float32: P = M Q of every matrix
together with the vectors, and then Q = M^T P. `FactorLayout` says where each factor lies; `runtime/sync/low_rank.py`
carries the exchanges out. `encode` and `decode` are the same for one rank alone.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncline.codec.scheme import F32, U8, Scheme
from syncline.errors import CodecError

SEEDED_BY = 1024
"""Elements whose bytes seed the random start of a vector that is encoded alone."""


@dataclass(frozen=True)
class MatrixPlace:
    """Where one parameter lies: in the flat buffer, and its factors in the first and second exchange."""

    rows: int
    cols: int
    rank: int
    start: int
    p_start: int
    q_start: int


@dataclass(frozen=True)
class Vector:
    """A parameter that is sent dense: where it lies in the flat buffer and in the first exchange."""

    start: int
    num_elements: int
    first_start: int


class FactorLayout:
    """The two exchanges for one list of parameter shapes; immutable."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], rank: int) -> None:
        self.rank = rank
        matrices: list[MatrixPlace] = []
        dense: list[tuple[int, int]] = []
        start = p_start = q_start = 0
        for shape in shapes:
            rows, cols = as_matrix(shape)
            small = min(rank, rows, cols)
            if rows * cols and small * (rows + cols) < rows * cols:
                matrices.append(MatrixPlace(rows, cols, small, start, p_start, q_start))
                p_start += rows * small
                q_start += cols * small
            else:
                dense.append((start, rows * cols))
            start += rows * cols
        self.matrices = tuple(matrices)
        vectors = []
        for place, size in dense:
            vectors.append(Vector(place, size, p_start))
            p_start += size
        self.vectors = tuple(vectors)
        self.num_elements = start
        self.num_first = p_start
        self.num_second = q_start

    @property
    def wire_bytes(self) -> int:
        """Return the bytes of both exchanges."""
        return 4 * (self.num_first + self.num_second)


class LowRank(Scheme):
    """PowerSGD of rank `rank`. Wire of one payload: P, then Q, of the vector folded to a nearly square matrix.

    Short vectors go dense. Alone it starts from a new random Q each time; a run starts from that of the last step.
    """

    def __init__(self, rank: int = 4) -> None:
        if not 1 <= rank <= 1024:
            raise CodecError(f'codec "powersgd" takes a rank of 1 to 1024; got {rank}.')
        self.rank = rank
        self.name = f"powersgd:rank={rank}"

    def exchange(self, shapes: Sequence[tuple[int, ...]]) -> FactorLayout:
        """Return the two exchanges for parameters of these shapes."""
        return FactorLayout(shapes, self.rank)

    def wire_bytes(self, num_elements: int) -> int:
        return self._alone(num_elements).wire_bytes

    def _alone(self, num_elements: int) -> FactorLayout:
        cols = math.isqrt(num_elements)
        rows = -(-num_elements // cols) if cols else 0
        folds = self.rank * (rows + cols) < num_elements
        return FactorLayout([(rows, cols) if folds else (num_elements,)], self.rank)

    def _encode(self, values: F32, payload: U8, residual: F32 | None) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            total = values if residual is None else values + residual
            finite = bool(np.isfinite(total).all())
            words, owed = self._factors(total)
        payload[:] = words.view(np.uint8)
        if residual is not None:
            # Where nothing finite is delivered all is owed, less what is not a number.
            residual[:] = owed if np.isfinite(words).all() else np.where(np.isfinite(total), total, 0)
        return finite

    def _factors(self, total: F32) -> tuple[F32, F32]:
        """Return what is sent of a vector, and what that lacks."""
        alone = self._alone(total.size)
        if not alone.matrices:
            return total.copy(), np.zeros_like(total)
        (place,) = alone.matrices
        matrix = np.zeros((place.rows, place.cols), np.float32)
        matrix.reshape(-1)[: total.size] = total
        seed = zlib.crc32(total[:SEEDED_BY].tobytes())  # other numbers, another Q: every direction has its turn
        p = matrix @ np.random.default_rng(seed).standard_normal((place.cols, place.rank), np.float32)
        orthogonalise(p)
        q = matrix.T @ p
        owed = (matrix - p @ q.T).reshape(-1)[: total.size]
        return np.concatenate([p.reshape(-1), q.reshape(-1)]), owed

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        alone, words = self._alone(out.size), payload.view(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            if alone.matrices:
                (place,) = alone.matrices
                p = words[: alone.num_first].reshape(place.rows, place.rank)
                q = words[alone.num_first :].reshape(place.cols, place.rank)
                words = (p @ q.T).reshape(-1)[: out.size]
            out[:] = (out + words * np.float32(scale)) if add else words * np.float32(scale)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a parameter: the first axis, and all others together."""
    if len(shape) < 2:
        return 1, math.prod(shape)
    return shape[0], math.prod(shape[1:])


def orthogonalise(p: F32) -> None:
    """Make the columns orthonormal in place (Gram-Schmidt twice, in double); one with nothing new becomes 0."""
    if not np.isfinite(p).all():
        p[:] = np.nan
        return
    wide = p.astype(np.float64)
    for column in range(wide.shape[1]):
        vector = wide[:, column]
        before = math.sqrt(float(vector @ vector))
        for _ in range(2):
            vector -= wide[:, :column] @ (wide[:, :column].T @ vector)
        norm = math.sqrt(float(vector @ vector))
        # What is left of a dependent column is rounding: noise must not become a direction.
        vector *= 0.0 if norm <= 1e-6 * before else 1 / norm
    p[:] = wide
