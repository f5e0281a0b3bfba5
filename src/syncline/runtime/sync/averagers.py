"""Who averages what: for each bucket its program, and for each of its pieces the exchanges that carry it out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import torch

from syncline.codec.low_rank import LowRank
from syncline.codec.names import dense, scheme
from syncline.program.stages import DENSE, ENCODE, BucketProgram, PieceProgram, awaited
from syncline.runtime.sync.bucket import Bucket, Layout
from syncline.runtime.sync.exchange import Exchange, ExchangePlace, Trouble
from syncline.runtime.sync.low_rank import Factors
from syncline.runtime.sync.native_exchange import NativeExchange, runs_natively
from syncline.runtime.sync.piece import BucketPiece
from syncline.runtime.sync.residuals import Residuals
from syncline.runtime.sync.settings import Settings
from syncline.runtime.wire.links import GroupLinks
from syncline.runtime.wire.team import Team

MAX_PIECES = 1 << 16
"""Tags of a bucket."""


class Averagers:
    """Makes buckets; owns what outlives them: residuals and factors, by the names of parameters."""

    def __init__(self, settings: Settings, links: GroupLinks, *, in_order: bool = False) -> None:
        self.residuals = Residuals()
        self.factors: dict[str, torch.Tensor] = {}
        self._settings = settings
        self._links = links
        self._in_order = in_order
        self._tag = 0

    def bucket(
        self, index: int, layout: Layout, buffer: torch.Tensor, codec: str, *, scatter_only: bool = False
    ) -> Bucket:
        """Return the bucket of this index and layout, ready to be exchanged in `codec`.

        With `scatter_only` its equal shards are summed, each on its own rank. Tags follow from the index: where one
        rank makes its bucket anew and another does not, their messages still meet, and are found to differ.
        """
        chosen = scheme(codec)
        shape = tuple(wire.size for wire in self._links.wires)
        piece_bytes = self._settings.piece_bytes_on(self._links.device.type)
        factors = None
        if isinstance(chosen, LowRank):
            parts = chosen.exchange(layout.shapes)
            factors = parts.num_first, parts.num_second
        program = BucketProgram(
            buffer.numel(), chosen, shape, piece_bytes, scatter_only=scatter_only, factors=factors,
            borders=layout.borders,
        )  # fmt: skip
        bucket = Bucket(layout, buffer, self._settings.nan, self._links.team, program)
        residual = None
        if self._settings.keeps_error(codec):
            residual = self.residuals.flat(layout.names, layout.sizes, buffer.device)
        self._tag = index * MAX_PIECES
        bucket.pieces += [self._piece(bucket, piece, residual) for piece in program.pieces]
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

    def _piece(self, bucket: Bucket, program: PieceProgram, residual: torch.Tensor | None) -> BucketPiece:
        """Return what carries out a piece: an exchange for each level of its stages, dense but at the outermost."""
        own = None if residual is None else residual[program.low : program.high]
        values = {0: (bucket.values[program.low : program.high], own)}
        chosen, factors = bucket.program.scheme, None
        if isinstance(chosen, LowRank):
            assert own is not None, "low rank always keeps its error"
            factors = self._factors(bucket, own, chosen)
            values = {1: (factors.p, None), 2: (factors.q, None)}
        inside = dense(DENSE)
        outside = inside if factors is not None else dense(chosen.name)
        exchanges = {}
        for number, stage in enumerate(program.stages):
            if stage.name != ENCODE:
                continue
            wire, is_outermost = self._links.wires[stage.level], stage.level == len(self._links.wires) - 1
            here, owed = values[stage.part]
            known = outside if is_outermost else inside
            course = [s for s in program.stages if (s.part, s.level) == (stage.part, stage.level)]
            walked = tuple((s.name, awaited(program.stages, s)) for s in course)
            place, bounds = self._place(bucket, known.name, here), program.bounds(number, self._links.rank)
            kept = owed if is_outermost else None
            is_lane = is_outermost and runs_natively(walked, wire, here.device)
            make: Any = NativeExchange if is_lane else Exchange
            exchange = make(here, kept, known, wire, place, bounds, scatter_only=program.program.scatter_only)
            exchanges[stage.part, stage.level] = exchange
            low, high = bounds[wire.rank]
            values[stage.part] = exchange.own, None if owed is None else owed[low:high]
        return BucketPiece(bucket, program, exchanges, factors)

    def _factors(self, bucket: Bucket, residual: torch.Tensor, chosen: LowRank) -> Factors:
        layout, rank = bucket.layout, self._links.rank
        return Factors(
            bucket.values, residual, chosen.exchange(layout.shapes), self.factors, layout.names,
            lambda values: Trouble(rank, _first_bad(bucket, values)),
        )  # fmt: skip

    def _place(self, bucket: Bucket, codec: str, values: torch.Tensor) -> ExchangePlace:
        self._tag += 1
        means = self._settings.fingerprint(codec)
        layout = bucket.layout.fingerprint()
        offset = _offset(bucket, values)
        ends = () if offset is None else tuple(accumulate(bucket.layout.sizes))
        return ExchangePlace(
            self._tag, layout, means, self._links.rank, lambda shard: _first_bad(bucket, shard), ends, offset or 0,
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
