"""Agreement between ranks before the first byte of a gradient: the same settings, version and parameters everywhere.

What a rank means is sent as JSON and compared on every rank, so that all of them raise the same error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from syncline.errors import AgreementError
from syncline.runtime.wire.team import Team


def agree(meaning: Mapping[str, object], team: Team) -> list[dict[str, Any]]:
    """Return what every rank of the team means, or raise on all of them where two differ."""
    everyone = exchange_json(meaning, team)
    for rank, other in enumerate(everyone):
        error = difference(0, everyone[0], rank, other)
        if error is not None:
            raise error
    return everyone


def difference(first_rank: int, first: Mapping[str, Any], rank: int, other: Mapping[str, Any]) -> AgreementError | None:
    """Return how two ranks differ in what they mean, or None."""
    for key in first:
        mine, theirs = first[key], other.get(key)
        if mine != theirs and key == "parameters":
            return _parameter_difference(first_rank, mine, rank, theirs or [])
        if mine != theirs:
            return AgreementError(
                f"ranks do not agree on {key}: rank {first_rank} has {mine!r} and rank {rank} has {theirs!r}.",
                hint=f"Start every rank with the same {key}.",
            )
    return None


def exchange_json(value: Mapping[str, object], team: Team) -> list[dict[str, Any]]:
    """Return the objects of all ranks, in their order."""
    return gathered(value, team.size, team.device, lambda rooms, own: team.all_gather(rooms, own).wait())


def gathered(
    value: Mapping[str, object],
    size: int,
    device: torch.device,
    all_gather: Callable[[list[torch.Tensor], torch.Tensor], object],
) -> list[dict[str, Any]]:
    """Return the objects of so many ranks, brought by an all-gather of theirs: lengths first, then padded text."""
    text = json.dumps(value).encode()
    lengths = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(size)]
    all_gather(lengths, torch.tensor([len(text)], device=device))
    padded = torch.zeros(max(int(length) for length in lengths), dtype=torch.uint8, device=device)
    padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(device)
    rooms = [torch.empty_like(padded) for _ in range(size)]
    all_gather(rooms, padded)
    return [json.loads(bytes(room[: int(n)].cpu().tolist())) for room, n in zip(rooms, lengths, strict=True)]


class Gathering:
    """Every rank's numbers, on their way while ranks go on: all of them begin it, and take it, between two steps."""

    def __init__(self, numbers: Sequence[float], team: Team) -> None:
        self._own = torch.tensor(numbers, dtype=torch.float64, device=team.device)
        self._rows = [torch.empty_like(self._own) for _ in range(team.size)]
        self._work = team.all_gather(self._rows, self._own)

    def rows(self) -> list[list[float]]:
        """Wait for all of them and return them, a row a rank."""
        self._work.wait()
        return [row.tolist() for row in self._rows]


def _parameter_difference(first_rank: int, first: list[Any], rank: int, other: list[Any]) -> AgreementError:
    for mine, theirs in zip(first, other, strict=False):
        if mine != theirs:
            return AgreementError(
                f'ranks do not hold the same parameters: rank {first_rank} has "{mine[0]}" of shape {mine[1]} where '
                f'rank {rank} has "{theirs[0]}" of shape {theirs[1]}.',
                hint="Build the same model on every rank.",
            )
    return AgreementError(
        f"ranks do not hold the same parameters: rank {first_rank} has {len(first)} and rank {rank} has {len(other)}.",
        hint="Build the same model on every rank.",
    )
