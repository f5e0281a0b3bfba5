"""Reach: what of the network the ranks of a layout get, as numbers that closed forms read in columns.

`sim/reach.py` looks at the fabric; this is its answer for whole layouts: the cells that ranks fill, what leaves each,
and in which order ranks fill them (`placement`):

- `packed` fills rack after rack, so a ring leaves each rack once and all its members there share that one way out.
  Between sites, the largest first, replicas are what is split, where whole ones fit; otherwise stages follow each
  other over the lines.
- `stages` is `packed`, but the stages of the pipeline are what is split between sites: rings stay inside a site, and
  activations cross the lines.
- `spread` deals hosts to all racks in turn: neighbours are in other racks, and the uplinks of all racks are there for
  the job, also where it does not fill them.
- `scattered` is a scheduler that knows no racks: every neighbour may be anywhere.

A rail is the port of one GPU of every host; hosts filled in order keep rings on their rails, so `packed` is rail-aware.
The forms themselves are in `sim/step/network.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.fabric.bisection import bisection
from syncline.fabric.catalog import load_catalog
from syncline.fabric.fabric import Fabric
from syncline.fabric.topology.network import NetworkSpec
from syncline.sim.reach import Cells, Floats, fabric_reach
from syncline.workload.parallel import PLACEMENTS

__all__ = ["PLACEMENTS", "Reach", "layout_reach"]

MOST_HALVED = 512  # hosts; the worst halving of more takes seconds


@dataclass(frozen=True)
class Reach:
    """What leaves the cells that ranks fill. A rate is infinite where the level does not limit anybody."""

    nic_Bps: float
    hop_s: float
    domain: int
    rack_gpus: float = np.inf
    rack_Bps: float = np.inf  # out of a whole rack, one direction
    pod_gpus: float = np.inf
    pod_Bps: float = np.inf
    rack_wide: float = 1.0  # times that of a ring, for traffic to all other racks alike (a dragonfly's switches)
    pod_wide: float = 1.0
    site_gpus: float = np.inf  # of the largest site
    site_more: float = np.inf  # of each further site, the mean of them
    site_Bps: float = np.inf
    site_s: float = 0.0  # one way over the lines between sites
    largest_site: str = ""  # its name, where sites differ in size
    placement: str = "packed"
    hashed_share: float = 1.0  # of a port that flows keep beyond a rack when ECMP hashes them (`plan/compare.py`)
    num_gpus: int = 0  # of the whole fabric; 0: the job fills it
    reduce_bytes: float = 0.0  # memory of a switch for sums that are under way; 0: switches sum nothing
    nic_share: float = 1.0  # of a gradient's bytes that the cards put on the wire

    @property
    def oversubscribed(self) -> bool:
        """Whether racks or pods have less than the ports of their ranks."""
        return bool(np.isfinite(self.rack_Bps) or np.isfinite(self.pod_Bps))

    def parts(self, num_gpus: int) -> tuple[tuple[int, str], ...]:
        """Return (GPUs, name) of the parts that a job may do better in: those with thin lines to the others."""
        site = f"site {self.largest_site}" if self.largest_site else "one site"
        cells = ((site, self.site_gpus, self.site_Bps), ("one pod", self.pod_gpus, self.pod_Bps),
                 ("one rack", self.rack_gpus, self.rack_Bps))  # fmt: skip
        return tuple({int(gpus): name for name, gpus, rate in cells if np.isfinite(rate) and gpus < num_gpus}.items())

    def columns(self) -> dict[str, float]:
        """Return what a case reads."""
        dealt = self.placement in ("spread", "scattered")
        names = ("rack_gpus", "rack_Bps", "rack_wide", "pod_gpus", "pod_Bps", "pod_wide", "site_gpus", "site_more",
                 "site_Bps", "site_s")  # fmt: skip
        return {name: float(getattr(self, name)) for name in names} | {
            "reduce_bytes": self.reduce_bytes, "nic_share": self.nic_share,
            "hashed": self.hashed_share, "dealt": float(dealt), "staged": float(self.placement == "stages"),
            "dealt_over": float(self.num_gpus) if self.placement == "spread" else 0.0,
        }  # fmt: skip

    def scaled(self, factor: float) -> Reach:
        """Return every rate but that of lines between sites multiplied."""
        return replace(
            self, nic_Bps=self.nic_Bps * factor, rack_Bps=self.rack_Bps * factor, pod_Bps=self.pod_Bps * factor
        )  # fmt: skip

    def placements(self, num_gpus: int) -> tuple[str, ...]:
        """Return the placements that differ for a job of so many ranks, the usual one first."""
        found = ["packed"]
        if num_gpus > self.site_gpus:
            found.append("stages")
        if self.oversubscribed and self.num_gpus > num_gpus > self.domain:
            found.append("spread")
        return tuple(found)


def layout_reach(fabric: Fabric, nic_Bps: float, hop_s: float, domain: int, dies: int) -> Reach:
    """Return what the cells of a fabric give the ranks that fill them; `nic_Bps` is the port of one rank."""
    found = fabric_reach(fabric)
    reach = Reach(
        nic_Bps, hop_s, domain, num_gpus=fabric.num_gpus * dies, reduce_bytes=_sums(fabric), nic_share=_shrunk(fabric)
    )
    names = {"rack": "rack", "switch": "rack", "pod": "pod", "group": "pod"}
    for cells in found.outer:
        ring_Bps = found.ring_Bps(cells)
        if cells.name == "site":
            reach = _with_sites(reach, fabric, cells, ring_Bps, dies)
            continue
        worst = int(np.argmin(ring_Bps / np.maximum(cells.gpus, 1)))
        gpus, rate, name = float(cells.gpus[worst]) * dies, float(ring_Bps[worst]), names[cells.name]
        reach = _with(reach, name, gpus, rate)
        if np.isfinite(getattr(reach, f"{name}_Bps")) and rate > 0:
            wide = max(1.0, float(found.pairs_Bps(cells)[worst]) / rate)
            reach = replace(reach, **{f"{name}_wide": wide})  # type: ignore[arg-type]
    if (circuits := _circuits(fabric)) is not None:
        reach = replace(reach, pod_gpus=circuits[0] * dies, pod_Bps=circuits[1])
    if not found.outer and (half := _half(fabric)) is not None:
        reach = _with(reach, "rack", half[0] * dies, half[1])
    return reach


def _with_sites(reach: Reach, fabric: Fabric, cells: Cells, ring_Bps: Floats, dies: int) -> Reach:
    """Return a reach with sites: a ring over all of them has what the thinnest way out lets through."""
    largest = int(np.argmax(cells.gpus))
    gpus = float(cells.gpus[largest]) * dies
    more = (float(cells.gpus.sum()) * dies - gpus) / (cells.num - 1)
    at = int(fabric.site_of_host[cells.of_host == largest][0])
    name = fabric.spec.sites[at].name if np.ptp(cells.gpus) and at < len(fabric.spec.sites) else ""
    return replace(
        reach, site_gpus=gpus, site_more=more, site_Bps=float(ring_Bps.min()), site_s=cells.latency_s,
        largest_site=name,
    )  # fmt: skip


def _with(reach: Reach, name: str, gpus: float, rate_Bps: float) -> Reach:
    thin = rate_Bps < gpus * reach.nic_Bps * (1 - 1e-9)
    return replace(reach, **{f"{name}_gpus": gpus, f"{name}_Bps": rate_Bps if thin else np.inf})  # type: ignore[arg-type]


def _networks(fabric: Fabric) -> list[NetworkSpec]:
    spec = fabric.spec
    found = [spec.network] if spec.hosts else [site.network for site in spec.sites]
    return [network for network in found if network is not None]


def _sums(fabric: Fabric) -> float:
    """Return the memory for sums of a switch where the network is told to reduce; 0 where it does not, or cannot."""
    networks = _networks(fabric)
    if not networks or not all(network.reduction for network in networks):
        return 0.0
    catalog = load_catalog().with_parts(fabric.spec.parts) if fabric.spec.parts else load_catalog()
    switches = [network.parts(catalog).switch for network in networks]
    return min(float(part.reduction_bytes or 0) if part.in_switch_reduction else 0.0 for part in switches)


def _shrunk(fabric: Fabric) -> float:
    """Return the share of a gradient's bytes that leaves the cards; 1 where one of them compresses nothing."""
    catalog = load_catalog().with_parts(fabric.spec.parts) if fabric.spec.parts else load_catalog()
    groups = fabric.spec.hosts or [group for site in fabric.spec.sites for group in site.hosts]
    cards = [group.host.resolve(catalog).nic for group in groups]
    return 1 / min((catalog.nic(name).compresses if name else 1.0 for name in cards), default=1.0)


def _circuits(fabric: Fabric) -> tuple[float, float] | None:
    """Return the GPUs of a pod and what its circuits carry to the next one; None without pods joined by circuits.

    A ring leaves a pod towards one other, so what counts is what is laid between neighbours, the fewest of them.
    """
    from syncline.fabric.fabric import Tier

    links, devices = fabric.links, fabric.devices
    lit = (links.tier == Tier.OPTICAL) & links.up
    pods = np.unique(devices.group[links.src[lit]])
    if len(pods) < 2 or (devices.level[links.src[lit]] < 2).any():
        return None
    a, b = devices.group[links.src[lit]], devices.group[links.dst[lit]]
    after = pods[(np.searchsorted(pods, a) + 1) % len(pods)]
    ahead = np.bincount(a[b == after], weights=links.rate_Bps[lit][b == after], minlength=int(pods.max()) + 1)[pods]
    return fabric.num_gpus / len(pods), float(ahead.min())


def _half(fabric: Fabric) -> tuple[float, float] | None:
    """Return the GPUs of half a fabric without leaf switches (a torus), and what joins the halves."""
    from syncline.fabric.fabric import Tier

    if not 1 < fabric.num_hosts <= MOST_HALVED or (fabric.links.tier == Tier.LEAF_SPINE).any():
        return None
    if len(fabric.switches) and (fabric.devices.level[fabric.switches] <= 1).all():
        return None  # one switch, or one on every rail: nothing is halved
    return fabric.num_gpus / 2, bisection(fabric).rate_Bps
