"""What the host of a GPU spends on an eager step: a small network whose kernels take next to nothing."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

WARM, TIMED, LAYERS, WIDE = 10, 40, 12, 64


class _Count(TorchDispatchMode):
    """Counts operators that are neither views nor collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.seen += not (func.is_view or func.namespace == "c10d")
        return out


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDE), nn.Linear(WIDE, 2 * WIDE), nn.Linear(2 * WIDE, WIDE)

    def forward(self, x: Any) -> Any:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def host_costs(device: str = "cuda") -> dict[str, float]:
    """Return seconds of the host for an operator ahead and back, an optimizer's step and each of its parameters.

    And for a collective as DDP's and FSDP's hooks call it, where a group of one rank can be made here.
    """
    with torch.enable_grad():
        _, _, small, few, _ = _network(LAYERS // 4, device)
        ahead, back, large, many, per_op = _network(LAYERS, device)
        each = max(large - small, 0.0) / (many - few)
        found = {
            "forward_s": ahead,
            "backward_s": back,
            "optimizer_s": max(small - few * each - per_op * ahead, 0.0),  # its operators are counted by themselves
            "parameter_s": each,
        }
        return found | _hooks(device, ahead)


def _blocks(layers: int, device: str) -> Any:
    return nn.Sequential(*(_Block() for _ in range(layers))).to(device)


def _loss(model: Any, device: str) -> Callable[[], Any]:
    x = torch.randn(16, WIDE, device=device)

    def forward() -> Any:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            return model(x).float().square().mean()

    return forward


def _network(layers: int, device: str) -> tuple[float, float, float, int, int]:
    """Return seconds of an operator ahead and back, and of an optimizer's step, its parameters and its operators."""
    model = _blocks(layers, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    forward = _loss(model, device)

    def both() -> None:
        forward().backward()

    ahead, whole, step = _host_s(forward), _host_s(both), _host_s(optimizer.step)
    ops_ahead, ops_whole, ops_step = _counted(forward), _counted(both), _counted(optimizer.step)
    back = (whole - ahead) / max(ops_whole - ops_ahead, 1)
    return ahead / ops_ahead, back, step, sum(1 for _ in model.parameters()), ops_step


def _hooks(device: str, least_s: float) -> dict[str, float]:
    """Return what a collective costs beyond operators: under DDP, and where FSDP2 gathers and scatters.

    One rank alone sends nothing, so that collectives cannot be counted: DDP would have one a bucket, FSDP2 two gathers
    and a scatter a block. DDP's copies take less than an operator of the network (0 to 55 us a bucket were left in
    eight measurements beside an H200, 0 in six of them): a collective costs at least what an operator does, `least_s`.
    """
    if not dist.is_available() or dist.is_initialized():
        return {}
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        bare, seen = _step_s(_blocks(LAYERS, device), device)
        found = {}
        for name, wrap, moves in (("collective_s", _replicated, LAYERS), ("shard_s", _sharded, 3 * (LAYERS + 1))):
            with suppress(RuntimeError, NotImplementedError):  # a backend without it: what it costs elsewhere is taken
                whole, ops = _step_s(wrap(_blocks(LAYERS, device), device), device)
                found[name] = max((whole - bare * ops / seen) / moves, least_s)
        return found
    finally:
        dist.destroy_process_group()


def _replicated(model: Any, device: str) -> Any:
    """Wrap a model in DDP, with about a bucket a block."""
    block_bytes = sum(4 * parameter.numel() for parameter in model[0].parameters())
    return DistributedDataParallel(model, bucket_cap_mb=block_bytes / 2**20)


def _sharded(model: Any, device: str) -> Any:
    mesh = init_device_mesh(device, (1,))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _step_s(model: Any, device: str) -> tuple[float, int]:
    """Return seconds of the host for a forward and a backward, and their operators."""
    forward = _loss(model, device)

    def both() -> None:
        forward().backward()

    taken = _host_s(both)
    return taken, _counted(both)


def _counted(fn: Callable[[], object]) -> int:
    count = _Count()
    with count:
        fn()
    return int(count.seen)


def _host_s(fn: Callable[[], object]) -> float:
    for _ in range(WARM):
        fn()
    spent = []
    for _ in range(TIMED):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begin = time.perf_counter()
        fn()
        spent.append(time.perf_counter() - begin)
    return sorted(spent)[TIMED // 2]
