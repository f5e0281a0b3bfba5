"""Two sites, a thin link between them: every step inside a site, an outer step in 4 bits every 20 steps across.

torchrun --standalone --nproc-per-node 4 examples/training/diloco.py

With outer_lr=1.0 and momentum=0.0 the outer step takes the average itself: local SGD.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import syncline.torch

STEPS = 100
RANKS_PER_SITE = 2


def main() -> None:
    """Learn a function that is known, so that the loss says whether it was learnt."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = nn.Sequential(nn.Linear(16, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1))
    teacher = torch.randn(16)

    model = DistributedDataParallel(network, process_group=syncline.torch.site_group(RANKS_PER_SITE))
    inner = torch.optim.AdamW(model.parameters(), lr=3e-3)
    optimizer = syncline.torch.DiLoCo(inner, model, every=20, codec="int4")

    random = torch.Generator().manual_seed(1 + rank)
    for step in range(STEPS):
        inputs = torch.randn(64, 16, generator=random)
        loss: torch.Tensor = nn.functional.mse_loss(model(inputs).squeeze(1), torch.sin(inputs @ teacher / 4))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    optimizer.synchronize()
    total = float(sum(p.detach().double().sum() for p in network.parameters()))
    sums: list[float | None] = [None] * dist.get_world_size()
    dist.all_gather_object(sums, total)
    if rank == 0:
        dense = 4 * sum(p.numel() for p in network.parameters()) * STEPS
        print(f"replicas are {'equal' if len(set(sums)) == 1 else 'NOT EQUAL'}; sent {optimizer.wire_bytes:,} bytes "
              f"across, {dense / optimizer.wire_bytes:.0f}x fewer than a gradient a step")  # fmt: skip
    optimizer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
