"""A transformer of any shape, trained in any of PyTorch's own ways: the script that `preview_step.py` previews."""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleOutput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

PARSER = argparse.ArgumentParser()
for name, number in {
    "layers": 8, "hidden": 4096, "heads": 32, "kv": 8, "size": 0, "ffn": 14336, "vocab": 128256, "length": 4096,
    "batch": 1, "positions": 0, "accumulate": 1, "tp": 1, "shard": 0,
}.items():  # fmt: skip
    PARSER.add_argument(f"--{name}", type=int, default=number)
PARSER.add_argument("--wrap", default="fsdp")
for flag in ("plain", "tied", "bias", "both-ways", "remake"):
    PARSER.add_argument(f"--{flag}", action="store_true")


class Block(nn.Module):
    """Attention and a feed-forward block."""

    def __init__(self, a: argparse.Namespace) -> None:
        super().__init__()
        self.size, self.causal, self.gated = a.size or a.hidden // a.heads, not a.both_ways, not a.plain
        norm = nn.LayerNorm if a.bias else nn.RMSNorm
        self.norm, self.ffn_norm = norm(a.hidden), norm(a.hidden)
        self.q, self.o = (nn.Linear(*w, bias=a.bias) for w in _both(a.hidden, a.heads * self.size))
        self.k, self.v = (nn.Linear(a.hidden, a.kv * self.size, bias=a.bias) for _ in range(2))
        self.up, self.down = (nn.Linear(*w, bias=a.bias) for w in _both(a.hidden, a.ffn))
        self.gate = nn.Linear(a.hidden, a.ffn, bias=a.bias) if self.gated else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        h = self.norm(x)
        q, k, v = (f(h).view(batch, length, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=True)
        x = x + self.o(seen.transpose(1, 2).reshape(batch, length, -1))
        h = self.ffn_norm(x)
        up = self.up(h)
        wide = nn.functional.gelu(up) if self.gate is None else nn.functional.silu(self.gate(h)) * up
        return x + self.down(wide)  # type: ignore[no-any-return]


class Model(nn.Module):
    """Embedding, layers, head."""

    def __init__(self, a: argparse.Namespace) -> None:
        super().__init__()
        self.remake = a.remake
        self.embedding = nn.Embedding(a.vocab, a.hidden)
        self.positions = nn.Embedding(a.positions, a.hidden) if a.positions else None
        self.layers = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.hidden) if a.bias else nn.RMSNorm(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)
        if a.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.remake else layer(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def _both(a: int, b: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (a, b), (b, a)


def split_block(layer: nn.Module, mesh: DeviceMesh) -> None:
    """Split a layer over the ranks of a host: what several products read is summed once in the backward."""
    once = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Replicate(), use_local_output=False)
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up", "gate")}
    rows = {name: RowwiseParallel() for name in ("o", "down")}
    parallelize_module(layer, mesh, {**columns, **rows, "norm": once, "ffn_norm": once})


def _sharded(model: Model, mesh: DeviceMesh, a: argparse.Namespace) -> None:
    """Split a model over ranks: tensor parallel inside, FSDP or HSDP outside."""
    if a.tp > 1:
        for layer in model.layers:
            split_block(layer, mesh["tensor"])
        head = ColwiseParallel(use_local_output=False)
        ends = {"embedding": RowwiseParallel(input_layouts=Replicate()), "head": head}
        parallelize_module(model, mesh["tensor"], ends)
    data = mesh["replicas", "shards"] if a.shard else mesh["data"]
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=data, mp_policy=policy)
    fully_shard(model, mesh=data, mp_policy=policy)


def _mesh(a: argparse.Namespace) -> DeviceMesh:
    world = dist.get_world_size()
    if a.shard:
        return init_device_mesh("cuda", (world // a.shard, a.shard), mesh_dim_names=("replicas", "shards"))
    return init_device_mesh("cuda", (world // a.tp, a.tp), mesh_dim_names=("data", "tensor"))


def main() -> None:
    """Train."""
    a = PARSER.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with torch.device("meta"):
        built = Model(a)
    model: nn.Module = built
    if a.wrap == "ddp":
        model = nn.parallel.DistributedDataParallel(built.to_empty(device="cuda"))
    else:
        _sharded(built, _mesh(a), a)
        built.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    cast = torch.autocast("cuda", dtype=torch.bfloat16) if a.wrap == "ddp" else nullcontext()
    for _ in range(100):
        for _ in range(a.accumulate):
            tokens = torch.randint(0, a.vocab, (a.batch, a.length), device="cuda")
            with cast, loss_parallel() if a.tp > 1 else nullcontext():
                logits = model(tokens)
                loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
                loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
