"""Turning synchronisation on: recognise the model, make groups of its own, agree, and return the handle."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncline.errors import SynchronizationError
from syncline.runtime.agreement import agree
from syncline.runtime.ddp import DdpSynchronizer, Scaler
from syncline.runtime.levels import resolve
from syncline.runtime.links import GroupLinks
from syncline.runtime.settings import Settings
from syncline.runtime.synchronizer import Synchronizer


def synchronize(
    model: nn.Module, codec: str = "int8", *, levels: object = None, scaler: Scaler | None = None, **options: Any
) -> Synchronizer:
    """Average gradients of a DDP model through `codec`; every rank calls it before the first backward.

    handle = syncline.torch.synchronize(DistributedDataParallel(model), codec="int8")
    ...
    print(handle.summary())
    handle.close()

    `levels` are the ranks inside each level of a hierarchy ((8,), "host" or a Fabric); `scaler` is the GradScaler, if
    there is one: overflows then skip the step on every rank. The other options are those of `Settings`.
    """
    if not dist.is_initialized():
        raise SynchronizationError(
            "torch.distributed is not initialised.", hint="Call torch.distributed.init_process_group first."
        )
    module = getattr(model, "_orig_mod", model)
    if isinstance(module, DistributedDataParallel):
        num_ranks = dist.get_world_size(module.process_group)
        if scaler is not None:
            options.setdefault("nan", "skip")
        settings = Settings(codec=codec, levels=resolve(levels, num_ranks), **options)
        return _ddp(module, settings, scaler)
    raise SynchronizationError(
        f"{type(module).__name__} is not a model syncline can synchronise.",
        hint="Pass a DistributedDataParallel model.",
    )


def _ddp(model: DistributedDataParallel, settings: Settings, scaler: Scaler | None) -> DdpSynchronizer:
    device = next(model.parameters()).device
    links = GroupLinks(model.process_group, settings, device)
    parameters = [[n, list(p.shape)] for n, p in model.module.named_parameters() if p.requires_grad]
    agree({**settings.agreed(), "parameters": parameters}, links.team)
    return DdpSynchronizer(model, settings, links, scaler)
