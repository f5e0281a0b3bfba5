"""Compressed reduce-scatter: the first half of the exchange, for frameworks that keep gradients in shards."""

from __future__ import annotations

import torch

from syncline.codec.scheme import Scheme
from syncline.program.pieces import equal_bounds
from syncline.runtime.sync.exchange import Exchange, ExchangePlace, Trouble
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.wire import Wire


class ReduceScatter(Exchange):
    """Sums equal shards; the own one is summed in float32 and never encoded, so its error is only the others'."""

    def __init__(
        self, values: torch.Tensor, residual: torch.Tensor | None, scheme: Scheme, wire: Wire, place: ExchangePlace
    ) -> None:
        bounds = equal_bounds(values.numel(), wire.size)
        super().__init__(values, residual, scheme, wire, place, bounds=bounds)
        self.sent_bytes = sum(len(self._out[peer].tensor) for peer in wire.peers)
        self._scale = 1.0

    def send(self, step: Step, trouble: Trouble | None = None, *, scale: float = 1.0) -> None:
        """Encode what others own and post it; the own sum is to be multiplied by `scale`."""
        self._scale = scale
        super().send(step, trouble)

    def reduce(self) -> Trouble | None:
        """Wait for every peer's shard; say who had trouble, on all ranks alike."""
        return self.receive()

    def collect(self) -> None:
        """Leave the sum of the own shard in `own`."""
        self.finish()
        self.add_up(self._scale)
