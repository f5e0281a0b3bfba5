"""Ports that are slower than none: traffic striped evenly over the ports of a host goes at the pace of the slowest.

NCCL runs every channel at one speed and leaves out a port only where the port itself reports a lower rate. A port that
reports its full rate and delivers less (a bad cable, a slow hop behind it) has the same share as the others and paces
them all; without it the others would carry more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.fabric.fabric import NETWORK_TIERS, Fabric
from syncline.sim.reach import fabric_reach

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class SlowPorts:
    """Links of ports, both directions, that a fabric is better without; the rates are of the slowest host."""

    links: tuple[int, ...]
    ports: tuple[str, ...]
    rate_Bps: float
    now_Bps: float
    without_Bps: float

    @property
    def named(self) -> str:
        """The ports in a few words."""
        more = len(self.ports) - 1
        return self.ports[0] + (f" and {more:,} more" if more else "")

    def on_the_links(self) -> str:
        """Return what it means for schedules that give every rank the same to send."""
        return (
            f"{self.named} at {units.show_rate(self.rate_Bps)} is slower than none where all ranks send alike: its "
            f"host then sends {units.show_rate(self.now_Bps)}, without it {units.show_rate(self.without_Bps)}"
        )

    def words(self) -> str:
        """Return why, and how to leave them out of NCCL."""
        return (
            f"{self.named} at {units.show_rate(self.rate_Bps)} is slower than none: NCCL gives every channel the same "
            f"share. Without it (NCCL_IB_HCA=^DEVICE there) the host sends {units.show_rate(self.without_Bps)}, "
            f"not {units.show_rate(self.now_Bps)}; NCCL leaves it out by itself only if the port reports the low rate"
        )


def slower_than_none(fabric: Fabric, hosts: Longs | None = None) -> SlowPorts | None:
    """Return the ports of these hosts (all by default) without which even striping would carry more; None: none."""
    links, devices, cells = fabric.links, fabric.devices, fabric_reach(fabric).hosts
    used = np.arange(cells.num) if hosts is None else np.unique(cells.of_host[hosts])
    host = devices.host[links.src]
    outside = (host >= 0) & (devices.host[links.dst] != host)
    rows = np.flatnonzero(outside & np.isin(links.tier, [int(tier) for tier in NETWORK_TIERS]))
    cell, each_Bps = cells.of_host[host[rows]], links.rate_Bps[rows] / np.maximum(links.num_cables[rows], 1)
    up = links.up[rows]
    slowest, fastest = np.full(cells.num, np.inf), np.zeros(cells.num)
    np.minimum.at(slowest, cell[up], each_Bps[up])
    np.maximum.at(fastest, cell[up], each_Bps[up])
    best, gone = cells.even_Bps.copy(), []
    for number in used[fastest[used] > slowest[used]].tolist():
        mine = np.flatnonzero(cell == number)
        best[number], without = _best_without(each_Bps[mine], links.num_cables[rows[mine]], up[mine])
        gone.append(rows[mine[without]])
    now_Bps, without_Bps = float(cells.even_Bps[used].min(initial=np.inf)), float(best[used].min(initial=np.inf))
    left_out = np.concatenate(gone) if gone else np.zeros(0, np.int64)
    if without_Bps <= now_Bps * (1 + 1e-9):
        return None
    ports = tuple(fabric.device_name(int(source)) for source in links.src[left_out])
    rate_Bps = float((links.rate_Bps[left_out] / np.maximum(links.num_cables[left_out], 1)).min())
    both = tuple(np.concatenate((left_out, left_out ^ 1)).tolist())
    return SlowPorts(both, ports, rate_Bps, now_Bps, without_Bps)


def _best_without(
    each_Bps: NDArray[np.float64], cables: NDArray[np.integer[Any]], up: NDArray[np.bool_]
) -> tuple[float, NDArray[np.bool_]]:
    """Return the most that ports carry with an even share each, and which of those that are up it leaves out."""
    built, least = float(cables.sum()), np.unique(each_Bps[up])
    kept = np.array([cables[up & (each_Bps >= rate)].sum() for rate in least])
    even = built * least / np.ceil(built / kept)
    top = int(np.argmax(even))
    return float(even[top]), np.asarray(up & (each_Bps < least[top]))
