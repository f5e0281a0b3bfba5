"""What a schedule costs on a given fabric: bytes inside hosts, inside racks and across, and on each tier of links.

Counted from the moves of the schedule; ranks lie on GPUs in order (`packed`) unless a placement says otherwise. Routes
are shortest paths chosen as switches do; time is not estimated here, only the least the busiest link needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from syncline.errors import ScheduleError
from syncline.fabric import Fabric, Tier
from syncline.fabric.route import Routes
from syncline.schedule.collective import Ints
from syncline.schedule.counts import VertexTraffic, sent_bytes, traffic
from syncline.schedule.family.families import Options
from syncline.schedule.schedule import NO_HOME, Schedule

CLASSES = ("inside_host", "inside_rack", "across", "to_helpers")
MAX_ROUTED = 1 << 21
"""Pairs of ranks whose routes are followed; larger schedules get classes but no tiers."""


@dataclass(frozen=True)
class Cost:
    """The counted cost of a schedule on a fabric, for one buffer size."""

    size_bytes: int
    rounds: int
    moves: int
    sent_bytes_per_rank: int
    sent_bytes_mean: float
    link_bytes: dict[str, int]
    tier_bytes: dict[str, int] | None
    links_used: dict[str, tuple[int, int]] | None
    busiest_link: str
    busiest_bytes: int
    least_time_s: float


def cost(
    schedule: Schedule, fabric: Fabric, size_bytes: int, *, ranks_on: Sequence[int] | Ints | None = None, seed: int = 0
) -> Cost:
    """Return the cost of a schedule; `ranks_on` is the GPU (device) of each rank, all in order by default."""
    gpus = _placed(schedule, fabric, ranks_on)
    moved = traffic(schedule, size_bytes)
    sent = sent_bytes(schedule, size_bytes)[: schedule.num_ranks]
    load = _link_load(schedule, fabric, moved, gpus, seed)
    busiest = int(np.argmax(load / fabric.links.rate_Bps)) if load is not None and load.any() else -1
    return Cost(
        size_bytes=size_bytes,
        rounds=schedule.num_rounds,
        moves=schedule.num_moves,
        sent_bytes_per_rank=int(sent.max()),
        sent_bytes_mean=float(sent.mean()),
        link_bytes=link_bytes(schedule, fabric, moved, gpus),
        tier_bytes=None if load is None else _by_tier(fabric, load),
        links_used=None if load is None else _used(fabric, load),
        busiest_link=fabric.link_name(busiest) if busiest >= 0 else "",
        busiest_bytes=int(load[busiest]) if load is not None and busiest >= 0 else 0,
        least_time_s=float(load[busiest] / fabric.links.rate_Bps[busiest])
        if load is not None and busiest >= 0
        else 0.0,
    )


def _placed(schedule: Schedule, fabric: Fabric, ranks_on: Sequence[int] | Ints | None) -> Ints:
    gpus = fabric.gpus.astype(np.int64) if ranks_on is None else np.asarray(ranks_on, dtype=np.int64)
    if ranks_on is not None and len(np.unique(gpus)) != len(gpus):
        raise ScheduleError("a placement puts two ranks on one GPU.")
    if len(gpus) < schedule.num_ranks:
        raise ScheduleError(f"{schedule.num_ranks:,} ranks do not fit the {len(gpus):,} GPUs of {fabric.name}.",
                            hint="Give fewer ranks, or a larger cluster.")  # fmt: skip
    return gpus[: schedule.num_ranks]


def _devices(schedule: Schedule, gpus: Ints) -> Ints:
    """Return the device of each vertex, -1 for helpers that are devices of their own."""
    home = schedule.device_rank()
    return np.where(home == NO_HOME, -1, gpus[np.maximum(home, 0)])


def link_bytes(schedule: Schedule, fabric: Fabric, moved: VertexTraffic, gpus: Ints) -> dict[str, int]:
    """Return the bytes that stay inside a host, inside a rack, cross racks, or go to and from helpers."""
    device = _devices(schedule, gpus)
    src, dst = device[moved.src], device[moved.dst]
    helper = (src < 0) | (dst < 0)
    src, dst = np.maximum(src, 0), np.maximum(dst, 0)
    host_a, host_b = fabric.devices.host[src], fabric.devices.host[dst]
    rack_a, rack_b = fabric.rack_of_host[host_a], fabric.rack_of_host[host_b]
    same_host, same_rack = ~helper & (host_a == host_b), ~helper & (rack_a == rack_b)
    masks = (same_host, same_rack & ~same_host, ~helper & ~same_rack & ~same_host, helper)
    return {name: int(moved.nbytes[mask].sum()) for name, mask in zip(CLASSES, masks, strict=True)}


def _link_load(schedule: Schedule, fabric: Fabric, moved: VertexTraffic, gpus: Ints, seed: int) -> Ints | None:
    """Return the bytes on every link, or None when there are too many pairs to route."""
    device = _devices(schedule, gpus)
    src, dst = device[moved.src], device[moved.dst]
    keep = np.flatnonzero((src >= 0) & (dst >= 0))
    load = np.zeros(len(fabric.links), dtype=np.int64)
    if len(keep) > MAX_ROUTED:
        return None
    if len(keep):
        paths = Routes(fabric).many(src[keep], dst[keep], seed=seed)
        np.add.at(load, paths.links, np.repeat(moved.nbytes[keep], np.diff(paths.start)))
    return load


def _by_tier(fabric: Fabric, load: Ints) -> dict[str, int]:
    tiers = np.bincount(fabric.links.tier, weights=load, minlength=len(Tier))
    return {tier.name.lower(): int(tiers[tier]) for tier in Tier if (fabric.links.tier == tier).any()}


def _used(fabric: Fabric, load: Ints) -> dict[str, tuple[int, int]]:
    out = {}
    for tier in Tier:
        mine = fabric.links.tier == tier
        if mine.any():
            out[tier.name.lower()] = (int((load[mine] > 0).sum()), int(mine.sum()))
    return out


def fitted(options: Options, family: str, fabric: Fabric) -> Options:
    """Fill in the grid that a fabric suggests: hosts and their GPUs, a torus's shape, a dragonfly's groups."""
    if options.shape or options.num_ranks != fabric.num_gpus:
        return options
    torus, groups = fabric.facts.get("torus_shape"), int(fabric.facts.get("dragonfly_groups", 0))
    if family == "torus" and torus:
        return replace(options, shape=tuple(int(size) for size in str(torus).split("x")))
    if family == "dragonfly":
        if not groups or fabric.num_gpus % groups:
            problem = f"{groups} groups that do not hold as many GPUs each" if groups else "no dragonfly groups"
            raise ScheduleError(f"{fabric.name} has {problem}.", hint="Give --shape GROUPSxRANKS.")
        return replace(options, shape=(groups, fabric.num_gpus // groups))
    if family == "hierarchical" and fabric.num_gpus % fabric.num_hosts == 0:
        return replace(options, shape=(fabric.num_hosts, fabric.num_gpus // fabric.num_hosts))
    return options
