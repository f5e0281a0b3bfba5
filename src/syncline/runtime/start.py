"""Turning synchronisation on: recognise the model, make groups of its own, agree, and return the handle."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from syncline.codec.low_rank import LowRank
from syncline.errors import SynchronizationError
from syncline.runtime.agreement import agree
from syncline.runtime.auto import AutoSynchronizer
from syncline.runtime.ddp import DdpSynchronizer, Scaler
from syncline.runtime.fsdp import FsdpSynchronizer
from syncline.runtime.levels import resolve
from syncline.runtime.links import GroupLinks
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
    if isinstance(module, DistributedDataParallel):
        num_ranks = dist.get_world_size(module.process_group)
        if replicas is not None:
            raise SynchronizationError("replicas= belongs to FSDP2.", hint="Give levels= to average DDP in levels.")
        if scaler is not None:
            options.setdefault("nan", "skip")
        nested = resolve(levels, num_ranks)
        for what, given in (("levels", nested), ("send_Bps", options.get("send_Bps"))):
            wanted = wanted.by_name(what) if given else wanted
        handle: Synchronizer = _ddp(module, Settings(codec=wanted.base, levels=nested, **options), scaler, wanted)
    elif isinstance(module, FSDPModule):
        wanted = wanted.by_name("FSDP2")
        made = Settings(codec=wanted.base, **options)
        _check_fsdp(made, levels, scaler)
        handle = _fsdp(module, made, replicas)
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


def _check_fsdp(settings: Settings, levels: object, scaler: Scaler | None) -> None:
    """Refuse what is not there for FSDP2: an option that did nothing would look as if it did."""
    asked = {"levels": levels, "scaler": scaler, 'nan="skip"': settings.nan == "skip"}
    asked |= {"accumulate": settings.accumulate > 1, "warmup": settings.warmup > 0}
    asked |= {"send_Bps": settings.send_Bps is not None}
    for name, value in asked.items():
        if value:
            raise SynchronizationError(
                f"{name} is not there for FSDP2.",
                hint="Use replicas= for two levels, and no_sync-like options of FSDP2.",
            )
    if isinstance(settings.scheme, LowRank):
        raise SynchronizationError(
            f'codec "{settings.codec}" needs whole matrices, and FSDP2 reduces shards.',
            hint='Use "int8", "int4", "sign" or "topk:keep=0.01" with FSDP2.',
        )


def _fsdp(model: Any, settings: Settings, replicas: dist.ProcessGroup | None) -> FsdpSynchronizer:
    parameters = [[name, list(p.shape)] for name, p in model.named_parameters() if p.requires_grad]
    shard_group = model._get_fsdp_state()._fsdp_param_group.mesh_info.shard_process_group
    device = torch.device(next(model.parameters()).device.type)
    links = GroupLinks(shard_group, settings, device)
    across = None if replicas is None else GroupLinks(replicas, settings, device)
    agree({**settings.agreed(), "parameters": parameters}, links.team)
    return FsdpSynchronizer(model, settings, links, across)
