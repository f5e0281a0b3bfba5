"""Compressed reduce-scatter: the first half of the exchange, for frameworks that keep gradients in shards."""

from __future__ import annotations

import torch

from syncline.codec.scheme import Scheme
from syncline.runtime.sync.exchange import Exchange, Place, Trouble
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.wire import Wire


class ReduceScatter(Exchange):
    """Sums equal shards; the own one is summed in float32 and never encoded, so its error is only the others'."""

    def __init__(
        self, values: torch.Tensor, residual: torch.Tensor | None, scheme: Scheme, wire: Wire, place: Place
    ) -> None:
        size = values.numel() // wire.size
        bounds = [(k * size, (k + 1) * size) for k in range(wire.size)]
        super().__init__(values, residual, scheme, wire, place, bounds=bounds)
        self.sent_bytes = sum(len(self._out[peer].tensor) for peer in wire.peers)

    def run(self, step: Step, scale: float) -> Trouble | None:
        """Leave `scale` times the sum of the own shard in `own`; or say who had trouble, on all ranks alike."""
        self.send(step)
        trouble = self.receive()
        self.finish()
        if trouble is None:
            self.add_up(scale)
        else:
            self.forget()
        return trouble
