"""Agreement between ranks before the first byte of a gradient: the same settings, version and parameters everywhere.

What a rank means is sent as JSON and compared on every rank, so that all of them raise the same error.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist

from syncline.errors import AgreementError


def agree(meaning: dict[str, Any], group: dist.ProcessGroup, device: torch.device) -> list[dict[str, Any]]:
    """Return what every rank of the group means, or raise on all of them where two differ."""
    everyone = exchange_json(meaning, group, device)
    first = everyone[0]
    for rank, other in enumerate(everyone):
        for key in first:
            if other.get(key) != first[key]:
                raise _difference(key, first[key], rank, other.get(key))
    return everyone


def exchange_json(value: dict[str, Any], group: dist.ProcessGroup, device: torch.device) -> list[dict[str, Any]]:
    """Return the objects of all ranks, in their order."""
    text = json.dumps(value).encode()
    size = dist.get_world_size(group)
    lengths = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([len(text)], device=device), group=group)
    longest = max(int(length) for length in lengths)
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(device)
    rooms = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(rooms, padded, group=group)
    texts = [bytes(room[: int(n)].cpu().tolist()) for room, n in zip(rooms, lengths, strict=True)]
    return [json.loads(text) for text in texts]


def _difference(key: str, first: Any, rank: int, other: Any) -> AgreementError:
    if key == "parameters":
        return _parameter_difference(first, rank, other)
    return AgreementError(
        f"ranks do not agree on {key}: rank 0 has {first!r} and rank {rank} has {other!r}.",
        hint=f"Start every rank with the same {key}.",
    )


def _parameter_difference(first: list[Any], rank: int, other: list[Any]) -> AgreementError:
    for mine, theirs in zip(first, other, strict=False):
        if mine != theirs:
            return AgreementError(
                f'ranks do not hold the same parameters: rank 0 has "{mine[0]}" of shape {mine[1]} where rank {rank} '
                f'has "{theirs[0]}" of shape {theirs[1]}.',
                hint="Build the same model on every rank.",
            )
    return AgreementError(
        f"ranks do not hold the same parameters: rank 0 has {len(first)} and rank {rank} has {len(other)}.",
        hint="Build the same model on every rank.",
    )
