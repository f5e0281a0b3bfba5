"""Turning synchronisation on: recognise the model, make groups of its own, agree, and return the handle."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncline.codec.names import PLAIN
from syncline.errors import SynchronizationError
from syncline.runtime.alive.agreement import agree, exchange_json
from syncline.runtime.alive.arrival import meet_to_start
from syncline.runtime.auto.auto import AutoSynchronizer
from syncline.runtime.auto.request import AUTO, CodecRequest, asked
from syncline.runtime.sync.axes import MeshAxes
from syncline.runtime.sync.ddp import DdpSynchronizer
from syncline.runtime.sync.early import EarlyUpdates
from syncline.runtime.sync.optimizer_hooks import Scaler
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.sharded import check_replaceable, is_sharded, param_groups, shard_mesh, sharded_modules
from syncline.runtime.sync.synchronizer import Synchronizer
from syncline.runtime.wire.levels import resolve
from syncline.runtime.wire.links import GroupLinks
from syncline.runtime.wire.team import Team, agreed_name

REPLICAS = "Give fully_shard a mesh of two dimensions (replicas, shards): codec= averages over the first."


def synchronize(
    model: nn.Module,
    codec: str = AUTO,
    *,
    levels: object = None,
    scaler: Scaler | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    settings: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Synchronizer:
    """Average the gradients of a DDP or FSDP2 model; every rank calls it before the first backward.

    handle = syncline.torch.synchronize(DistributedDataParallel(model))
    ...
    print(handle.summary(), handle.why())
    handle.close()

    codec      what gradients travel in; by default plain averages, bf16 and int8 are tried, and the fastest is held
    settings   the file that `syncline calibrate tune` wrote; it takes precedence over `codec`
    levels     DDP only: ranks inside each level, as (8,) or "host"; the outermost level alone is compressed
    scaler     the GradScaler, if there is one: an overflow then skips the step on every rank
    optimizer  DDP only: updates each bucket's parameters inside backward as soon as the bucket is averaged, while
               later buckets travel. Call `optimizer.step()` as usual; do not change gradients in between (clipping).
    The other options are those of `Settings`.

    With FSDP2, `levels`, `optimizer` or `send_Bps` nothing is measured: the codec is int8.
    """
    if not dist.is_initialized():
        raise SynchronizationError(
            "torch.distributed is not initialised.", hint="Call torch.distributed.init_process_group first."
        )
    module = getattr(model, "_orig_mod", model)
    wanted = asked(codec, settings)
    if scaler is not None:
        options.setdefault("nan", "skip")
    if isinstance(module, DistributedDataParallel):
        num_ranks = dist.get_world_size(module.process_group)
        nested = resolve(levels, num_ranks)
        for what, given in (("levels", nested), ("send_Bps", options.get("send_Bps")), ("optimizer", optimizer)):
            wanted = wanted.by_name(what) if given else wanted
        chosen = Settings.given(options, codec=wanted.base, levels=nested)
        meet_to_start(module.process_group, chosen.timeout_s)
        handle: Synchronizer = _ddp(module, chosen, scaler, wanted, optimizer)
    elif is_sharded(module):
        wanted = wanted.by_name("FSDP2")
        if optimizer is not None:
            raise SynchronizationError("optimizer= belongs to DDP.", hint="With FSDP2 leave it out.")
        if levels is not None:
            raise SynchronizationError("levels= belongs to DDP.", hint=REPLICAS)
        handle = _fsdp(module, Settings.given(options, codec=wanted.base), scaler)
    else:
        raise SynchronizationError(
            f"{type(module).__name__} is not a model syncline can synchronise.",
            hint="Pass a DistributedDataParallel model, or one that fully_shard was applied to.",
        )
    handle.reason = wanted.reason
    return handle


def _ddp(
    model: DistributedDataParallel,
    settings: Settings,
    scaler: Scaler | None,
    wanted: CodecRequest,
    optimizer: torch.optim.Optimizer | None,
) -> DdpSynchronizer:
    if optimizer is not None and settings.nan == "skip":
        raise SynchronizationError(
            'nan="skip" (and a scaler) does not work with optimizer=: some parameters are updated before others are '
            "known to be finite.",
            hint="Leave one of them out.",
        )
    if optimizer is not None and (model.find_unused_parameters or model.static_graph):
        raise SynchronizationError(
            "find_unused_parameters and static_graph of DDP do not work with optimizer=: which parameters no rank has "
            "used, and which then stay as they are, is known after the last bucket.",
            hint="Leave one of them out.",
        )
    updates = None if optimizer is None else EarlyUpdates(optimizer, model.parameters())
    device = next(model.parameters()).device
    links = GroupLinks(model.process_group, settings, device)
    parameters = [[n, list(p.shape)] for n, p in model.module.named_parameters() if p.requires_grad]
    early = type(optimizer).__name__ if optimizer is not None else ""
    agree({**settings.agreed(), **wanted.agreed(), "optimizer": early, "parameters": parameters}, links.team)
    axes = MeshAxes({n: p for n, p in model.module.named_parameters() if p.requires_grad}, [model.process_group])
    everyone = _everyone(model.process_group, None, axes, links, settings)
    if everyone is not None:
        axes.agree(everyone, settings, equal_parts=True)
    if wanted.choice:
        return AutoSynchronizer(
            model, settings, links, scaler, axes=axes, everyone=everyone, fixed=wanted.choice == PLAIN
        )
    return DdpSynchronizer(model, settings, links, scaler, updates, axes=axes, everyone=everyone)


def _fsdp(model: Any, settings: Settings, scaler: Scaler | None) -> Synchronizer:
    from syncline.runtime.sync.fsdp import FsdpSynchronizer

    if settings.send_Bps is not None:
        raise SynchronizationError("send_Bps does not work with FSDP2.", hint="Pace DDP, or shape the link.")
    check_replaceable(model)
    parameters = [[name, list(p.shape)] for name, p in model.named_parameters() if p.requires_grad]
    mesh = shard_mesh(model)
    meet_to_start(mesh.shards, settings.timeout_s)
    device = torch.device(param_groups(sharded_modules(model)[0][1])[0].device.type)
    links = GroupLinks(mesh.shards, settings, device)
    agree({**settings.agreed(), "parameters": parameters}, links.team)
    replicas = mesh.replicas
    across = None if replicas is None else GroupLinks(replicas, settings, device)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    axes = MeshAxes(trained, [mesh.shards, *([] if replicas is None else [replicas])])
    everyone = _everyone(mesh.shards, replicas, axes, across or links, settings)
    if everyone is not None:
        axes.agree(everyone, settings, equal_parts=False)
    return FsdpSynchronizer(model, settings, links, across, scaler, everyone, axes=axes)


def _everyone(
    data: dist.ProcessGroup,
    replicas: dist.ProcessGroup | None,
    axes: MeshAxes,
    links: GroupLinks,
    settings: Settings,
) -> Team | None:
    """Return the ranks of the whole mesh: when one of them is lost, all must hear of it. None: it has no other axis."""
    groups = [*([] if replicas is None else [replicas]), *axes.groups.values()]
    if not groups:
        return None
    device = links.team.device
    token = torch.tensor(list(bytes.fromhex(agreed_name(data, device))), dtype=torch.uint8, device=device)
    for group in groups:
        dist.broadcast(token, dist.get_global_rank(group, 0), group)
    name = bytes(token.tolist()).hex()
    axes.connect(name, device, settings)
    ranks = dist.get_process_group_ranks(data)
    if replicas is not None:
        rows = [[int(rank) for rank in row["ranks"]] for row in exchange_json({"ranks": ranks}, links.team)]
        links.team.behind = rows
        ranks = [rank for row in rows for rank in row]
    for team in axes.lines:
        ranks = [int(rank) for row in exchange_json({"ranks": ranks}, team) for rank in row["ranks"]]
    return Team(f"{name}/everyone", sorted(set(ranks)), dist.get_rank(), device, settings.wire_timeout_s)
