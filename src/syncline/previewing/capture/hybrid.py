"""A script changed as its author would: FSDP that shards inside of hosts and keeps a replica a host."""

from __future__ import annotations

import os
import sys
from functools import wraps
from typing import Any

import torch

from syncline.previewing.capture.log import Log


def prepare(log: Log, *, hybrid: bool) -> None:
    """Note what FSDP shards over all hosts; with `hybrid` let it shard inside of each host."""
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh

    here, world = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    shard: Any = fsdp.fully_shard
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    meshes: list[Any] = []

    def mesh_of(mesh: Any) -> Any:
        whole = mesh is None or (mesh.ndim == 1 and mesh.size() == world)
        if not whole or not 1 < here < world:
            return mesh
        log.facts["sharded"] = "everywhere"
        if not hybrid:
            return mesh
        if not meshes:
            meshes.append(init_device_mesh(kind, (world // here, here), mesh_dim_names=("replicate", "shard")))
        log.facts["sharded"] = "inside"
        return meshes[0]

    @wraps(shard)
    def inside(module: Any, *args: Any, mesh: Any = None, **given: Any) -> Any:
        return shard(module, *args, mesh=mesh_of(mesh), **given)

    for home in [each for each in sys.modules.values() if getattr(each, "__dict__", {}).get("fully_shard") is shard]:
        vars(home)["fully_shard"] = inside
    start = fsdp.FullyShardedDataParallel.__init__
    full, hybrids = fsdp.ShardingStrategy.FULL_SHARD, fsdp.ShardingStrategy.HYBRID_SHARD

    @wraps(start)
    def first(
        self: Any, module: Any, process_group: Any = None, sharding_strategy: Any = None, *args: Any, **given: Any
    ) -> None:
        if sharding_strategy in (None, full) and process_group is None and given.get("device_mesh") is None:
            mesh = mesh_of(None)
            if mesh is not None:
                given["device_mesh"], sharding_strategy = mesh, hybrids
        start(self, module, process_group, sharding_strategy, *args, **given)

    fsdp.FullyShardedDataParallel.__init__ = first  # type: ignore[method-assign]
