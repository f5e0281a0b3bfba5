"""Turning synchronisation on: recognise the model, make groups of its own, agree, and return the handle."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_common import HSDPMeshInfo
from torch.nn.parallel import DistributedDataParallel

from syncline.errors import SynchronizationError
from syncline.runtime.agreement import agree
from syncline.runtime.auto import AutoSynchronizer
from syncline.runtime.ddp import DdpSynchronizer
from syncline.runtime.fsdp import FsdpSynchronizer
from syncline.runtime.levels import members, resolve
from syncline.runtime.links import GroupLinks
from syncline.runtime.overflow import Scaler
from syncline.runtime.settings import Settings
from syncline.runtime.synchronizer import Synchronizer
from syncline.runtime.tuned import AUTO, Asked, asked


def synchronize(
    model: nn.Module,
    codec: str = AUTO,
    *,
    levels: object = None,
    scaler: Scaler | None = None,
    replicas: dist.ProcessGroup | None = None,
    accuracy: str = "safe",
    settings: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Synchronizer:
    """Average gradients of a DDP or FSDP2 model; every rank calls it before the first backward.

    handle = syncline.torch.synchronize(DistributedDataParallel(model))
    ...
    print(handle.summary(), handle.why())
    handle.close()

    What they travel in is found by measurement, in the class `accuracy` allows ("exact", "safe", "aggressive"), unless
    `codec` names it; `settings` is the file that `syncline tune` wrote. With FSDP2, levels and send_Bps nothing is
    measured: there it is int8, or fp32 if exact. `levels` are the ranks inside each level of a hierarchy ((8,), "host"
    or a Fabric); `scaler` is the GradScaler, if there is one: overflows then skip the step on every rank. With FSDP2
    `replicas` is the group of ranks that hold the same shard, over which `codec` averages while shards themselves are
    reduced as FSDP2 does. The other options are those of `Settings`.
    """
    if not dist.is_initialized():
        raise SynchronizationError(
            "torch.distributed is not initialised.", hint="Call torch.distributed.init_process_group first."
        )
    module = getattr(model, "_orig_mod", model)
    wanted = asked(codec, accuracy, settings)
    if scaler is not None:
        options.setdefault("nan", "skip")
    if isinstance(module, DistributedDataParallel):
        num_ranks = dist.get_world_size(module.process_group)
        if replicas is not None:
            raise SynchronizationError("replicas= belongs to FSDP2.", hint="Give levels= to average DDP in levels.")
        nested = resolve(levels, num_ranks)
        for what, given in (("levels", nested), ("send_Bps", options.get("send_Bps"))):
            wanted = wanted.by_name(what) if given else wanted
        handle: Synchronizer = _ddp(module, Settings(codec=wanted.base, levels=nested, **options), scaler, wanted)
    elif isinstance(module, FSDPModule):
        wanted = wanted.by_name("FSDP2")
        handle = _fsdp(module, Settings(codec=wanted.base, **options), levels, replicas, scaler)
    else:
        raise SynchronizationError(
            f"{type(module).__name__} is not a model syncline can synchronise.",
            hint="Pass a DistributedDataParallel model, or one that fully_shard was applied to.",
        )
    handle.reason = wanted.reason
    return handle


def _ddp(model: DistributedDataParallel, settings: Settings, scaler: Scaler | None, wanted: Asked) -> DdpSynchronizer:
    device = next(model.parameters()).device
    links = GroupLinks(model.process_group, settings, device)
    parameters = [[n, list(p.shape)] for n, p in model.module.named_parameters() if p.requires_grad]
    agree({**settings.agreed(), **wanted.agreed(), "parameters": parameters}, links.team)
    if wanted.chooses:
        return AutoSynchronizer(model, settings, links, scaler, accuracy=wanted.accuracy, fixed=wanted.codecs)
    return DdpSynchronizer(model, settings, links, scaler)


def _check_fsdp(settings: Settings, mesh: Any, replicas: dist.ProcessGroup | None) -> None:
    """Refuse what FSDP2 gives no place for: an option that did nothing would look as if it did."""
    if settings.send_Bps is not None:
        raise SynchronizationError("send_Bps is not there for FSDP2.", hint="Pace DDP, or shape the link.")
    if not isinstance(mesh, HSDPMeshInfo):
        return
    # FSDP2 all-reduces across the replicas of a two-dimensional mesh itself, and before any hook is called.
    hint = "Shard over the inner dimension alone, mesh[inner], and give replicas=mesh[outer].get_group()."
    if replicas is not None:
        raise SynchronizationError("this model's mesh has replicas already, which FSDP2 averages itself.", hint=hint)
    if settings.nan == "skip":
        raise SynchronizationError(
            'nan="skip" cannot be had on a mesh with replicas: they would not hear of it before their optimizer.',
            hint=hint,
        )


def _replicas(levels: object, shard_group: dist.ProcessGroup) -> tuple[dist.ProcessGroup | None, tuple[int, ...]]:
    """Return the ranks with this rank's shard, and the levels among them: the innermost level holds the shards."""
    num_ranks = dist.get_world_size()
    sizes = resolve(levels, num_ranks)
    if not sizes:
        return None, ()
    inside, across = members(dist.get_rank(), num_ranks, sizes[:1])
    sharded = dist.get_process_group_ranks(shard_group)
    if sharded != inside or len(across) == 1:
        raise SynchronizationError(
            f"levels={levels!r} puts ranks {inside[0]} to {inside[-1]} of {num_ranks} inside, and this model is "
            f"sharded over ranks {', '.join(map(str, sharded))}.",
            hint="With FSDP2 shards lie inside the innermost level and replicas across: shard over one host's ranks.",
        )
    return dist.new_group(across, use_local_synchronization=True), sizes[1:]


def _fsdp(
    model: Any, settings: Settings, levels: object, replicas: dist.ProcessGroup | None, scaler: Scaler | None
) -> FsdpSynchronizer:
    parameters = [[name, list(p.shape)] for name, p in model.named_parameters() if p.requires_grad]
    mesh = model._get_fsdp_state()._fsdp_param_group.mesh_info
    _check_fsdp(settings, mesh, replicas)
    if levels is not None:
        if replicas is not None:
            raise SynchronizationError("levels and replicas say the same thing.", hint="Give one of them.")
        replicas, outer = _replicas(levels, mesh.shard_process_group)
        settings = dataclasses.replace(settings, levels=outer)
    device = torch.device(next(model.parameters()).device.type)
    links = GroupLinks(mesh.shard_process_group, dataclasses.replace(settings, levels=()), device)
    across = None if replicas is None else GroupLinks(replicas, settings, device)
    agree({**settings.agreed(), "parameters": parameters}, links.team)
    return FsdpSynchronizer(model, settings, links, across, scaler)
