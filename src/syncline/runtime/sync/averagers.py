"""Who averages what: for each bucket its pieces, and for each piece the exchange that its codec and levels ask for."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import torch

from syncline.codec.low_rank import LowRank
from syncline.codec.names import scheme
from syncline.codec.scheme import Scheme
from syncline.program.pieces import shard_bounds
from syncline.program.stages import DENSE, BucketProgram
from syncline.runtime.sync.bucket import Averager, Bucket, Layout
from syncline.runtime.sync.exchange import Exchange, ExchangePlace, Trouble
from syncline.runtime.sync.low_rank import LowRankAverage
from syncline.runtime.sync.native_exchange import NativeExchange, runs_natively
from syncline.runtime.sync.residuals import Residuals
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.shard.scatter import ReduceScatter
from syncline.runtime.wire.links import GroupLinks
from syncline.runtime.wire.native_wire import NativeWire
from syncline.runtime.wire.team import Team

MAX_PIECES = 1 << 16


class Averagers:
    """Makes buckets; owns what outlives them: residuals and factors, by the names of parameters."""

    def __init__(self, settings: Settings, links: GroupLinks, *, in_order: bool = False) -> None:
        self.residuals = Residuals()
        self.factors: dict[str, torch.Tensor] = {}
        self._settings = settings
        self._links = links
        self._in_order = in_order
        self._tag = 0

    def bucket(self, index: int, layout: Layout, buffer: torch.Tensor, codec: str) -> Bucket:
        """Return the bucket of this index and layout, ready to be exchanged in `codec`.

        Tags follow from the index: where one rank makes its bucket anew and another does not, their messages still
        meet, and are found to differ.
        """
        self._tag = index * MAX_PIECES
        chosen = scheme(codec)
        program = self.program(buffer.numel(), chosen, layout.shapes)
        bucket = Bucket(layout, buffer, self._settings.nan, self._links.team, program)
        residual = None
        if self._settings.keeps_error(codec):
            residual = self.residuals.flat(layout.names, layout.sizes, buffer.device)
        if isinstance(chosen, LowRank):
            assert residual is not None, "low rank always keeps its error"
            bucket.cut(program.cuts, lambda low, high: self._low_rank(bucket, residual, chosen))
            return bucket

        def piece(low: int, high: int) -> Averager:
            part = None if residual is None else residual[low:high]
            return self._exchange(bucket, bucket.values[low:high], part, chosen)

        bucket.cut(program.cuts, piece)
        return bucket

    def program(
        self, elements: int, chosen: Scheme, shapes: tuple[tuple[int, ...], ...] = (), *, scatter_only: bool = False
    ) -> BucketProgram:
        """Return what is done with a bucket: what is made here carries it out, and simulators price it."""
        shape = tuple(wire.size for wire in self._links.wires)
        piece_bytes = self._settings.piece_bytes_on(self._links.device.type)
        return BucketProgram(elements, chosen, shape, piece_bytes, scatter_only=scatter_only, shapes=shapes)

    def scatter(self, index: int, layout: Layout, buffer: torch.Tensor, codec: str) -> Bucket:
        """Return a bucket whose equal shards are summed, each on its own rank."""
        self._tag = index * MAX_PIECES
        chosen = scheme(codec)
        program = self.program(buffer.numel(), chosen, scatter_only=True)
        bucket = Bucket(layout, buffer, self._settings.nan, self._links.team, program)
        residual = None
        if self._settings.keeps_error(codec):
            residual = self.residuals.flat(layout.names, layout.sizes, buffer.device)
        wire, place = self._links.outermost, self._place(bucket, chosen, bucket.values)
        if runs_natively(chosen, wire, buffer.device):
            assert isinstance(wire, NativeWire)
            bucket.scatter = NativeExchange(bucket.values, residual, chosen, wire, place, scatter_only=True)
        else:
            bucket.scatter = ReduceScatter(bucket.values, residual, chosen, wire, place)
        return bucket

    def load(self, residuals: Mapping[str, torch.Tensor], factors: Mapping[str, torch.Tensor]) -> None:
        """Take saved state over; if every rank owes the mean, so do all together."""
        self.residuals.load(residuals)
        self.factors.update({name: factor.clone() for name, factor in factors.items()})

    @property
    def team(self) -> Team:
        """All ranks that average together."""
        return self._links.team

    @property
    def num_owing(self) -> int:
        """How many ranks owe each element: with levels only one of each host, unless every rank keeps factors."""
        low_rank = isinstance(self._settings.scheme, LowRank)
        return self._links.num_ranks if low_rank else self._links.outermost.size

    def _exchange(
        self, bucket: Bucket, values: torch.Tensor, residual: torch.Tensor | None, chosen: Scheme, level: int = 0
    ) -> Exchange | NativeExchange:
        """Return the exchange of some values: dense inside each level, encoded at the outermost."""
        wire = self._links.wires[level]
        if level == len(self._links.wires) - 1:
            place = self._place(bucket, chosen, values)
            if runs_natively(chosen, wire, values.device):
                assert isinstance(wire, NativeWire)
                return NativeExchange(values, residual, chosen, wire, place)
            return Exchange(values, residual, chosen, wire, place)
        low, high = shard_bounds(values.numel(), wire.size)[wire.rank]
        own = None if residual is None else residual[low:high]
        dense = scheme(DENSE)
        place = self._place(bucket, dense, values)
        return Exchange(
            values, None, dense, wire, place, lambda shard: self._exchange(bucket, shard, own, chosen, level + 1)
        )

    def _low_rank(self, bucket: Bucket, residual: torch.Tensor, chosen: LowRank) -> LowRankAverage:
        layout = bucket.layout
        dense = scheme(DENSE)

        def trouble(values: torch.Tensor) -> Trouble:
            return Trouble(self._links.rank, _first_bad(bucket, values))

        return LowRankAverage(
            bucket.values,
            residual,
            chosen.exchange(layout.shapes),
            self.factors,
            layout.names,
            lambda factor: self._exchange(bucket, factor, None, dense),
            trouble,
        )

    def _place(self, bucket: Bucket, chosen: Scheme, values: torch.Tensor) -> ExchangePlace:
        self._tag += 1
        codec = self._settings.fingerprint(chosen.name)
        layout = bucket.layout.fingerprint()
        offset = _offset(bucket, values)
        ends = () if offset is None else tuple(accumulate(bucket.layout.sizes))
        return ExchangePlace(
            self._tag, layout, codec, self._links.rank, lambda shard: _first_bad(bucket, shard), ends, offset or 0,
            0 if self._in_order else self._tag // MAX_PIECES,
        )  # fmt: skip


def _first_bad(bucket: Bucket, values: torch.Tensor) -> int:
    """Return the index of the parameter in which the first element of `values` that is no number lies."""
    offset = _offset(bucket, values)
    if offset is None:
        return 0
    bad = torch.nonzero(~torch.isfinite(values))
    # There is none where only the sum with the residual overflows.
    return bucket.layout.parameter_at(offset + (int(bad[0]) if len(bad) else 0))


def _offset(bucket: Bucket, values: torch.Tensor) -> int | None:
    """Return which element of the bucket is the first of `values`; None: they lie elsewhere, as factors do."""
    offset = (values.data_ptr() - bucket.values.data_ptr()) // 4
    return offset if 0 <= offset < bucket.values.numel() else None
