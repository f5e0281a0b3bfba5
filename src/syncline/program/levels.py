"""The levels that a placement has on its fabric: GPUs in a domain, in a host, behind one leaf, in a pod, in a site.

levels(packed(fabric))      (Level("site", 2), Level("host", 16), Level("gpu", 8)): 2 sites of 16 hosts of 8 GPUs
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from syncline.fabric import Fabric, Tier
from syncline.fabric.fabric import DeviceKind
from syncline.program.placement import Placement

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """One level: `size` groups of that name inside a group of the level above (ranks: inside the last one)."""

    name: str
    size: int


@dataclass(frozen=True, eq=False)
class Nest:
    """Levels from the outside in, and the order in which ranks fill them: their own, if it is the plain one."""

    levels: tuple[Level, ...]
    order: Longs

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(level.size for level in self.levels)

    @property
    def in_order(self) -> bool:
        """Whether ranks fill one group after the other as they are numbered."""
        return bool((np.diff(self.order) > 0).all())

    @property
    def two_levels(self) -> tuple[int, int] | None:
        """All innermost groups (hosts or domains) and the ranks of each, if there are several of both."""
        outer, inner = prod(self.shape[:-1]), self.shape[-1]
        return (outer, inner) if outer > 1 and inner > 1 else None

    def __str__(self) -> str:
        return " x ".join(f"{level.size} {level.name}{'s' if level.size > 1 else ''}" for level in self.levels)


def nest(placement: Placement) -> Nest:
    """Return the levels that all groups share: a level whose groups differ in size is left out."""
    labels = _labels(placement)
    order = np.lexsort((np.arange(placement.num_ranks), *(label for _, label in reversed(labels))))
    found: list[Level] = []
    inner = placement.num_ranks
    blocks: dict[int, str] = {}
    for name, label in labels:
        block = _block(label[order])
        if block is not None and blocks.get(block) != "site":  # of others with the same groups, the finest names them
            blocks[block] = name
    for block, name in blocks.items():
        if block < inner and inner % block == 0:
            found.append(Level(name, inner // block))
            inner = block
    if inner > 1 or not found:
        found.append(Level("rank", inner))
    return Nest(tuple(found), order)


def _block(label: Longs) -> int | None:
    """Return the length of the runs of equal labels, if all are equally long and no label comes back."""
    cuts = np.flatnonzero(np.diff(label)) + 1
    runs = np.diff(np.concatenate(([0], cuts, [len(label)])))
    if (runs != runs[0]).any() or len(np.unique(label)) != len(runs):
        return None
    return int(runs[0])


def _labels(placement: Placement) -> list[tuple[str, Longs]]:
    """Return (name of a level, group of each rank), coarse before fine, each group inside one of the level above."""
    fabric = placement.fabric
    host = placement.host.astype(np.int64)
    rank_gpu = np.searchsorted(fabric.gpus, placement.device)
    domain_gpus = int(fabric.facts.get("nvlink_domain_gpus", 0))
    columns = [
        ("site", fabric.site_of_host[host].astype(np.int64)),
        ("pod", _pod_of_host(fabric)[host]),
        ("leaf", fabric.rack_of_host[host].astype(np.int64)),
    ]
    finest = ("domain", (rank_gpu // domain_gpus).astype(np.int64)) if domain_gpus else ("host", host)
    nested: list[tuple[str, Longs]] = []
    above = np.zeros(placement.num_ranks, dtype=np.int64)
    for name, label in (*columns, finest):
        within = _joined(above, label)
        if name != finest[0] and len(np.unique(_joined(within, finest[1]))) > len(np.unique(finest[1])):
            continue  # a domain's hosts are at several leaves: NVLink decides, not the leaf
        above = within
        nested.append((name, above))
    return nested


def _joined(above: Longs, label: Longs) -> Longs:
    """Return one number for each pair of labels."""
    joined: Longs = np.unique(above * (int(label.max()) + 1) + label, return_inverse=True)[1].astype(np.int64)
    return joined


def _pod_of_host(fabric: Fabric) -> Longs:
    """Return the group (pod, scalable unit, dragonfly group) of the first leaf switch of every host."""
    devices, links = fabric.devices, fabric.links
    access = np.flatnonzero(
        (links.tier == Tier.ACCESS) & (devices.host[links.src] >= 0) & (devices.kind[links.dst] == DeviceKind.SWITCH)
    )
    pods = np.zeros(fabric.num_hosts, dtype=np.int64)
    pods[devices.host[links.src[access[::-1]]]] = devices.group[links.dst[access[::-1]]]
    pods -= pods.min(initial=0)
    return pods
