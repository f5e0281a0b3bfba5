"""PowerSGD on a bucket: two small averages instead of a large one, each an exchange of float32 factors.

M = gradient + residual; P = M Q is averaged and made orthonormal; Q = M^T P is averaged; P Q^T is the gradient that
every rank takes. The residual is M - P Q^T with this rank's own Q, taken off while M is still in the cache. Vectors go
along uncompressed with P.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import torch

from syncline.codec.low_rank import FactorLayout
from syncline.program.stages import FIRST, LAST, MIDDLE
from syncline.runtime.sync.exchange import Trouble
from syncline.runtime.sync.finite import is_finite
from syncline.runtime.sync.step import Step
from syncline.timeline import SpanKind


class Factors:
    """The factors of one whole bucket, and what is done with them; buffers are allocated once.

    `kept` holds each parameter's Q by name: the next step starts from it, also in other buckets.
    """

    number = -1

    def __init__(
        self,
        values: torch.Tensor,
        residual: torch.Tensor,
        layout: FactorLayout,
        kept: dict[str, torch.Tensor],
        names: tuple[str, ...],
        trouble: Callable[[torch.Tensor], Trouble],
    ) -> None:
        self._values, self._residual = values, residual
        self.p = torch.zeros(layout.num_first, device=values.device)
        """P of every matrix, then the vectors."""
        self.q = torch.zeros(layout.num_second, device=values.device)
        self._find = trouble
        self._is_bad = False
        self._places = [(m.start, m.rows, m.cols) for m in layout.matrices]
        self._ps = [_view(self.p, m.p_start, m.rows, m.rank) for m in layout.matrices]
        self._qs = [_view(self.q, m.q_start, m.cols, m.rank) for m in layout.matrices]
        self._ms = [_view(residual, *place) for place in self._places]
        self._dense = [(v.start, v.first_start, v.num_elements) for v in layout.vectors]
        starts = sorted([m.start for m in layout.matrices] + [v.start for v in layout.vectors])
        for matrix, q in zip(layout.matrices, self._qs, strict=True):
            name = names[starts.index(matrix.start)]
            known = kept.get(name)
            if known is None or known.shape != q.shape:
                seed = torch.Generator().manual_seed(zlib.crc32(name.encode()))
                known = torch.randn(q.shape, generator=seed)
            q.copy_(known)
            kept[name] = q

    def bind(self, values: torch.Tensor) -> None:
        """Work on this memory from now on."""
        self._values = values

    def first(self, step: Step) -> Trouble | None:
        """Make P, or say what is not finite."""
        self._is_bad = not is_finite(self._values)
        if self._is_bad:
            return self._find(self._values)
        began = time.perf_counter()
        for m, p, q, place in zip(self._ms, self._ps, self._qs, self._places, strict=True):
            m.add_(_view(self._values, *place))
            torch.mm(m, q, out=p)
        for start, first, size in self._dense:
            part = slice(start, start + size)
            torch.add(self._values[part], self._residual[part], out=self.p[first : first + size])
        self._record(step, SpanKind.ENCODE, FIRST, began)
        return None

    def middle(self, step: Step) -> None:
        """Leave Q = M^T P in place of the last one, and M less what P and Q say of it as the residual."""
        began = time.perf_counter()
        for m, p, q in zip(self._ms, self._ps, self._qs, strict=True):
            orthogonalise(p)
            torch.mm(m.t(), p, out=q)
            m.addmm_(p, q.t(), alpha=-1.0)
        for start, _, size in self._dense:
            self._residual[start : start + size].zero_()
        self._record(step, SpanKind.ENCODE, MIDDLE, began)

    def last(self, step: Step) -> None:
        """Take P Q^T, and the vectors as they came."""
        began = time.perf_counter()
        for p, q, place in zip(self._ps, self._qs, self._places, strict=True):
            torch.mm(p, q.t(), out=_view(self._values, *place))
            _revive(q)
        for start, first, size in self._dense:
            self._values[start : start + size].copy_(self.p[first : first + size])
        self._record(step, SpanKind.DECODE, LAST, began)

    def forget(self) -> None:
        """Take the residual back to what it was before `first`."""
        if not self._is_bad:
            for m, place in zip(self._ms, self._places, strict=True):
                m.sub_(_view(self._values, *place))

    def _record(self, step: Step, kind: SpanKind, name: str, began_s: float) -> None:
        step.record(kind, name, began_s, time.perf_counter(), self._values.nbytes, self.number)


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
