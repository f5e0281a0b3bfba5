"""What FSDP shards: inside of hosts with a replica a host, if asked; of thousands of parts the one that is run."""

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


class Chunks:
    """The parts of a tensor that shards of it are, each made when it is asked for: of a thousand, FSDP reads two."""

    def __init__(self, tensor: Any, number: int, dim: int) -> None:
        self.tensor, self.number, self.dim = tensor, number, dim
        self.each = -(-tensor.size(dim) // number)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> Any:
        begin, size = place * self.each, self.tensor.size(self.dim)
        if begin >= size and place:
            return self.tensor.new_empty(0)
        return self.tensor.narrow(self.dim, begin, min(self.each, size - begin))


def one_part() -> None:
    """Let FSDP cut parameters without making every rank's part."""
    try:
        from torch.distributed.fsdp._fully_shard import _fsdp_param
    except ImportError:  # a torch that keeps it elsewhere
        return
    if hasattr(_fsdp_param, "_chunk_with_empty"):
        _fsdp_param._chunk_with_empty = Chunks  # type: ignore[assignment]
