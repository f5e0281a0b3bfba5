"""Where a case of tools/gpu_suite.py runs, its model and batches, and what of two models is compared."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH = 256


class Case:
    """Where a case runs: rank, device, a folder of its own."""

    def __init__(self, device: str, out: Path) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = torch.device(device)
        self.out = out

    def network(self) -> nn.Sequential:
        """Return the model, the same on every rank."""
        torch.manual_seed(0)
        layers = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4 * WIDTH), nn.Tanh(), nn.Linear(4 * WIDTH, 64)]
        return nn.Sequential(*layers).to(self.device)

    def ddp(self, model: nn.Module | None = None) -> Any:
        """Return it in DDP."""
        return DistributedDataParallel(model or self.network(), bucket_cap_mb=1, gradient_as_bucket_view=True)

    def fsdp(self) -> Any:
        """Return it sharded."""
        mesh = init_device_mesh(self.device.type, (self.size,))
        model: Any = self.network()
        for layer in (model[0], model[2], model[4]):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def batch(self, step: int, rank: int | None = None) -> torch.Tensor:
        """Return a rank's batch of a step."""
        chance = torch.Generator().manual_seed(1000 * step + (self.rank if rank is None else rank))
        return torch.randn(32, WIDTH, generator=chance).to(self.device)

    def loss(self, model: Any, step: int) -> Any:
        """Return the loss of a step."""
        return model(self.batch(step)).square().mean()

    def true_mean(self, step: int) -> torch.Tensor:
        """Return the mean gradient of all ranks' batches at the first weights."""
        model = self.network()
        for rank in range(self.size):
            (model(self.batch(step, rank)).square().mean() / self.size).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    def train(self, model: Any, steps: range, optimizer: Any = None) -> list[float]:
        """Train and return the losses."""
        optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for step in steps:
            optimizer.zero_grad()
            loss = self.loss(model, step)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    def equal(self, model: nn.Module) -> bool:
        """Whether all ranks have the same bits."""
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, checksum(model))
        return len(set(told)) == 1


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a parameter or gradient, gathered where it is sharded.

    Through host memory: `full_tensor` ends the process on CUDA tensors in a gloo group (pytorch issue 152645).
    """
    own = getattr(tensor, "to_local", None)
    if own is None:
        return tensor.detach()
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, own().detach().cpu())
    return torch.cat(parts).to(tensor.device)


def checksum(model: nn.Module) -> int:
    """Return a number of all the bits of a model."""
    parts = [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]
    flat = torch.cat([whole(part).flatten().cpu() for part in parts])
    return zlib.crc32(flat.numpy().tobytes())


def gradient(model: nn.Module) -> torch.Tensor:
    """Return the gradient as one vector."""
    return torch.cat([whole(p.grad).flatten() for p in model.parameters() if p.grad is not None])


def off(found: torch.Tensor, due: torch.Tensor) -> float:
    """Return how far one is from the other, of its length."""
    return float((found - due).norm() / due.norm())
