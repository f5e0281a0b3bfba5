"""A diffusion transformer (DiT-B/2) in bfloat16 under DDP: adaptive normalisation, averaged weights, a plain AdamW."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDE, HEADS, LAYERS, BATCH, SIDE = 768, 12, 12, 64, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = (nn.LayerNorm(WIDE, elementwise_affine=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDE, 6 * WIDE))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        h = self.norm(x) * (1 + scale) + shift
        q, k, v = self.qkv(h).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate * self.out(seen)
        h = self.last(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(nn.functional.gelu(self.up(h), approximate="tanh"))


class Dit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(4, WIDE, 2, 2)
        self.places = nn.Parameter(torch.zeros(1, (SIDE // 2) ** 2, WIDE))
        self.time = nn.Sequential(nn.Linear(256, WIDE), nn.SiLU(), nn.Linear(WIDE, WIDE))
        self.classes = nn.Embedding(1000, WIDE)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDE), nn.Linear(WIDE, 16)

    def forward(self, images: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * torch.exp(-torch.arange(128, device=time.device) / 14)
        condition = self.time(torch.cat([angles.sin(), angles.cos()], dim=1)) + self.classes(label)
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x, condition)
        return self.head(self.norm(x))


def main() -> None:
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    model = Dit().cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    ddp = DistributedDataParallel(model, device_ids=[local])
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-4, weight_decay=0.0)
    for _ in range(1000):
        images = torch.randn(BATCH, 4, SIDE, SIDE, device="cuda")
        time = torch.rand(BATCH, device="cuda")
        label = torch.randint(0, 1000, (BATCH,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = ddp(images, time, label)
        wanted = images.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(found.shape)
        nn.functional.mse_loss(found.float(), wanted).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1e-4)


if __name__ == "__main__":
    main()
