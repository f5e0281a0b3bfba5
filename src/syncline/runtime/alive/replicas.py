"""Replicas compared: a fingerprint of every parameter, taken on each rank, and the first that differs named."""

from __future__ import annotations

import contextlib
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from syncline.errors import ReplicaError
from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.alive.arrival import Arrival
from syncline.runtime.wire.team import Team

PART_BYTES = 1 << 24


def fingerprints(parameters: list[torch.Tensor]) -> torch.Tensor:
    """Return a number for each parameter that changes with any of its bits."""
    return torch.tensor([_fingerprint(p.detach()) for p in parameters], dtype=torch.int64)


def compare(own: torch.Tensor, names: list[str], team: Team, step: int, axis: str = "") -> None:
    """Raise on every rank if two ranks of the team, a line of an axis, hold a parameter that differs."""
    rooms = [torch.empty_like(own, device=team.device) for _ in range(team.size)]
    team.all_gather(rooms, own.to(team.device)).wait()
    table = torch.stack(rooms).cpu()
    differing = (table != table[0]).any(dim=0).nonzero().flatten().tolist()
    if differing:
        ranks = [team.names[rank] for rank in unlike(table[:, differing[0]].tolist())]
        raise _differ(names[differing[0]], len(differing) - 1, ranks, step, axis)


def unlike(values: Sequence[object]) -> list[int]:
    """Return the ranks whose value is not the one that most have."""
    usual = Counter(values).most_common(1)[0][0]
    return [rank for rank, value in enumerate(values) if value != usual]


def compare_settings(optimizers: Iterable[torch.optim.Optimizer], team: Team, step: int) -> None:
    """Raise on every rank if the optimizers of two ranks have other settings, and say which."""
    rows = exchange_json(hyperparameters(optimizers), team)
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [str(row.get(key, "not there")) for row in rows]
        if len(set(values)) > 1:
            odd = unlike(values)
            usual = next(value for rank, value in enumerate(values) if rank not in odd)
            raise ReplicaError(
                f"ranks do not train alike at step {step}: {key} is {values[odd[0]]} on rank "
                f"{', '.join(str(team.names[rank]) for rank in odd)} and {usual} on the others.",
                hint="Make the optimizer and its schedule alike on every rank.",
            )


def compare_at_end(own: torch.Tensor, names: list[str], team: Team, step: int, wait_s: float) -> None:
    """Raise where ranks that come to their end within so many seconds of each other differ; others are not waited for.

    The store carries it, for a collective would hang where one rank never comes.
    """
    arrival = Arrival("close", team.names)
    with contextlib.suppress(RuntimeError):  # the store's host has ended already
        found = arrival.tally(" ".join(map(str, own.tolist())), wait_s)
        if found is None:
            return
        rows = {ranks[0]: value.split() for value, ranks in found.items()}
        usual = max(found, key=lambda value: (len(found[value]), -found[value][0])).split()
        odd = next(row for row in rows.values() if row != usual)
        differing = [name for name, one, other in zip(names, odd, usual, strict=True) if one != other]
        ranks = [rank for value, held in found.items() if value.split() != usual for rank in held]
        raise _differ(differing[0], len(differing) - 1, sorted(ranks), step, "")


def _differ(name: str, num_more: int, ranks: list[int], step: int, axis: str) -> ReplicaError:
    more = f"; {num_more} more differ" if num_more else ""
    on = f' on the axis "{axis}"' if axis else ""
    return ReplicaError(
        f'replicas of "{name}" differ{on} at step {step}: rank {", ".join(map(str, ranks))} is not like the '
        f"others{more}.",
        hint="Something changed parameters on some ranks only. Find it, and restart from a checkpoint.",
    )


def hyperparameters(optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, str]:
    """Return each setting of these optimizers, by the name that people know it by."""
    found = {}
    for optimizer in optimizers:
        for number, group in enumerate(optimizer.param_groups):
            for key, value in sorted(group.items()):
                if key != "params" and not callable(value):
                    text = repr(value.tolist() if isinstance(value, torch.Tensor) else value)
                    found[f"{key} of {type(optimizer).__name__}, group {number},"] = text[:80]
    return found


def _fingerprint(tensor: torch.Tensor) -> int:
    if tensor.device.type == "cpu":
        flat = tensor.contiguous().view(-1).view(torch.uint8)
        bits: Any = flat.numpy()
        return zlib.crc32(bits)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    for part in torch.split(flat, PART_BYTES):  # a word for each byte takes room
        words = part.to(torch.int64)
        total = 31 * total + (words * torch.arange(1, words.numel() + 1, device=tensor.device)).sum()
    return int(total)
