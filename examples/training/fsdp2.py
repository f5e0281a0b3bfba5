"""Train a small model under FSDP2 with int8 reduce-scatter: torchrun --nproc-per-node 2 fsdp2.py"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import syncline.torch


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    handle = syncline.torch.synchronize(model, codec="int8")  # on

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
    handle.close()  # off
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
