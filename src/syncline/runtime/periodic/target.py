"""What is averaged and with whom: the parameters of a plain, DDP or FSDP2 model, and the group that shares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncline.errors import SynchronizationError
from syncline.runtime.sync.axes import MeshAxes, local
from syncline.runtime.sync.sharded import is_sharded, shard_mesh
from syncline.runtime.wire.levels import resolve


@dataclass(frozen=True)
class Target:
    """The trained parameters of this rank by name, the group to average over, and how it falls into levels."""

    names: tuple[str, ...]
    parameters: tuple[torch.Tensor, ...]
    group: Any
    levels: tuple[int, ...]
    replaces: DistributedDataParallel | None
    """A DDP model over the very ranks of the group: the method takes the place of its averaging."""
    has_site: bool = False
    """Whether DDP goes on among some ranks, which are replicas after every step, and must stay so."""

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.parameters[0].device

    def values(self) -> list[torch.Tensor]:
        """Return this rank's part of each parameter; memory is shared."""
        return [local(parameter) for parameter in self.parameters]

    def described(self) -> list[Any]:
        """Return what other ranks must have too."""
        return [[name, list(v.shape)] for name, v in zip(self.names, self.values(), strict=True)]


def target(model: nn.Module, group: Any = None, levels: object = None) -> Target:
    """Return what a method averages.

    plain module   over `group`, by default the world
    DDP            over a part of the group (a site): DDP goes on there, and levels are (ranks of a site,)
                   over all of it: the method replaces DDP's averaging
    FSDP2          over `group`, the ranks that hold the same shard, which must be given
    """
    if not dist.is_initialized():
        raise SynchronizationError(
            "torch.distributed is not initialised.", hint="Call torch.distributed.init_process_group first."
        )
    module = wrapped = getattr(model, "_orig_mod", model)
    replaces, inside = None, levels
    if is_sharded(module) and group is None:
        raise SynchronizationError(
            "an FSDP2 model needs the group of ranks that hold the same shard.",
            hint='Pass group=mesh["site"].get_group() of a mesh (site, shard), "shard" of which fully_shard has.',
        )
    group = group or dist.group.WORLD
    if isinstance(module, DistributedDataParallel):
        replaces, inside = _ddp(module, group, levels)
        module = module.module
    names, parameters = trained(module)
    _refuse_axes(wrapped, dict(zip(names, parameters, strict=True)), group)
    has_site = False
    if isinstance(wrapped, DistributedDataParallel) and replaces is None:
        has_site = dist.get_world_size(wrapped.process_group) > 1
    return Target(names, parameters, group, resolve(inside, dist.get_world_size(group)), replaces, has_site)


def _refuse_axes(model: nn.Module, parameters: dict[str, torch.Tensor], group: Any) -> None:
    """Raise where a mesh has an axis that nobody averages over: replicas on it would part under a codec."""
    averaged = [group]
    if isinstance(model, DistributedDataParallel):
        averaged.append(model.process_group)
    elif is_sharded(model):
        mesh = shard_mesh(model)
        averaged += [one for one in (mesh.shards, mesh.replicas) if one is not None]
    for axis in MeshAxes(parameters, averaged).groups:
        raise SynchronizationError(
            f'DiLoCo does not work with the axis "{axis}" of this model\'s mesh yet: parameters that are whole on it '
            "would part under a codec.",
            hint="Use synchronize(), which keeps them equal, or a mesh without that axis.",
        )


def alone(model: nn.Module) -> Target:
    """Return what a method averages for a rank of a crew: a plain module, which needs nobody between averages."""
    module = getattr(model, "_orig_mod", model)
    if isinstance(module, DistributedDataParallel) or is_sharded(module):
        raise SynchronizationError(
            f"a crew trains plain modules, and this is a {type(module).__name__}: it cannot go on without a rank.",
            hint="Pass the module itself.",
        )
    names, parameters = trained(module)
    return Target(names, parameters, None, (), None)


def site_group(ranks_per_site: int) -> Any:
    """Return the group of this rank's site, for DDP inside it; every rank of the world calls it.

    model = DistributedDataParallel(model, process_group=syncline.torch.site_group(8))
    optimizer = syncline.torch.DiLoCo(optimizer, model, every=50, codec="int4")
    """
    size = dist.get_world_size()
    if type(ranks_per_site) is not int or ranks_per_site < 1 or size % ranks_per_site:
        raise SynchronizationError(f"{size} ranks cannot be divided into sites of {ranks_per_site!r}.")
    sites = [list(range(low, low + ranks_per_site)) for low in range(0, size, ranks_per_site)]
    groups = [dist.new_group(ranks) for ranks in sites]
    return groups[dist.get_rank() // ranks_per_site]


def trained(module: nn.Module) -> tuple[tuple[str, ...], tuple[torch.Tensor, ...]]:
    """Return the parameters of a module that are trained, by name."""
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not named:
        raise SynchronizationError("the model has no parameter to train.")
    return tuple(name for name, _ in named), tuple(p for _, p in named)


def _ddp(model: DistributedDataParallel, group: Any, levels: object) -> tuple[DistributedDataParallel | None, object]:
    inner = dist.get_process_group_ranks(model.process_group)
    outer = dist.get_process_group_ranks(group)
    if sorted(inner) == sorted(outer):
        return model, levels
    if not set(inner) & set(outer) - {dist.get_rank()}:
        return None, levels  # DDP inside a site, and the group goes across: one rank of each
    size = len(inner)
    place = outer.index(dist.get_rank()) // size
    if not set(inner) <= set(outer) or sorted(inner) != sorted(outer[place * size : (place + 1) * size]):
        raise SynchronizationError(
            f"the ranks of DDP's group ({', '.join(map(str, inner))}) do not follow one another in the group that the "
            "method averages over.",
            hint="Make sites with syncline.torch.site_group(ranks of one site).",
        )
    return None, levels if levels is not None else (size,)
