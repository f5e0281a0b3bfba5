"""Degraded ports and cables that cost more than leaving them out: traffic spread evenly goes at the slowest's pace.

NCCL runs every channel at one speed and leaves out a port only where the port itself reports a lower rate. A port that
reports its full rate and delivers less (a bad cable, a slow hop behind it) has the same share as the others and paces
them all; without it the others would carry more.

Between switches it is the same: ECMP hands as many flows to a slow uplink as to the others, spraying as many packets,
and a collective waits for the last. Only routing by load (queues) sends less over it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.fabric.fabric import NETWORK_TIERS, Fabric
from syncline.sim.reach import Cells, fabric_reach

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class SlowLinks:
    """Links, both directions, that a fabric is better without; the rates are those of the cell that they leave."""

    links: tuple[int, ...]
    names: tuple[str, ...]  # of ports, or of cables between switches
    cell: str  # "host", or which rack, pod or site
    rate_Bps: float
    now_Bps: float
    without_Bps: float

    @property
    def named(self) -> str:
        """The links in a few words."""
        more = len(self.names) - 1
        return self.names[0] + (f" and {more:,} more" if more else "")

    def words(self) -> str:
        """Return why, and what to do: leave a port out of NCCL, or shut a cable."""
        rate, now, then = (units.show_rate(each) for each in (self.rate_Bps, self.now_Bps, self.without_Bps))
        costs = f"{self.named} at {rate} costs more than leaving it out"
        if self.cell == "host":
            return (
                f"{costs}: NCCL gives every channel the same share. Without it (NCCL_IB_HCA=^DEVICE there) the host "
                f"sends {then}, not {now}; NCCL leaves it out by itself only if the port reports the low rate"
            )
        return (
            f"{costs}: ECMP and spraying give every path the same share. With it shut, the {self.cell} sends {then}, "
            f"not {now}; routing by load (adaptive) uses both"
        )

    def on_the_links(self) -> str:
        """Return what a port means for schedules that give every rank the same to send."""
        rate, now, then = (units.show_rate(each) for each in (self.rate_Bps, self.now_Bps, self.without_Bps))
        return (
            f"{self.named} at {rate} costs more than leaving it out where all ranks send alike: its host then sends "
            f"{now}, without it {then}"
        )


def slow_ports(fabric: Fabric, hosts: Longs | None = None) -> SlowLinks | None:
    """Return the ports of these hosts (all by default) without which even striping would carry more; None: none."""
    links, devices, cells = fabric.links, fabric.devices, fabric_reach(fabric).hosts
    used = np.arange(cells.num) if hosts is None else np.unique(cells.of_host[hosts])
    host = devices.host[links.src]
    outside = (host >= 0) & (devices.host[links.dst] != host)
    rows = np.flatnonzero(outside & np.isin(links.tier, [int(tier) for tier in NETWORK_TIERS]))
    # GPUs of a port that is left out share a neighbour's, which then carries two rings.
    best, gone = _best(fabric, cells, used, rows, cells.of_host[host[rows]], lambda least, kept, built: (
        built * least / np.ceil(built / kept)
    ))  # fmt: skip
    now_Bps, without_Bps = float(cells.even_Bps[used].min(initial=np.inf)), float(best[used].min(initial=np.inf))
    if without_Bps <= now_Bps * (1 + 1e-9):
        return None
    left_out = np.concatenate(list(gone.values()))
    ports = tuple(fabric.device_name(int(source)) for source in links.src[left_out])
    return _slow(fabric, left_out, ports, "host", now_Bps, without_Bps)


def slow_cables(fabric: Fabric, hosts: Longs | None = None) -> SlowLinks | None:
    """Return the cables between switches without which these hosts (all by default) would send more; None: none."""
    reach = fabric_reach(fabric)
    used = np.arange(fabric.num_hosts) if hosts is None else hosts
    mine = np.unique(reach.hosts.of_host[used])
    ports_Bps = float((reach.hosts.even_Bps[mine] / np.maximum(reach.hosts.gpus[mine], 1)).min(initial=np.inf))
    found = [_slow_cables(fabric, cells, np.unique(cells.of_host[used]), ports_Bps) for cells in reach.outer]
    return max((slow for slow in found if slow), key=lambda slow: slow.without_Bps / slow.now_Bps, default=None)


def _slow_cables(fabric: Fabric, cells: Cells, used: Longs, ports_Bps: float) -> SlowLinks | None:
    if len(used) < 2 or not len(cells.out_link):
        return None
    best, gone = _best(fabric, cells, used, cells.out_link, cells.out_cell, lambda least, kept, _: least * kept)
    gpus = np.maximum(cells.gpus, 1)
    now = np.minimum(cells.even_Bps / gpus, ports_Bps)
    without_Bps = float(np.minimum(best / gpus, ports_Bps)[used].min())
    paced = [number for number in gone if now[number] < without_Bps * (1 - 1e-9)]
    if not paced:
        return None
    worst = min(paced, key=lambda number: float(now[number]))
    left_out = np.concatenate([gone[number] for number in paced])
    cell = f"{cells.name} of {fabric.host_names[int(np.flatnonzero(cells.of_host == worst)[0])]}"
    names = tuple(_cable(fabric, int(link)) for link in left_out)
    return _slow(fabric, left_out, names, cell, float(cells.even_Bps[worst]), float(best[worst]))


def _best(
    fabric: Fabric,
    cells: Cells,
    used: Longs,
    rows: Longs,
    cell: Longs,
    carried: Callable[[Floats, Floats, float], Floats],
) -> tuple[Floats, dict[int, Longs]]:
    """Return the most that each cell sends with an even share for every link kept, and the links left out for it.

    `carried` says what the links of a cell carry: by the slowest one kept, the cables kept and those that were built.
    """
    links = fabric.links
    cables, up = np.maximum(links.num_cables[rows], 1).astype(np.float64), links.up[rows]
    each_Bps = links.rate_Bps[rows] / cables
    best, gone = cells.even_Bps.copy(), {}
    for number in used.tolist():
        here = np.flatnonzero(cell == number)
        least = np.unique(each_Bps[here][up[here]])
        if len(least) < 2:
            continue
        kept = np.array([cables[here][up[here] & (each_Bps[here] >= rate)].sum() for rate in least])
        even = carried(least, kept, float(cables[here].sum()))
        if even.max() > best[number]:
            slower = up[here] & (each_Bps[here] < least[np.argmax(even)])
            best[number], gone[number] = even.max(), rows[here[slower]]
    return best, gone


def _slow(
    fabric: Fabric, left_out: Longs, names: tuple[str, ...], cell: str, now_Bps: float, without_Bps: float
) -> SlowLinks:
    links = fabric.links
    rate_Bps = float((links.rate_Bps[left_out] / np.maximum(links.num_cables[left_out], 1)).min())
    both = tuple(np.unique(np.concatenate((left_out, left_out ^ 1))).tolist())
    return SlowLinks(both, names, cell, rate_Bps, now_Bps, without_Bps)


def _cable(fabric: Fabric, link: int) -> str:
    """Return the name of a cable as a fault in a cluster's file has it."""
    links = fabric.links
    parallel = np.flatnonzero((links.src == links.src[link]) & (links.dst == links.dst[link]))
    number = f" (which: {int(np.searchsorted(parallel, link))})" if len(parallel) > 1 else ""
    return fabric.link_name(link).replace("->", "<->") + number


def slow_links(fabric: Fabric) -> tuple[str, ...]:
    """Return what there is to say of degraded ports and cables; kept with the fabric."""
    found: tuple[str, ...] | None = fabric.__dict__.get("_slow_links")
    if found is None:
        slow = (slow_ports(fabric), slow_cables(fabric)) if fabric.num_hosts > 1 else ()
        found = tuple(one.words() for one in slow if one is not None)
        fabric.__dict__["_slow_links"] = found
    return found
