"""Low rank (PowerSGD): a matrix as two thin factors, which many ranks can sum.

Two exchanges a step, both plain sums of float32, and vectors go dense with the first:

    exchange = LowRank(rank=4).exchange([weight.shape, bias.shape])
    state = exchange.new_state(seed=0)                        # the same seed on every rank
    exchange.begin(values, residual, state, first)            # first = P of every matrix, then the vectors
    ... mean of `first` over the ranks ...
    exchange.middle(first, residual, state, second)           # second = Q of every matrix
    ... mean of `second` over the ranks ...
    exchange.finish(first, second, residual, state, out)      # out = mean gradient as far as the factors hold it

`values`, `residual` and `out` are flat float32 with the parameters one after the other. Between `begin` and `finish`
the residual holds values + residual.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.codec import kernels
from syncline.codec.scheme import F32, U8, Bound, EncodeState, Scheme, check_array
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

    def of(self, flat: F32) -> F32:
        """Return this parameter's part of a flat buffer row by row; no copy."""
        return flat[self.start : self.start + self.rows * self.cols]

    def p_of(self, first: F32) -> F32:
        return first[self.p_start : self.p_start + self.rows * self.rank]

    def q_of(self, second: F32) -> F32:
        return second[self.q_start : self.q_start + self.cols * self.rank]


@dataclass(frozen=True)
class Vector:
    """A parameter that is sent dense: where it lies in the flat buffer and in the first exchange."""

    start: int
    num_elements: int
    first_start: int

    def of(self, flat: F32) -> F32:
        return flat[self.start : self.start + self.num_elements]

    def in_first(self, first: F32) -> F32:
        return first[self.first_start : self.first_start + self.num_elements]


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

    def new_state(self, *, seed: int = 0) -> EncodeState:
        """Return a state with a random start Q, equal on every rank that gives the same seed."""
        names = {"q": np.zeros(self.num_second, np.float32), "q_own": np.zeros(self.num_second, np.float32)}
        state = LowRankState(self.num_elements, seed=seed, scratch=names)
        self._refill(state)
        return state

    def begin(self, values: F32, residual: F32, state: EncodeState, first: F32) -> None:
        """Leave values + residual in `residual`, P = M Q of each matrix and the vectors in `first`."""
        self._check(values=values, residual=residual, first=first)
        self._refill(state)
        q = state.scratch["q"]
        for matrix in self.matrices:
            shape = (matrix.rows, matrix.cols, matrix.rank)
            kernels.low_rank_begin(matrix.of(values), matrix.of(residual), *shape, matrix.q_of(q), matrix.p_of(first))
        with np.errstate(over="ignore", invalid="ignore"):
            for vector in self.vectors:
                np.add(vector.of(values), vector.of(residual), out=vector.in_first(first))

    def middle(self, first: F32, residual: F32, state: EncodeState, second: F32) -> None:
        """Orthogonalise P in `first` in place and leave Q = M^T P in `second`."""
        self._check(residual=residual, first=first, second=second)
        for matrix in self.matrices:
            p, shape = matrix.p_of(first), (matrix.rows, matrix.cols, matrix.rank)
            orthogonalise(p.reshape(matrix.rows, matrix.rank))
            kernels.low_rank_middle(matrix.of(residual), *shape, p, matrix.q_of(second))
        state.scratch["q_own"][:] = second

    def finish(self, first: F32, second: F32, residual: F32, state: EncodeState, out: F32) -> None:
        """Leave P Q^T in `out` (the vectors as they came) and this rank's own error in `residual`.

        The error is M - P Q^T with this rank's own Q: its mean over the ranks is what the mean gradient lacks, and it
        shrinks where an error against the mean Q would carry the differences between ranks along for ever.
        """
        self._check(residual=residual, first=first, second=second, out=out)
        own = state.scratch["q_own"]
        for matrix in self.matrices:
            p, mine, mean = matrix.p_of(first), matrix.q_of(own), matrix.q_of(second)
            part, shape = matrix.of(residual), (matrix.rows, matrix.cols, matrix.rank)
            if not _finite(p, mine, mean):
                # Nothing is delivered: all is owed, less what is not a number.
                matrix.of(out)[:] = np.nan
                np.copyto(part, np.float32(0), where=~np.isfinite(part))
                continue
            kernels.low_rank_finish(part, *shape, p, mine, mean, matrix.of(out))
        for vector in self.vectors:
            vector.of(out)[:] = vector.in_first(first)
            vector.of(residual)[:] = 0
        state.scratch["q"][:] = second

    def _refill(self, state: EncodeState) -> None:
        """Draw the columns of Q that are zero or not finite anew: a dead column would stay dead."""
        for number, matrix in enumerate(self.matrices):
            q = matrix.q_of(state.scratch["q"]).reshape(matrix.cols, matrix.rank)
            with np.errstate(over="ignore", invalid="ignore"):
                norm = np.abs(q).sum(axis=0)
            dead = ~(np.isfinite(norm) & (norm > 0))
            if dead.any():
                generator = np.random.Generator(np.random.Philox(key=[state.seed, state.counter + (number << 32)]))
                q[:, dead] = generator.standard_normal((matrix.cols, int(dead.sum())), np.float32)
        state.counter += 1

    def _check(self, **arrays: F32) -> None:
        sizes = {"first": self.num_first, "second": self.num_second}
        for name, array in arrays.items():
            check_array(name, array, np.float32)
            wanted = sizes.get(name, self.num_elements)
            if array.size != wanted:
                raise CodecError(f"{name} of a low-rank exchange has {wanted} elements; got {array.size}.")


class LowRankState(EncodeState):
    """Also saves Q, which the next step starts from."""

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        return super().to_arrays() | {"q": self.scratch["q"].copy()}

    def from_arrays(self, saved: dict[str, NDArray[np.generic]]) -> None:  # type: ignore[override]
        q = saved.get("q")
        if q is None or q.shape != self.scratch["q"].shape:
            raise CodecError("the saved low-rank state has no Q for these parameters.", hint="Start it anew.")
        super().from_arrays(saved)
        self.scratch["q"][:] = q


class LowRank(Scheme):
    """PowerSGD of rank `rank`: the runtime uses `exchange`; `encode` and `decode` are the same for one rank alone.

    Wire of a single payload: P, then Q, then nothing, of the vector folded to a nearly square matrix; short vectors go
    dense.
    """

    summable = True
    sum_dtype = "float32"

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

    def new_state(self, num_elements: int, *, seed: int = 0) -> EncodeState:
        alone = self._alone(num_elements)
        state = alone.new_state(seed=seed)
        state.num_elements = num_elements
        state.scratch |= {name: np.zeros(alone.num_elements, np.float32) for name in ("values", "folded", "out")}
        return state

    def error_bound(self, values: F32) -> Bound:
        """The error is what lies outside the space of P: never more than the values."""
        return Bound(contraction=1.0 + 1e-5)

    def _alone(self, num_elements: int) -> FactorLayout:
        cols = math.isqrt(num_elements)
        rows = -(-num_elements // cols) if cols else 0
        if self.rank * (rows + cols) >= num_elements:
            return FactorLayout([(num_elements,)], self.rank)
        return FactorLayout([(rows, cols)], self.rank)

    def _encode(self, values: F32, payload: U8, state: EncodeState, residual: F32 | None) -> bool:
        alone, n = self._alone(values.size), values.size
        folded, padded = state.scratch["folded"], state.scratch["values"]
        padded[:n] = values
        folded[:] = 0
        if residual is not None:
            folded[:n] = residual
        with np.errstate(over="ignore", invalid="ignore"):
            finite = _finite(padded + folded)
        words = np.empty(alone.num_first + alone.num_second, np.float32)
        first, second = words[: alone.num_first], words[alone.num_first :]
        alone.begin(padded, folded, state, first)
        alone.middle(first, folded, state, second)
        alone.finish(first, second, folded, state, state.scratch["out"])
        payload[:] = words.view(np.uint8)
        if residual is not None:
            residual[:] = folded[:n]
        return finite

    def _decode(self, payload: U8, out: F32, add: bool, scale: float) -> None:
        alone = self._alone(out.size)
        words = payload.view(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            if alone.matrices:
                (matrix,) = alone.matrices
                p = matrix.p_of(words).reshape(matrix.rows, matrix.rank)
                q = matrix.q_of(words[alone.num_first :]).reshape(matrix.cols, matrix.rank)
                decoded = (p @ q.T).reshape(-1)[: out.size]
            else:
                decoded = words
            out[:] = (out + decoded * np.float32(scale)) if add else decoded * np.float32(scale)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a parameter: the first axis, and all others together."""
    if len(shape) < 2:
        return 1, math.prod(shape)
    return shape[0], math.prod(shape[1:])


def _finite(*arrays: F32) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays)


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
