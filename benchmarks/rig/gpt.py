"""A byte-level GPT of 25 million parameters, and real text to train it on: the source of Python's standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256


class Block(nn.Module):
    """Attention and a perceptron, each before its norm."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.num_heads = num_heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream after this block."""
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.num_heads, width // self.num_heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """The model; returns the mean cross-entropy of the next byte."""

    def __init__(self, width: int = 512, depth: int = 8, num_heads: int = 8, context: int = 256) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the loss on bytes of shape (batch, length + 1)."""
        before, after = text[:, :-1], text[:, 1:]
        x = self.tokens(before) + self.positions.weight[: before.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        return functional.cross_entropy(logits.flatten(0, 1), after.flatten())


def corpus() -> torch.Tensor:
    """Return the source of this Python's standard library as bytes, files in the order of their names."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in folder.glob("*.py")) + sorted(folder.glob("[a-z]*/*.py"))
    kept = [path for path in files if "site-packages" not in path.parts and "test" not in path.parts]
    return torch.frombuffer(bytearray(b"\n".join(path.read_bytes() for path in kept)), dtype=torch.uint8)


class Batches:
    """Random windows of the text; each rank draws its own, the same in every run. The last tenth is held out."""

    def __init__(self, text: torch.Tensor, rank: int, batch: int, length: int) -> None:
        self._train, self._held = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
        self._random = torch.Generator().manual_seed(1000 + rank)
        self._batch, self._length = batch, length

    def next(self) -> torch.Tensor:
        """Return the next batch of this rank."""
        return self._draw(self._train, self._random, self._batch)

    def held_out(self, batch: int) -> torch.Tensor:
        """Return windows of the text that nobody trains on, the same ones every time."""
        return self._draw(self._held, torch.Generator().manual_seed(7), batch)

    def _draw(self, text: torch.Tensor, random: torch.Generator, batch: int) -> torch.Tensor:
        starts = torch.randint(len(text) - self._length - 1, (batch,), generator=random)
        return torch.stack([text[i : i + self._length + 1] for i in starts.tolist()]).long()
