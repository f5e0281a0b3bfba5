"""A 405B-like model in four dimensions: pipeline 8 x replicas x shards 16 x tensor 8; the script of a large preview.

/usr/bin/time -v syncline preview llama3-24k-roce --timeout 1h -- torchrun --nnodes 2048 --nproc-per-node 8 \
    benchmarks/preview_4d.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

sys.path.insert(0, str(Path(__file__).parent))
from preview_transformer import PARSER, Block, split_block

STAGES, SHARDS, TENSOR, MICRO = 8, 16, 8, 16


def main() -> None:
    """Train one stage of 15 layers."""
    a = PARSER.parse_args(["--layers", "120", "--hidden", "16384", "--heads", "128", "--ffn", "53248"])
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    replicas = dist.get_world_size() // (STAGES * SHARDS * TENSOR)
    names = ("stages", "replicas", "shards", "tensor")
    mesh = init_device_mesh("cuda", (STAGES, replicas, SHARDS, TENSOR), mesh_dim_names=names)
    rank = mesh["stages"].get_local_rank()
    with torch.device("meta"):
        layers = nn.Sequential(*(Block(a) for _ in range(a.layers // STAGES)))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers:
        split_block(layer, mesh["tensor"])
        fully_shard(layer, mesh=mesh["replicas", "shards"], mp_policy=policy)
    fully_shard(layers, mesh=mesh["replicas", "shards"], mp_policy=policy)
    layers.to_empty(device=device)
    stage = PipelineStage(layers, rank, STAGES, device, group=mesh.get_group("stages"))
    schedule = Schedule1F1B(stage, MICRO, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(layers.parameters(), fused=True)
    for _ in range(100):
        x = torch.randn(MICRO, 8192, a.hidden, device=device, dtype=torch.bfloat16)
        if rank == 0:
            schedule.step(x)
        elif rank == STAGES - 1:
            losses: list[torch.Tensor] = []
            schedule.step(target=x, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
