"""Turning per-step averaging over a crew on: what may be averaged, and by which rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncline.errors import SynchronizationError
from syncline.runtime.auto.request import BASE, asked
from syncline.runtime.elastic.elastic import CrewRules, ElasticSynchronizer
from syncline.runtime.elastic.inheritance import Estate, Stateful
from syncline.runtime.elastic.replica import Alone, Replica, ReplicaCrew
from syncline.runtime.periodic.crew import Crew
from syncline.runtime.periodic.target import Target, alone, trained
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.sharded import is_sharded, shard_mesh

USUAL = {"wait_s": 0.0, "timeout_s": 60.0, "warmup": 0, "check_every": 0}
"""Those who are left go on at once, and one that was only slow is let in again."""


def elastic(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    crew: Crew,
    codec: str = BASE,
    *,
    min_ranks: int = 1,
    door_every: int = 10,
    carry: Mapping[str, Stateful] | None = None,
    step: int = 0,
    **options: Any,
) -> ElasticSynchronizer:
    """Average every step's gradients over the live ranks of a crew; training continues without lost ranks.

    crew = syncline.torch.Crew.from_env()
    handle = syncline.torch.elastic(model, optimizer, crew)
    while handle.step < 10_000:
        x = batch(handle.step, *handle.place) # who shares this step is fixed here
        ...                                   # forward, backward, optimizer.step(), as usual

    The model is a plain module, or one that FSDP2 shards over the ranks of one replica: each replica is then a job of
    its own and joins or leaves as a whole. A rank that comes back takes weights, optimizer state, the step and what
    `carry` names ({"scheduler": scheduler}) from a peer while the others compute.

    min_ranks     with fewer ranks, those present wait for others
    door_every    ranks that come back are admitted every so many steps
    step          this rank's step, if it has restored a checkpoint: the crew starts from the newest
    The other options are those of `Settings`; `wait_s` is 0: silent ranks are not waited for.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SynchronizationError(
            f"elastic() needs a torch optimizer; got {type(optimizer).__name__}.",
            hint="elastic(model, optimizer, crew): a rank that comes back takes its state from a peer.",
        )
    rules = CrewRules(min_ranks, door_every)
    settings = Settings.given({**USUAL, **options}, codec=asked(codec).by_name("a crew").base)
    target, member, replica = _target(model, crew)
    estate = Estate(model, optimizer, carry)
    return ElasticSynchronizer(target, settings, member, estate, rules, replica=replica, step=step)


def _target(model: nn.Module, crew: Crew) -> tuple[Target, Crew, Alone]:
    module = getattr(model, "_orig_mod", model)
    if isinstance(module, DistributedDataParallel):
        raise SynchronizationError(
            "a crew averages what DDP would, and DDP cannot go on without a rank.", hint="Pass the module itself."
        )
    if not is_sharded(module):
        return alone(model), crew, Alone()
    mesh = shard_mesh(module)
    if mesh.replicas is not None:
        raise SynchronizationError(
            "this model's mesh has replicas of its own, which cannot go on without a rank.",
            hint="Start each replica as a separate job, and shard over its ranks alone.",
        )
    if dist.get_world_size(mesh.shards) != dist.get_world_size():
        raise SynchronizationError("each replica of a crew is a separate job, sharded over all of its ranks.")
    replica = Replica(mesh.shards)
    return Target(*trained(module), None, (), None), ReplicaCrew(crew, replica), replica
