"""How gradients lie in FSDP2's flat buffers: parameters whole, and as padded shards side by side.

A reduce-scatter's buffer holds, for each rank, that rank's padded shard of every parameter. What a codec owes is kept
in that order. To be taken over by another number of ranks, or another mesh, it is put together to whole parameters and
cut anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Sharding:
    """One parameter: its whole shape, the dimension that is cut, and the padded shape of a shard."""

    shape: tuple[int, ...]
    dim: int
    padded: tuple[int, ...]

    def whole(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the parameter from all its padded shards, in order: padding lies behind everything else."""
        together = torch.cat([shard.view(self.padded) for shard in shards], dim=self.dim)
        return together.narrow(self.dim, 0, self.shape[self.dim]) if self.shape else together.view(())

    def cut(self, whole: torch.Tensor, num_shards: int) -> list[torch.Tensor]:
        """Return the padded shards of a parameter; the opposite of `whole`."""
        rows = self.padded[self.dim]
        padding = [0, 0] * len(self.padded)
        padding[-1 - 2 * self.dim] = rows * num_shards - self.shape[self.dim]
        padded = torch.nn.functional.pad(whole.view(self.shape), padding)
        return [padded.narrow(self.dim, k * rows, rows).contiguous() for k in range(num_shards)]


@dataclass(frozen=True)
class Geometry:
    """All parameters of a model by name, how many shards there are, and which one a rank owes; -1: all of them."""

    parameters: Mapping[str, Sharding]
    num_shards: int
    shard: int

    @property
    def held(self) -> str:
        """What the names of residuals say of how they lie."""
        return f"{self.num_shards} shards" if self.shard < 0 else "replicated shard"

    def name(self, parameter: str, shard: int) -> str:
        """Return the name under which what a parameter's shard owes is kept."""
        return f"{parameter} ({self.held}, {shard})"

    def lay_out(self, wholes: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return what whole parameters owe as this rank keeps it."""
        laid: dict[str, torch.Tensor] = {}
        for parameter, whole in wholes.items():
            known = self.parameters.get(parameter)
            if known is None:
                continue
            shards = known.cut(whole, self.num_shards)
            kept = enumerate(shards) if self.shard < 0 else [(0, shards[self.shard])]
            laid |= {self.name(parameter, k): shard for k, shard in kept}
        return laid

    def to_json(self) -> dict[str, object]:
        """Return plain values, as a checkpoint keeps them."""
        return {**asdict(self), "parameters": {name: asdict(one) for name, one in self.parameters.items()}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Geometry:
        """Return what `to_json` gave."""
        parameters = {
            name: Sharding(tuple(one["shape"]), int(one["dim"]), tuple(one["padded"]))
            for name, one in value["parameters"].items()
        }
        return cls(parameters, int(value["num_shards"]), int(value["shard"]))


Owed = tuple[Geometry, Mapping[str, torch.Tensor]]
"""What one rank owes, and how that lies."""


def owed_by_all(ranks: Iterable[Owed], num_owing: int) -> dict[str, torch.Tensor]:
    """Return what all ranks owe on average, by whole parameters, from what each of them keeps."""
    totals: dict[str, list[torch.Tensor]] = {}
    known: dict[str, Sharding] = {}
    for geometry, residuals in ranks:
        for parameter, sharding in geometry.parameters.items():
            known[parameter] = sharding
            places = range(geometry.num_shards) if geometry.shard < 0 else [geometry.shard]
            for place in places:
                part = residuals.get(geometry.name(parameter, place if geometry.shard < 0 else 0))
                if part is None:
                    continue
                empty = [torch.zeros(sharding.padded) for _ in range(geometry.num_shards)]
                totals.setdefault(parameter, empty)[place] += part.view(sharding.padded).cpu()
    return {name: known[name].whole(shards) / num_owing for name, shards in totals.items()}
