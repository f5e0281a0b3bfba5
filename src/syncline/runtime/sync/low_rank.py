"""PowerSGD on a bucket: two small averages instead of a large one, each an exchange of float32 factors.

M = gradient + residual; P = M Q is averaged and made orthonormal; Q = M^T P is averaged; P Q^T is the gradient that
every rank takes. The residual is M - P Q^T with this rank's own Q, taken off while M is still in the cache. Vectors go
along uncompressed with P. Both averages go through the conveyor's stages, so any number of buckets is in order.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import torch

from syncline.codec.low_rank import FactorLayout as Geometry
from syncline.errors import NonFiniteError
from syncline.program.stages import FIRST, LAST, MIDDLE
from syncline.runtime.sync.exchange import ExchangeView, Trouble
from syncline.runtime.sync.finite import is_finite
from syncline.runtime.sync.step import Step
from syncline.timeline import SpanKind


class LowRankAverage:
    """The average of one whole bucket in factors; buffers are allocated once.

    `factors` keeps each parameter's Q by name: the next step starts from it, also in other buckets.
    """

    number = -1

    def __init__(
        self,
        values: torch.Tensor,
        residual: torch.Tensor,
        geometry: Geometry,
        factors: dict[str, torch.Tensor],
        names: tuple[str, ...],
        average: Callable[[torch.Tensor], ExchangeView],
        trouble: Callable[[torch.Tensor], Trouble],
    ) -> None:
        self._geometry = geometry
        self._values, self._residual = values, residual
        self._first = torch.zeros(geometry.num_first, device=values.device)
        self._second = torch.zeros(geometry.num_second, device=values.device)
        self._exchanges = (average(self._first), average(self._second))
        self._find = trouble
        self._trouble: Trouble | None = None
        self._matrices = [(m.start, m.rows, m.cols) for m in geometry.matrices]
        self._p = [_view(self._first, m.p_start, m.rows, m.rank) for m in geometry.matrices]
        self._q = [_view(self._second, m.q_start, m.cols, m.rank) for m in geometry.matrices]
        self._m = [_view(residual, *shape) for shape in self._matrices]
        for matrix, q in zip(geometry.matrices, self._q, strict=True):
            self._start(q, factors, names[_owner(geometry, matrix.start)])
        # With levels the first average waits for peers' back threads, as the second always does.
        self.ordered = self._exchanges[0].goes_beyond
        self._dense = [(v.start, v.first_start, v.num_elements) for v in geometry.vectors]
        self.sent_bytes = sum(exchange.sent_bytes for exchange in self._exchanges)
        self.inside_bytes = sum(exchange.inside_bytes for exchange in self._exchanges)
        self._step: Step

    @staticmethod
    def _start(q: torch.Tensor, factors: dict[str, torch.Tensor], name: str) -> None:
        known = factors.get(name)
        if known is None or known.shape != q.shape:
            seed = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            known = torch.randn(q.shape, generator=seed)
        q.copy_(known)
        factors[name] = q

    def bind(self, values: torch.Tensor) -> None:
        """Work on this memory from now on."""
        self._values = values

    def prepare(self, step: Step) -> None:
        """Do nothing: the step before must have left its residual."""

    def send(self, step: Step) -> None:
        """Make P and post it."""
        self._step = step
        for exchange in self._exchanges:
            exchange.number = self.number
        self._trouble = None if is_finite(self._values) else self._find(self._values)
        began = time.perf_counter()
        if self._trouble is None:
            for m, p, q, shape in zip(self._m, self._p, self._q, self._matrices, strict=True):
                m.add_(_view(self._values, *shape))
                torch.mm(m, q, out=p)
            for start, first, size in self._dense:
                torch.add(
                    self._values[start : start + size],
                    self._residual[start : start + size],
                    out=self._first[first : first + size],
                )
        step.record(SpanKind.ENCODE, FIRST, began, time.perf_counter(), self._values.nbytes, self.number)
        self._exchanges[0].send(step, self._trouble)

    def fail(self, step: Step) -> None:
        """Tell every peer that this rank cannot go on."""
        self._exchanges[0].fail(step)

    def sum_up(self) -> Trouble | None:
        """Sum P; what follows waits for peers' back threads, and so belongs to `collect`, where all are in order."""
        return self._exchanges[0].sum_up()

    def post(self) -> None:
        """Send the sum of P."""
        self._exchanges[0].post()

    def collect(self) -> None:
        """Average P, make Q, average it, and take P Q^T."""
        self._exchanges[0].collect()
        self._make_q()
        self._exchanges[1].send(self._step)
        trouble = self._exchanges[1].reduce()
        if trouble is not None:
            raise NonFiniteError(f"factors overflow on rank {trouble.rank} at step {self._step.number}.")
        self._exchanges[1].collect()
        began = time.perf_counter()
        for p, q, shape in zip(self._p, self._q, self._matrices, strict=True):
            torch.mm(p, q.t(), out=_view(self._values, *shape))
            _revive(q)
        for start, first, size in self._dense:
            self._values[start : start + size].copy_(self._first[first : first + size])
        self._step.record(SpanKind.DECODE, LAST, began, time.perf_counter(), self._values.nbytes, self.number)

    def _make_q(self) -> None:
        """Leave Q = M^T P in place of the last one, and M less what P and Q say of it as the residual."""
        began = time.perf_counter()
        for m, p, q in zip(self._m, self._p, self._q, strict=True):
            orthogonalise(p)
            torch.mm(m.t(), p, out=q)
            m.addmm_(p, q.t(), alpha=-1.0)
        for start, _, size in self._dense:
            self._residual[start : start + size].zero_()
        self._step.record(SpanKind.ENCODE, MIDDLE, began, time.perf_counter(), self._values.nbytes, self.number)

    def forget(self) -> None:
        """Take the residual back to what it was before `send`."""
        if self._trouble is None:
            for m, shape in zip(self._m, self._matrices, strict=True):
                m.sub_(_view(self._values, *shape))

    def finish(self) -> None:
        """Wait until nothing is under way."""
        for exchange in self._exchanges:
            exchange.finish()


def orthogonalise(p: torch.Tensor) -> None:
    """Make the columns orthonormal in place; one that depends on those before becomes zero."""
    for column in range(p.shape[1]):
        vector = p[:, column]
        before = float(vector.norm())
        if column:
            others = p[:, :column]
            for _ in range(2):
                vector.sub_(others @ (others.t() @ vector))
        norm = float(vector.norm())
        vector.mul_(0.0 if norm <= 1e-6 * before or norm == 0 else 1.0 / norm)


def _revive(q: torch.Tensor) -> None:
    """Give columns that have become zero a fixed new direction: a dead column would stay dead."""
    for column in (q.abs().sum(0) == 0).nonzero().flatten().tolist():
        q[:, column] = torch.randn(q.shape[0], generator=torch.Generator().manual_seed(column)).to(q.device)


def _view(flat: torch.Tensor, start: int, rows: int, cols: int) -> torch.Tensor:
    return flat[start : start + rows * cols].view(rows, cols)


def _owner(geometry: Geometry, start: int) -> int:
    """Return the index of the parameter that begins at an element."""
    starts = sorted([m.start for m in geometry.matrices] + [v.start for v in geometry.vectors])
    return starts.index(start)
