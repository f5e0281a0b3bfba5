"""Reach: what share of the network a rank gets once its groups leave a rack or a site.

Ranks are placed in order: tensor neighbours first, then context and data, then stages. `packed` fills rack after rack
in that order, so a ring leaves each rack once and all its members there share that one way out. `scattered` is a
scheduler that knows no racks: every neighbour may be anywhere, and a rank has only its own share of the uplinks.
Between sites, replicas are what is split: every ring crosses the long links once, and all rings share them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from syncline.fabric.bisection import bisection
from syncline.fabric.fabric import Fabric, Tier
from syncline.plan.space import Rows
from syncline.sim.step.machine import Machine, machine_from_fabric

Floats = npt.NDArray[np.float64]
PLACEMENTS = ("packed", "scattered")
BORDER = 4  # level of the routers between sites
MOST_HALVED = 512  # hosts; the worst halving of more takes seconds


@dataclass(frozen=True)
class Reach:
    """Rates one rank has inside a rack, beyond it and between sites."""

    nic_Bps: float
    upper_Bps: float
    hop_s: float
    domain: int
    rack_gpus: int
    site_gpus: int = 0  # 0: one site
    wan_Bps: float = 0.0  # between two sites, one direction
    wan_latency_s: float = 0.0
    placement: str = "packed"
    hashed_share: float = 1.0  # of a port that flows keep beyond a rack when ECMP hashes them (`collide.py`)

    def network(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return the network rate of a rank and the latency of an exchange, for every row (or one for all)."""
        num_gpus = rows.tp * rows.pp * rows.dp * rows.cp
        nic, hop = np.asarray(self.nic_Bps), np.asarray(self.hop_s)
        if self.upper_Bps < self.nic_Bps:
            nic = np.where(num_gpus > self.rack_gpus, np.minimum(nic, self._beyond_rack(rows)), nic)
        if self.hashed_share < 1:
            nic = np.where(num_gpus > self.rack_gpus, np.minimum(nic, self.nic_Bps * self.hashed_share), nic)
        if self.site_gpus:
            across = (num_gpus > self.site_gpus) & (rows.dp * rows.cp > 1)
            nic = np.where(across, np.minimum(nic, self._between_sites(rows)), nic)
            # An exchange pays the latency once per doubling of its ranks; the long way is crossed twice in all.
            hop = np.where(across, hop + 2 * self.wan_latency_s / np.log2(np.maximum(rows.dp * rows.cp, 2)), hop)
        return np.asarray(nic, dtype=np.float64), np.asarray(hop, dtype=np.float64)

    def _beyond_rack(self, rows: Rows) -> Floats:
        if self.placement == "scattered":
            return np.full(len(rows), self.upper_Bps)
        members = np.clip(self.rack_gpus // rows.tp, 1, rows.dp * rows.cp)
        ring = self.upper_Bps * members
        inside = np.clip(self.rack_gpus, 1, rows.ep)
        away = 1 - (inside - 1) / np.maximum(rows.ep - 1, 1)
        spread = np.where(rows.ep > self.rack_gpus, self.upper_Bps / np.maximum(away, 1e-9), np.inf)
        found: Floats = np.minimum(ring, spread)
        return found

    def _between_sites(self, rows: Rows) -> Floats:
        rings = rows.tp * rows.pp
        together = np.clip(self.domain // rows.tp, 1, rows.dp * rows.cp)
        found: Floats = self.wan_Bps / (rings * together)
        return found

    def machine(self, machine: Machine, rows: Rows) -> Machine:
        """Return the machine as the ranks of a single row have it."""
        nic, hop = self.network(rows)
        rate = float(nic.reshape(-1)[0])
        return replace(machine, nic_Bps=rate, upper_Bps=rate, hop_s=float(hop.reshape(-1)[0]))


def reach_of(fabric: Fabric, machine: Machine | None = None, placement: str = "packed") -> Reach:
    """Return the reach of a fabric: its racks, what leads out of them, and its long links."""
    machine = machine or machine_from_fabric(fabric)
    dies = max(machine.gpu.num_dies, 1)
    racks = np.bincount(fabric.rack_of_host) if fabric.num_hosts else np.ones(1)
    rack_gpus = max(int(racks.max()) * machine.gpus_per_host, machine.gpus_per_host)
    reach = Reach(
        machine.nic_Bps, machine.upper_Bps, machine.hop_s, machine.domain, rack_gpus, placement=placement
    )  # fmt: skip
    links, level = fabric.links, fabric.devices.level
    # Between border routers; what joins a router to its own site is of the same tier.
    wan = links.up & (links.tier == Tier.WAN) & (level[links.src] == BORDER) & (level[links.dst] == BORDER)
    if wan.any():
        upper = replace(reach, upper_Bps=machine.nic_Bps)  # inside a site; what machine has is the share of the WAN
        sites = int(fabric.site_of_host.max()) + 1
        return replace(
            upper,
            site_gpus=fabric.num_gpus * dies // sites,
            wan_Bps=float(links.rate_Bps[wan].sum()) / sites,
            wan_latency_s=float(links.latency_s[wan].max()),
        )
    share = _share_Bps(fabric) / dies
    return replace(reach, upper_Bps=min(reach.upper_Bps, share)) if share > 0 else reach


def _share_Bps(fabric: Fabric) -> float:
    """Return what a GPU has beyond its neighbours where there is no spine: 0 where that is not known."""
    links = fabric.links
    if (links.tier == Tier.LEAF_SPINE).any() or fabric.num_hosts < 2:
        return 0.0
    long = links.up & (links.tier == Tier.GROUP_GLOBAL)
    if long.any():  # a dragonfly: nearly every pair of ranks is in two groups and crosses one long link
        return float(links.rate_Bps[long].sum()) / fabric.num_gpus
    if fabric.num_hosts > MOST_HALVED:
        return 0.0
    return bisection(fabric).rate_Bps / (fabric.num_gpus / 2)
