"""Releases: what a framework does from a date on, as data with sources (`data/releases.yaml`).

    release_of("nemo", 2026, 2).cuda_graphs
    release_of("pytorch", 2025, 11, "deepep").routing

Entries of a framework follow each other; each states what changed, and the rest stays as the one before left it. One
with a `dispatcher` speaks only of jobs whose tokens reach their experts by that one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from syncline.describe.own_data import own_data


@dataclass(frozen=True)
class Release:
    """What software does unless a job says otherwise."""

    attention: str = "unfused"
    cudnn_on: tuple[str, ...] = ()  # architectures on which it picks cuDNN's attention instead
    compiled: bool = False  # compiled, or fused by hand
    tp_overlap: bool = False
    dp_overlap: bool = False
    cuda_graphs: bool = False  # they capture the routing of tokens
    fused_casts: bool = False  # casts to fp8 ride on norms and activations
    routing: float = 1.0  # host time of routing tokens, that of Megatron-Core in 2025 = 1
    expert_passes: float = 5.0  # over a routed token's hidden vector: permute, scatter, combine
    local_wait: bool = True  # the host waits for the counts of tokens also where every rank has all experts
    cast_passes: float = 4.0  # more of them in fp8, where products ask for padded rows cast in both directions
    bias_passes: float = 2.0  # the same, where routed experts have biases: that of the second product
    dispatch_once: bool = False  # one copy to each rank that has some of a token's experts (DeepEP), not one an expert
    ep_exposed: float = 1.0  # of dispatch and combine that compute beside them does not hide, against 2025's


@cache
def releases(dispatcher: str = "alltoall") -> dict[str, tuple[tuple[int, Release], ...]]:
    """Return each framework's releases by the month they hold from (year x 12 + month), oldest first."""
    known = {f.name for f in fields(Release)}
    found: dict[str, list[tuple[int, Release]]] = {}
    for entry in own_data("workload", "data/releases.yaml")["releases"]:
        entry = dict(entry)
        name, since = str(entry.pop("framework")), str(entry.pop("since"))
        assert entry.pop("source"), f"{name} {since} has no source"
        if entry.pop("dispatcher", dispatcher) != dispatcher:
            continue
        changed: dict[str, Any] = {key: value for key, value in entry.items() if key in known}
        if "cudnn_on" in entry:
            changed["cudnn_on"] = entry["cudnn_on"] = tuple(entry["cudnn_on"])
        assert changed == entry, f"{name} {since}: unknown {set(entry) - known}"
        mine = found.setdefault(name, [])
        before = mine[-1][1] if mine else Release()
        mine.append((_month(since), replace(before, **changed)))
    return {name: tuple(mine) for name, mine in found.items()}


def release_of(framework: str, year: int, month: int, dispatcher: str = "alltoall") -> Release:
    """Return what a framework does in a month: its last release until then."""
    at = year * 12 + month
    earlier = [release for since, release in releases(dispatcher)[framework] if since <= at]
    return earlier[-1] if earlier else Release()


def _month(text: str) -> int:
    year, _, month = text.partition("-")
    return int(year) * 12 + int(month)
