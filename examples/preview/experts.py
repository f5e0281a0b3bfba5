"""A mixture of experts: tokens travel to their experts and back with all-to-all; everything else is data parallel."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single


class Experts(nn.Module):
    def __init__(self, hidden: int, ffn: int, ranks: int) -> None:
        super().__init__()
        self.ranks = ranks
        self.router = nn.Linear(hidden, ranks, bias=False)
        self.up, self.down = nn.Linear(hidden, ffn, bias=False), nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = self.router(x).softmax(-1).max(-1)
        order = chosen.argsort()
        sent = torch.bincount(chosen, minlength=self.ranks)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        splits, back = sent.tolist(), received.tolist()
        mine = all_to_all_single(x.new_empty(sum(back), x.shape[1]), x[order], back, splits)
        done = self.down(nn.functional.gelu(self.up(mine)))
        out = all_to_all_single(x.new_empty(x.shape), done, splits, back)
        return x + out * weight[:, None]


def main() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    hidden = 2048
    model = nn.Sequential(*(Experts(hidden, 8192, dist.get_world_size()) for _ in range(4))).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(100):
        loss = model(torch.randn(16384, hidden, device="cuda", dtype=torch.bfloat16)).square().mean()
        loss.backward()
        for name, parameter in model.named_parameters():
            if "router" in name:
                dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
