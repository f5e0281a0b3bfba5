"""A small GPT under DistributedDataParallel on CPUs, with gloo."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, WIDTH, LENGTH = 512, 128, 128


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.split, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.split(self.before(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.after(x))


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [nn.Embedding(VOCABULARY, WIDTH), *(Block() for _ in range(4)), nn.Linear(WIDTH, VOCABULARY)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1000):
        tokens = torch.randint(0, VOCABULARY, (8, LENGTH + 1))
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
