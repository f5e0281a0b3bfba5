"""Low rank (PowerSGD): a matrix as two thin factors, which many ranks can sum.

A gradient of several parameters travels in two exchanges a step, both plain sums of float32: P = M Q of every matrix
together with the vectors, and then Q = M^T P. `FactorLayout` says where each factor lies; `runtime/sync/low_rank.py`
carries the exchanges out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syncline.codec.scheme import Scheme
from syncline.errors import CodecError


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
    """PowerSGD of rank `rank`; `wire_bytes` are those of a vector folded to a nearly square matrix, if that is less."""

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


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a parameter: the first axis, and all others together."""
    if len(shape) < 2:
        return 1, math.prod(shape)
    return shape[0], math.prod(shape[1:])
