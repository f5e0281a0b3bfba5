"""Whether a model is sharded by FSDP2, and the mesh it is sharded over; torch's FSDP is imported by its users only."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from syncline.errors import SynchronizationError

FSDP_HOMES = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")
"""Where `fully_shard` is; torch before 2.6 has it in the second place only."""

OLDEST_TORCH = (2, 9)
"""The first torch whose FSDP2 lets both its collectives be replaced."""


def is_sharded(module: nn.Module) -> bool:
    """Tell whether `fully_shard` was applied to a module: who has not imported it has not called it."""
    known = (getattr(sys.modules.get(name), "FSDPModule", None) for name in FSDP_HOMES)
    return any(kind is not None and isinstance(module, kind) for kind in known)


@dataclass(frozen=True)
class ShardMesh:
    """The ranks a model is sharded over, and those that hold the same shard; None: every shard is there once."""

    shards: dist.ProcessGroup
    replicas: dist.ProcessGroup | None


def sharded_modules(model: nn.Module) -> list[tuple[str, Any]]:
    """Return the modules that hold sharded parameters, by name; a root over sharded children may hold none itself."""
    named = [(name or "model", module) for name, module in model.named_modules() if is_sharded(module)]
    return [(name, module) for name, module in named if param_groups(module)]


def check_replaceable(model: nn.Module) -> None:
    """Raise where FSDP2 does not let its collectives be replaced: that of an older torch."""
    for _, module in sharded_modules(model):
        for group in param_groups(module):
            if not (hasattr(group, "_reduce_scatter_comm") and hasattr(group, "_all_reduce_hook")):
                raise SynchronizationError(
                    f"FSDP2 of torch {torch.__version__} does not let its collectives be replaced.",
                    hint="Use torch {}.{} or newer, or DDP.".format(*OLDEST_TORCH),
                )


def param_groups(module: Any) -> list[Any]:
    """Return FSDP2's groups of the parameters that a module itself shards; torch before 2.11 has at most one."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        return [] if state._fsdp_param_group is None else [state._fsdp_param_group]
    return list(groups)


def shard_mesh(model: nn.Module) -> ShardMesh:
    """Return the one mesh that all parts of a model are sharded over."""
    found: dict[tuple[Any, Any], str] = {}
    for name, module in sharded_modules(model):
        for group in param_groups(module):
            mesh = group.mesh_info
            shards, replicas = (getattr(mesh, f"{kind}_process_group", None) for kind in ("shard", "replicate"))
            if shards is None:
                raise SynchronizationError(
                    f'"{name}" is replicated and not sharded.', hint="Use DistributedDataParallel for replicas alone."
                )
            found.setdefault((shards, replicas), name)
    if not found:
        raise SynchronizationError("the model has no parameter to train.", hint="Apply fully_shard to its layers.")
    if len(found) > 1:
        first, second = [(name, dist.get_process_group_ranks(key[0])) for key, name in found.items()][:2]
        raise SynchronizationError(
            f'"{first[0]}" is sharded over ranks {_listed(first[1])} and "{second[0]}" over {_listed(second[1])}.',
            hint="Shard all parts of a model over one mesh, or synchronise each part with a handle of its own.",
        )
    shards, replicas = next(iter(found))
    return ShardMesh(shards, replicas)


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
