"""Reach: what share of the network a rank gets once its groups leave a rack or a site, for one layout or thousands.

Ranks are numbered tensor neighbours first, then context and data, then stages. Where they sit (`placement`):

- `packed` fills rack after rack, so a ring leaves each rack once and all its members there share that one way out.
  Between sites, replicas are what is split: every ring crosses the long lines once, and all rings share them.
- `stages` is `packed`, but the stages of the pipeline are what is split between sites: rings stay inside a site, and
  activations cross the lines.
- `spread` deals hosts to all racks in turn: neighbours are in other racks, and the uplinks of all racks are there for
  the job, also where it does not fill them.
- `scattered` is a scheduler that knows no racks: every neighbour may be anywhere.

A rail is the port of one GPU of every host; hosts filled in order keep rings on their rails, so `packed` is rail-aware.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from syncline.fabric.bisection import bisection
from syncline.fabric.fabric import Fabric, Tier
from syncline.sim.step.machine import Machine, machine_from_fabric
from syncline.workload.parallel import PLACEMENTS, Parallel

__all__ = ["PLACEMENTS", "Layout", "Network", "Reach", "reach_of", "reached"]

Floats = npt.NDArray[np.float64]
BORDER = 4  # level of the routers between sites
MOST_HALVED = 512  # hosts; the worst halving of more takes seconds


class Layout(Protocol):
    """The sizes of a split: numbers, or columns of them."""

    @property
    def tp(self) -> Any: ...
    @property
    def pp(self) -> Any: ...
    @property
    def dp(self) -> Any: ...
    @property
    def cp(self) -> Any: ...
    @property
    def ep(self) -> Any: ...


class Network(NamedTuple):
    """What the ranks of a layout have of the network; a number for all layouts or one for each."""

    nic_Bps: Floats
    hop_s: Floats  # latency of an exchange for each doubling of its ranks, long lines included
    long_s: Floats  # one way over the long lines that data-parallel rings cross; 0: they do not
    stage_Bps: Floats  # between two stages of a pipeline
    stage_wait_s: Floats  # that a micro-batch waits because stages are far apart


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
    hashed_share: float = 1.0  # of a port that flows keep beyond a rack when ECMP hashes them (`plan/collide.py`)
    num_sites: int = 1
    num_gpus: int = 0  # of the whole fabric; 0: the job fills it

    def network(self, rows: Layout) -> Network:
        """Return what every layout has of the network."""
        replicas = rows.dp * rows.cp
        num_gpus = rows.tp * rows.pp * replicas
        nic, hop, none = np.asarray(self.nic_Bps), np.asarray(self.hop_s), np.zeros(())
        if self.upper_Bps < self.nic_Bps:
            leaves = num_gpus > (self.domain if self.placement == "spread" else self.rack_gpus)
            nic = np.where(leaves, np.minimum(nic, self._beyond_rack(rows, num_gpus)), nic)
        if self.hashed_share < 1:
            nic = np.where(num_gpus > self.rack_gpus, np.minimum(nic, self.nic_Bps * self.hashed_share), nic)
        if not self.site_gpus:
            return Network(_real(nic), _real(hop), none, _real(nic), none)
        inside = nic
        staged = (num_gpus > self.site_gpus) & (rows.pp % self.num_sites == 0) & (self.placement == "stages")
        across = (num_gpus > self.site_gpus) & (replicas > 1) & ~staged
        nic = np.where(across, np.minimum(nic, self._between_sites(rows)), nic)
        # An exchange pays the latency once per doubling of its ranks; the long way is crossed twice in all.
        hop = np.where(across, hop + 2 * self.wan_latency_s / np.log2(np.maximum(replicas, 2)), hop)
        stage = np.where(staged, np.minimum(inside, self.wan_Bps / (rows.tp * replicas)), nic)
        # 1F1B keeps as many micro-batches in flight as stages follow; the way there and back comes on top for all.
        wait = np.where(staged, 2 * self.wan_latency_s * self.num_sites / rows.pp, 0.0)
        return Network(_real(nic), _real(hop), np.where(across, self.wan_latency_s, 0.0), _real(stage), _real(wait))

    def _beyond_rack(self, rows: Layout, num_gpus: Any) -> Floats:
        if self.placement == "scattered":
            return np.full(np.shape(num_gpus), self.upper_Bps)
        if self.placement == "spread":
            return _real(self.upper_Bps * np.maximum((self.num_gpus or num_gpus) / num_gpus, 1.0))
        members = np.clip(self.rack_gpus // rows.tp, 1, rows.dp * rows.cp)
        ring = self.upper_Bps * members
        inside = np.clip(self.rack_gpus, 1, rows.ep)
        away = 1 - (inside - 1) / np.maximum(rows.ep - 1, 1)
        spread = np.where(rows.ep > self.rack_gpus, self.upper_Bps / np.maximum(away, 1e-9), np.inf)
        return _real(np.minimum(ring, spread))

    def _between_sites(self, rows: Layout) -> Floats:
        rings = rows.tp * rows.pp
        together = np.clip(self.domain // rows.tp, 1, rows.dp * rows.cp)
        return _real(self.wan_Bps / (rings * together))

    def machine(self, machine: Machine, rows: Layout) -> Machine:
        """Return the machine as the ranks of a single layout have it."""
        found = [float(value.reshape(-1)[0]) for value in self.network(rows)]
        nic, hop, long, stage, wait = found
        return replace(
            machine, nic_Bps=nic, upper_Bps=nic, hop_s=hop, long_s=long, stage_Bps=stage, stage_wait_s=wait
        )  # fmt: skip

    def placements(self, num_gpus: int) -> tuple[str, ...]:
        """Return the placements that differ for a job of so many ranks, the usual one first."""
        found = ["packed"]
        if self.site_gpus and num_gpus > self.site_gpus:
            found.append("stages")
        if self.upper_Bps < self.nic_Bps and self.num_gpus > num_gpus > self.domain:
            found.append("spread")
        return tuple(found)


def _real(value: Any) -> Floats:
    return np.asarray(value, dtype=np.float64)


def reached(machine: Machine, fabric: Fabric, split: Parallel) -> Machine:
    """Return the machine with the network rate and latency that this layout has on this fabric."""
    filled = split if split.dp is not None else split.model_copy(update={"dp": 1})
    return reach_of(fabric, machine, split.placement).machine(machine, filled)


def reach_of(fabric: Fabric, machine: Machine | None = None, placement: str = "packed") -> Reach:
    """Return the reach of a fabric: its racks, what leads out of them, and its long links."""
    machine = machine or machine_from_fabric(fabric)
    dies = max(machine.gpu.num_dies, 1)
    racks = np.bincount(fabric.rack_of_host) if fabric.num_hosts else np.ones(1)
    rack_gpus = max(int(racks.max()) * machine.gpus_per_host, machine.gpus_per_host)
    reach = Reach(
        machine.nic_Bps, machine.upper_Bps, machine.hop_s, machine.domain, rack_gpus, placement=placement,
        num_gpus=fabric.num_gpus * dies,
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
            num_sites=sites,
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
