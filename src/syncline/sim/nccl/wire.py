"""What a collective puts on the wire: bus bandwidth is not link bandwidth, and this says which link is how busy.

Bytes follow from the algorithm (a ring crosses every host once with 2(n-1)/n of the buffer; the busiest host of a
double tree sends it twice, once on two hosts; NVLS sends each GPU's buffer to the switch once), the protocol adds its
flags (LL doubles them, LL128 adds 8 in 120). The busier of NIC and NVLink (PCIe where there is none), each against its
line rate, is the limiting link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.fabric import DeviceKind, Fabric, Tier
from syncline.sim.double_tree import tree_share
from syncline.sim.nccl.fabric import UsedParts
from syncline.sim.nccl.predict import NcclPrediction
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.reach import fabric_reach

FLAGS = {"LL": 2.0, "LL128": 128 / 120, "Simple": 1.0}


@dataclass(frozen=True)
class LimitingLink:
    """The limiting link of one size: its name, the rate it carries and the share of its line rate."""

    link: str
    rate_Bps: float
    utilisation: float


def wires(
    prediction: NcclPrediction, fabric: Fabric, gpus: NDArray[np.integer[Any]] | None = None
) -> list[LimitingLink]:
    """Return the limiting link at each size, for ranks on these GPUs (all by default)."""
    used = UsedParts.of(fabric, fabric.gpus if gpus is None else gpus)
    return [
        _wire(prediction.system, prediction.op, pair, size / (time_us / 1e6), fabric, used)
        for pair, size, time_us in zip(
            prediction.pairs, prediction.sizes.tolist(), prediction.time_us.tolist(), strict=True
        )
    ]


def _wire(
    system: NcclSystem, op: str, pair: tuple[str, str], algbw_Bps: float, fabric: Fabric, used: UsedParts
) -> LimitingLink:
    algorithm, protocol = pair
    sent = algbw_Bps * FLAGS.get(protocol, 1.0)
    found = []
    if system.num_islands > 1:
        num_nics = system.num_nics * system.hosts_per_island
        rate = sent * network_share(system, op, algorithm) / num_nics
        found.append(LimitingLink(_nic_link(fabric, used), rate, rate / system.nic_rate_Bps))
        if op != "all_to_all" and system.ring_cap_Bps < float("inf"):
            rate = sent * network_share(system, op, algorithm)
            found.append(LimitingLink(system.limit, rate, rate / system.ring_cap_Bps))
        if op == "all_to_all" and system.pairs_cap_Bps < float("inf"):
            rate = sent * network_share(system, op, algorithm)
            found.append(LimitingLink(system.limit, rate, rate / system.pairs_cap_Bps))
    tier = Tier.SCALE_UP if _inside_Bps(fabric, Tier.SCALE_UP) else Tier.PCIE
    line = _inside_Bps(fabric, tier)
    if line and system.ranks_per_island > 1:
        rate = sent * inside_share(system, op, algorithm)
        found.append(LimitingLink(_gpu_link(fabric, tier), rate, rate / line))
    return max(found, key=lambda wire: wire.utilisation, default=LimitingLink("", 0.0, 0.0))


def network_share(system: NcclSystem, op: str, algorithm: str) -> float:
    """Return what one NVLink domain (one host, mostly) sends to the others, in sizes of the operation."""
    n, p, hosts = system.num_ranks, system.ranks_per_island, system.num_islands
    if op == "all_to_all":
        return p * (n - p) / n
    if op == "all_reduce":
        if algorithm in ("Tree", "NVLSTree"):
            return tree_share(hosts)
        return 2 * (n - 1) / n if algorithm == "Ring" else 1.0
    return (n - 1) / n if op in ("all_gather", "reduce_scatter") else 1.0


def inside_share(system: NcclSystem, op: str, algorithm: str) -> float:
    """Return what one GPU sends over its scale-up links, in sizes of the operation."""
    n, p = system.num_ranks, system.ranks_per_island
    if op == "all_to_all":
        return (p - 1) / n
    if algorithm.startswith("NVLS"):
        return 1 + 1 / p if op == "all_reduce" else 1.0
    steps = 2.0 if op == "all_reduce" else 1.0
    if algorithm == "Tree":
        return steps * (p - 1) / p
    share = steps * (n - 1) / n if op in ("all_reduce", "all_gather", "reduce_scatter") else 1.0
    return share if system.num_islands == 1 else share * (p - 1) / p


def _nic_link(fabric: Fabric, used: UsedParts) -> str:
    """Return the port in use that paces the rings: of the host that is left with least, its slowest or failed port."""
    links, devices = fabric.links, fabric.devices
    mine = np.isin(devices.host[links.src], used.hosts) if used.nics is None else np.isin(links.src, used.nics)
    rows = np.flatnonzero((links.tier == Tier.ACCESS) & (devices.kind[links.src] == DeviceKind.NIC) & mine)
    if not len(rows):
        return "NIC"
    hosts = fabric_reach(fabric).hosts
    left_Bps = hosts.even_Bps[hosts.of_host[devices.host[links.src[rows]]]]
    rows = rows[left_Bps <= left_Bps.min() * (1 + 1e-9)]
    up, down = rows[links.up[rows]], rows[~links.up[rows]]
    if len(down) and (not len(up) or np.ptp(links.rate_Bps[up]) == 0):
        return f"{fabric.link_name(int(down[0]))} (failed)"
    return fabric.link_name(int(up[np.argmin(links.rate_Bps[up])]))


def _gpu_link(fabric: Fabric, tier: Tier) -> str:
    rows = np.flatnonzero((fabric.links.tier == tier) & (fabric.devices.kind[fabric.links.src] == DeviceKind.GPU))
    return fabric.link_name(int(rows[0])) if len(rows) else "NVLink"


def _inside_Bps(fabric: Fabric, tier: Tier) -> float:
    """Return what the first GPU can send over all its links of a tier."""
    links = fabric.links
    mine = (links.tier == tier) & (links.src == fabric.gpus[0])
    return float(links.rate_Bps[mine].sum())
