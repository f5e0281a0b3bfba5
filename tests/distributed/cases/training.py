"""What the cases of many files train: a small network, its batches and gradients, and the world that ranks meet in."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncline.runtime.wire import links

WIDTH = 96
SMALL: dict[str, Any] = {"piece_bytes": 16384, "check_every": 0, "timeout_s": 240.0, "warmup": 0}
QUIET: dict[str, Any] = {**SMALL, "watch_s": 0.0}
"""Without heartbeats, where nobody is to be lost: making and closing a handle takes half the time."""


@contextlib.contextmanager
def carried_by(carrier: str) -> Iterator[None]:
    """Let this carry the messages of handles made meanwhile, in place of what is derived."""
    derived, links.carrier = links.carrier, lambda team, **named: carrier
    try:
        yield
    finally:
        links.carrier = derived


def start(rank: int, size: int, port: int) -> None:
    patience = datetime.timedelta(seconds=240)
    stores: Any = dist
    store = stores.TCPStore("127.0.0.1", port, size, rank == 0, timeout=patience)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=patience)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 7))


def distributed(model: nn.Module, **options: Any) -> DistributedDataParallel:
    """Return the model in DDP, in several buckets."""
    return DistributedDataParallel(model, bucket_cap_mb=0.03, **options)


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def true_mean(model: nn.Module, step: int, ranks: range | list[int]) -> torch.Tensor:
    """Return the exact mean gradient that these ranks have at a step, computed alone."""
    total = None
    for rank in ranks:
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
        total = gradients(model) if total is None else total + gradients(model)
    assert total is not None
    return total / len(ranks)


def same_everywhere(tensor: torch.Tensor, group: Any = None) -> bool:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor, group=group)
    return all(torch.equal(part, parts[0]) for part in parts)


def owed(handle: Any, model: nn.Module) -> torch.Tensor:
    """Return what all ranks owe the average, in the order of the parameters."""
    saved = handle.state_dict()["residuals"]
    return torch.cat([saved[name].flatten() for name, _ in model.named_parameters()])


class Branches(nn.Module):
    """A branch that only some ranks take, and one that nobody takes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.always, self.sometimes, self.never = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor, take: bool) -> torch.Tensor:
        y: torch.Tensor = self.always(x)
        return self.sometimes(y) if take else y
