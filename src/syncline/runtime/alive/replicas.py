"""Replicas compared: a fingerprint of every parameter, taken on each rank, and the first that differs named."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

import torch

from syncline.errors import ReplicaError
from syncline.runtime.wire.team import Team


def fingerprints(parameters: list[torch.Tensor]) -> torch.Tensor:
    """Return a number for each parameter that changes with any of its bits."""
    return torch.tensor([_fingerprint(p.detach()) for p in parameters], dtype=torch.int64)


def compare(own: torch.Tensor, names: list[str], team: Team, step: int) -> None:
    """Raise on every rank if two ranks of the team hold a parameter that differs."""
    rooms = [torch.empty_like(own, device=team.device) for _ in range(team.size)]
    team.all_gather(rooms, own.to(team.device)).wait()
    table = torch.stack(rooms).cpu()
    differing = (table != table[0]).any(dim=0).nonzero().flatten().tolist()
    if not differing:
        return
    column = table[:, differing[0]].tolist()
    usual = Counter(column).most_common(1)[0][0]
    ranks = [rank for rank, value in enumerate(column) if value != usual]
    more = f"; {len(differing) - 1} more parameters differ" if len(differing) > 1 else ""
    raise ReplicaError(
        f'replicas of "{names[differing[0]]}" differ at step {step}: rank {", ".join(map(str, ranks))} is not like '
        f"the others{more}.",
        hint="Something changed parameters on some ranks only. Find it, and restart from a checkpoint.",
    )


def _fingerprint(tensor: torch.Tensor) -> int:
    if tensor.device.type == "cpu":
        flat = tensor.contiguous().view(-1).view(torch.uint8)
        bits: Any = flat.numpy()
        return zlib.crc32(bits)
    words = tensor.contiguous().view(-1).view(torch.uint8).to(torch.int64)
    weights = torch.arange(1, words.numel() + 1, device=tensor.device)
    return int((words * weights).sum())
