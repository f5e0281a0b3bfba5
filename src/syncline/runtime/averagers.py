"""Who averages what: for each bucket its pieces, and for each piece the exchange that its codec and levels ask for."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from syncline.codec.low_rank import LowRank
from syncline.codec.scheme import Scheme, scheme
from syncline.runtime.bucket import Averager, Bucket, Layout, piece_cuts
from syncline.runtime.exchange import Exchange, Place, Trouble, shard_bounds
from syncline.runtime.links import GroupLinks
from syncline.runtime.low_rank import LowRankAverage
from syncline.runtime.residuals import Residuals
from syncline.runtime.settings import Settings

DENSE = "fp32"


class Averagers:
    """Makes buckets; owns what outlives them: residuals and factors, by the names of parameters."""

    def __init__(self, settings: Settings, links: GroupLinks) -> None:
        self.residuals = Residuals()
        self.factors: dict[str, torch.Tensor] = {}
        self._settings = settings
        self._links = links
        self._num_tags = 0

    def bucket(self, layout: Layout, buffer: torch.Tensor, codec: str) -> Bucket:
        """Return a bucket of this layout, ready to be exchanged in `codec`."""
        bucket = Bucket(layout, buffer, self._settings.nan, self._links.group)
        chosen = scheme(codec)
        residual = None
        if codec == self._settings.codec and self._settings.uses_feedback:
            residual = self.residuals.flat(layout.names, layout.sizes, buffer.device)
        if isinstance(chosen, LowRank):
            assert residual is not None, "low rank always keeps its error"
            bucket.cut([0, buffer.numel()], lambda low, high: self._low_rank(bucket, residual, chosen))
            return bucket

        def piece(low: int, high: int) -> Averager:
            part = None if residual is None else residual[low:high]
            return self._exchange(bucket, bucket.values[low:high], part, chosen)

        bucket.cut(piece_cuts(buffer.numel(), self._settings.piece_bytes), piece)
        return bucket

    def load(self, residuals: Mapping[str, torch.Tensor], factors: Mapping[str, torch.Tensor], shared: bool) -> None:
        """Take saved state over; shared residuals are the mean, which every rank may owe."""
        self.residuals.load(residuals)
        self.factors.update({name: factor.clone() for name, factor in factors.items()})

    def _exchange(
        self, bucket: Bucket, values: torch.Tensor, residual: torch.Tensor | None, chosen: Scheme, level: int = 0
    ) -> Exchange:
        """Return the exchange of some values: dense inside each level, encoded at the outermost."""
        wire = self._links.wires[level]
        if level == len(self._links.wires) - 1:
            return Exchange(values, residual, chosen, wire, self._place(bucket, chosen))
        low, high = shard_bounds(values.numel(), wire.size)[wire.rank]
        own = None if residual is None else residual[low:high]
        dense = scheme(DENSE)
        place = self._place(bucket, dense)
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

    def _place(self, bucket: Bucket, chosen: Scheme) -> Place:
        self._num_tags += 1
        codec = self._settings.fingerprint(chosen.name)
        layout = bucket.layout.fingerprint()
        return Place(self._num_tags, layout, codec, self._links.rank, lambda shard: _first_bad(bucket, shard))


def _first_bad(bucket: Bucket, values: torch.Tensor) -> int:
    """Return the index of the parameter in which the first element of `values` that is no number lies."""
    offset = (values.data_ptr() - bucket.values.data_ptr()) // 4
    bad = torch.nonzero(~torch.isfinite(values))
    inside = 0 <= offset < bucket.values.numel()
    return bucket.layout.parameter_at(offset + int(bad[0]) if inside else 0)
