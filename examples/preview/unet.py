"""A U-Net with group normalisation, as diffusion models have it, in mixed precision, channels last."""

import itertools
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Twice(nn.Module):
    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(wide, out, 3, 1, 1), nn.Conv2d(out, out, 3, 1, 1)
        self.norm, self.last = nn.GroupNorm(32, wide), nn.GroupNorm(32, out)
        self.skip = nn.Conv2d(wide, out, 1) if wide != out else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(nn.functional.silu(self.norm(x)))
        return self.second(nn.functional.silu(self.last(y))) + self.skip(x)


class Unet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (128, 256, 384, 512)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, widths[0], 3, 1, 1)
        pairs = list(itertools.pairwise(widths))
        self.down = nn.ModuleList(Twice(a, b) for a, b in pairs)
        self.shrink = nn.ModuleList(nn.Conv2d(b, b, 3, 2, 1) for _, b in pairs)
        self.middle = Twice(widths[-1], widths[-1])
        self.up = nn.ModuleList(Twice(2 * b, a) for a, b in reversed(pairs))
        self.last = nn.Conv2d(widths[0], 4, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, kept = self.stem(x), []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            x = block(x)
            kept.append(x)
            x = shrink(x)
        x = self.middle(x)
        for block in self.up:
            x = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, kept.pop()], dim=1))
        return self.last(x)


def main() -> None:
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    unet: Any = Unet().cuda()  # torch's types do not know memory formats of modules
    model = DistributedDataParallel(unet.to(memory_format=torch.channels_last), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(1000):
        images = torch.randn(32, 4, 64, 64, device="cuda").to(memory_format=torch.channels_last)
        noise = torch.randn_like(images)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(images + noise), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
