"""Checkpoints of the first version: the model and optimizer of rank 0, and a file of each rank; read, never written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from syncline.errors import CheckpointError
from syncline.runtime.alive.checkpoint_files import MANIFEST, read, set_random_state
from syncline.runtime.alive.checkpoint_state import bare
from syncline.runtime.sync.shard.sharded import is_sharded

VERSION = 1
SHARED = "shared.pt"

Merge = Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]


def restore(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, handle: Any, merged: Merge
) -> tuple[int, dict[str, Any]]:
    """Load a checkpoint of the first version; refuse one into an FSDP2 model, of which it has the first shards only."""
    if is_sharded(bare(model)):
        raise CheckpointError(
            "the checkpoint has version 1, which kept only the shards of rank 0: the model is not in it.",
            where=str(path),
            hint="Restore from a checkpoint of version 2, or from before that run.",
        )
    rank, num_ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    saved_ranks = int(json.loads((path / MANIFEST).read_text("utf-8"))["num_ranks"])
    shared = read(path / SHARED)
    bare(model).load_state_dict(shared["model"])
    same = saved_ranks == num_ranks
    mine = [read(path / f"rank-{r:05d}.pt") for r in ([rank] if same else range(saved_ranks))]
    own = shared["optimizer"] or mine[0 if same else rank % saved_ranks]["optimizer"]
    if not same and "exchange" in own:
        own["exchange"] = merged([one["optimizer"]["exchange"] for one in mine])
    optimizer.load_state_dict(own)
    if handle is not None and mine[0]["syncline"] is not None:
        handle.load_state_dict(mine[0]["syncline"] if same else merged([one["syncline"] for one in mine]))
    if same:
        set_random_state(mine[0]["random"])
    return int(shared["step"]), dict(shared["extra"])
