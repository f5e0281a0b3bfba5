"""Ports and cables that are slower than none: traffic spread evenly over them goes at the pace of the slowest.

NCCL runs every channel at one speed and leaves out a port only where the port itself reports a lower rate. A port that
reports its full rate and delivers less (a bad cable, a slow hop behind it) has the same share as the others and paces
them all; without it the others would carry more.

Between switches it is the same: ECMP hands as many flows to a slow uplink as to the others, spraying as many packets,
and a collective waits for the last. Only routing by load (queues) sends less over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.fabric.fabric import NETWORK_TIERS, Fabric
from syncline.sim.reach import Cells, fabric_reach

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


@dataclass(frozen=True)
class SlowCables:
    """Links between switches, both directions, that a fabric is better without; rates are of the cell they leave."""

    links: tuple[int, ...]
    cables: tuple[str, ...]
    cell: str
    rate_Bps: float
    now_Bps: float
    without_Bps: float

    @property
    def named(self) -> str:
        """The cables in a few words."""
        more = len(self.cables) - 1
        return self.cables[0] + (f" and {more:,} more" if more else "")

    def words(self) -> str:
        """Return why, and what to do."""
        return (
            f"{self.named} at {units.show_rate(self.rate_Bps)} is slower than none: ECMP and spraying give every path "
            f"the same share. With it shut, the {self.cell} sends {units.show_rate(self.without_Bps)}, not "
            f"{units.show_rate(self.now_Bps)}; routing by load (adaptive) uses both"
        )


def slow_cables(fabric: Fabric, hosts: Longs | None = None) -> SlowCables | None:
    """Return the cables between switches without which these hosts (all by default) would send more; None: none."""
    reach = fabric_reach(fabric)
    used = np.arange(fabric.num_hosts) if hosts is None else hosts
    mine = np.unique(reach.hosts.of_host[used])
    ports_Bps = float((reach.hosts.even_Bps[mine] / np.maximum(reach.hosts.gpus[mine], 1)).min(initial=np.inf))
    found = [_slow_cables(fabric, cells, np.unique(cells.of_host[used]), ports_Bps) for cells in reach.outer]
    return max((slow for slow in found if slow), key=lambda slow: slow.without_Bps / slow.now_Bps, default=None)


def _slow_cables(fabric: Fabric, cells: Cells, used: Longs, ports_Bps: float) -> SlowCables | None:
    links, rows = fabric.links, cells.out_link
    if len(used) < 2 or not len(rows):
        return None
    each_Bps, cables = links.rate_Bps[rows] / np.maximum(links.num_cables[rows], 1), links.num_cables[rows]
    slowest, fastest = np.full(cells.num, np.inf), np.zeros(cells.num)
    np.minimum.at(slowest, cells.out_cell, each_Bps)
    np.maximum.at(fastest, cells.out_cell, each_Bps)
    best, gone = cells.even_Bps.copy(), {}
    for number in used[fastest[used] > slowest[used]].tolist():
        here = np.flatnonzero(cells.out_cell == number)
        least = np.unique(each_Bps[here])
        even = np.array([rate * cables[here][each_Bps[here] >= rate].sum() for rate in least])
        if even.max() > best[number]:
            best[number], gone[number] = even.max(), rows[here[each_Bps[here] < least[np.argmax(even)]]]
    gpus = np.maximum(cells.gpus, 1)
    now = np.minimum(cells.even_Bps / gpus, ports_Bps)
    without_Bps = float(np.minimum(best / gpus, ports_Bps)[used].min())
    paced = [number for number in gone if now[number] < without_Bps * (1 - 1e-9)]
    if not paced:
        return None
    worst = min(paced, key=lambda number: float(now[number]))
    left_out = np.concatenate([gone[number] for number in paced])
    rate_Bps = float((links.rate_Bps[left_out] / np.maximum(links.num_cables[left_out], 1)).min())
    host = fabric.host_names[int(np.flatnonzero(cells.of_host == worst)[0])]
    both = tuple(np.unique(np.concatenate((left_out, left_out ^ 1))).tolist())
    return SlowCables(
        both, tuple(_cable(fabric, int(link)) for link in left_out), f"{cells.name} of {host}", rate_Bps,
        float(cells.even_Bps[worst]), float(best[worst]),
    )  # fmt: skip


def _cable(fabric: Fabric, link: int) -> str:
    """Return the name of a cable as a fault in a cluster's file has it."""
    links = fabric.links
    beside = np.flatnonzero((links.src == links.src[link]) & (links.dst == links.dst[link]))
    number = f" (which: {int(np.searchsorted(beside, link))})" if len(beside) > 1 else ""
    return fabric.link_name(link).replace("->", "<->") + number


def slow_links(fabric: Fabric) -> tuple[str, ...]:
    """Return what there is to say of ports and cables slower than none; kept with the fabric."""
    found: tuple[str, ...] | None = fabric.__dict__.get("_slow_links")
    if found is None:
        slow = (slower_than_none(fabric), slow_cables(fabric)) if fabric.num_hosts > 1 else ()
        found = tuple(one.words() for one in slow if one is not None)
        fabric.__dict__["_slow_links"] = found
    return found


def _best_without(
    each_Bps: NDArray[np.float64], cables: NDArray[np.integer[Any]], up: NDArray[np.bool_]
) -> tuple[float, NDArray[np.bool_]]:
    """Return the most that ports carry with an even share each, and which of those that are up it leaves out."""
    built, least = float(cables.sum()), np.unique(each_Bps[up])
    kept = np.array([cables[up & (each_Bps >= rate)].sum() for rate in least])
    even = built * least / np.ceil(built / kept)
    top = int(np.argmax(even))
    return float(even[top]), np.asarray(up & (each_Bps < least[top]))
