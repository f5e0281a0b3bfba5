"""Agreement between ranks before the first byte of a gradient: the same settings, version and parameters everywhere.

What a rank means is sent as JSON and compared on every rank, so that all of them raise the same error.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from syncline.errors import AgreementError
from syncline.runtime.team import Team


def agree(meaning: dict[str, Any], team: Team) -> list[dict[str, Any]]:
    """Return what every rank of the team means, or raise on all of them where two differ."""
    everyone = exchange_json(meaning, team)
    first = everyone[0]
    for rank, other in enumerate(everyone):
        for key in first:
            if other.get(key) != first[key]:
                raise _difference(key, first[key], rank, other.get(key))
    return everyone


def exchange_json(value: dict[str, Any], team: Team) -> list[dict[str, Any]]:
    """Return the objects of all ranks, in their order."""
    text = json.dumps(value).encode()
    lengths = [torch.zeros(1, dtype=torch.int64, device=team.device) for _ in range(team.size)]
    team.all_gather(lengths, torch.tensor([len(text)], device=team.device)).wait()
    padded = torch.zeros(max(int(length) for length in lengths), dtype=torch.uint8, device=team.device)
    padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(team.device)
    rooms = [torch.empty_like(padded) for _ in range(team.size)]
    team.all_gather(rooms, padded).wait()
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
