"""Turning synchronisation on: recognise the model, make groups of its own, agree, and return the handle."""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncline.errors import SynchronizationError
from syncline.runtime.agreement import agree
from syncline.runtime.ddp import DdpSynchronizer
from syncline.runtime.settings import Settings
from syncline.runtime.synchronizer import Synchronizer


def synchronize(model: nn.Module, codec: str = "int8", **options: Any) -> Synchronizer:
    """Average gradients of a DDP model through `codec`; every rank calls it before the first backward.

    handle = syncline.torch.synchronize(DistributedDataParallel(model), codec="int8")
    ...
    print(handle.summary())
    handle.close()
    """
    settings = Settings(codec=codec, **options)
    module = getattr(model, "_orig_mod", model)
    if isinstance(module, DistributedDataParallel):
        return _ddp(module, settings)
    raise SynchronizationError(
        f"{type(module).__name__} is not a model syncline can synchronise.",
        hint="Pass a DistributedDataParallel model.",
    )


def _ddp(model: DistributedDataParallel, settings: Settings) -> DdpSynchronizer:
    device = next(model.parameters()).device
    groups = _groups(model.process_group, settings, device)
    parameters = [(n, list(p.shape)) for n, p in model.module.named_parameters() if p.requires_grad]
    agree({**settings.agreed(), "parameters": [list(pair) for pair in parameters]}, groups[0], device)
    return DdpSynchronizer(model, settings, groups)


def _groups(parent: dist.ProcessGroup, settings: Settings, device: torch.device) -> list[dist.ProcessGroup]:
    """Return groups of the parent's ranks that nobody else uses, so that no other collective comes between."""
    ranks = dist.get_process_group_ranks(parent)
    backend = "nccl" if device.type == "cuda" else "gloo"
    collectives = settings.transport == "collectives" or (settings.transport == "auto" and backend == "nccl")
    partial = len(ranks) != dist.get_world_size()
    timeout = datetime.timedelta(seconds=settings.timeout_s)
    made = [
        dist.new_group(ranks, timeout=timeout, backend=backend, use_local_synchronization=partial)
        for _ in range(2 if collectives else 1)
    ]
    return [group for group in made if isinstance(group, dist.ProcessGroup)]
