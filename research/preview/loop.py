"""What training scripts on one GPU share: their names, their loop, their batches."""

# mypy: ignore-errors
from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

Step = Callable[[], object]
SCRIPTS: dict[str, Callable[[], Step]] = {}


def script(build: Callable[[], Step]) -> Callable[[], Step]:
    SCRIPTS[build.__name__] = build
    return build


def trained(model, batch, loss_of, *, amp=None, optimizer=None, scaler=False, clip=0.0, accumulate=1) -> Step:
    """Return the step of an ordinary loop."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4)
    scale = torch.amp.GradScaler("cuda") if scaler else None

    def step() -> None:
        for _ in range(accumulate):
            with torch.autocast("cuda", dtype=amp, enabled=amp is not None):
                loss = loss_of(model, batch)
            (scale.scale(loss) if scale else loss).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        if scale:
            scale.step(optimizer)
            scale.update()
        else:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def classified(model, batch):
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def pictures(count, side, classes=1000, channels=3, dtype=torch.float32, last=False):
    images = torch.randn(count, channels, side, side, device="cuda", dtype=dtype)
    return images.to(memory_format=torch.channels_last) if last else images, torch.randint(
        0, classes, (count,), device="cuda"
    )


def words(vocab, batch, length):
    return torch.randint(0, vocab, (batch, length), device="cuda")


def language(model, tokens):
    return model(input_ids=tokens, labels=tokens).loss


def forever() -> None:
    """Train the script that the command names."""
    train = SCRIPTS[sys.argv[1]]()
    while True:
        train()
