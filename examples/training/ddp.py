"""Train a small model under DDP, gradients in what is fastest here: torchrun --nproc-per-node 2 ddp.py"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import syncline.torch


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    handle = syncline.torch.synchronize(model)  # on

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(40):
        x = torch.randn(32, 64, generator=data)
        loss = (model(x) - x[:, :4].sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 9:
            print(f"loss {loss.item():.2f}; {handle.summary()}")

    torch.save({"model": model.module.state_dict(), "syncline": handle.state_dict()}, f"rank-{dist.get_rank()}.pt")
    handle.close()  # off
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
