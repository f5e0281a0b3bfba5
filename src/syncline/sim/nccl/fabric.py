"""NCCL on the fabric that was built: failed and slow ports, thin racks and pods, lines between sites, and floors.

A description says what hosts have; the fabric says what is left of it (`sim/reach.py`). Rings are striped over the NICs
of a host, so the slowest NIC that is up paces all of them, and a NIC that is down leaves its share to the others: a
slow one may be worse than none (`sim/slow_port.py`), and the answer then says so.

Where every NIC of a host has a leaf of its own (rails), rings stay on theirs. An all-to-all stays there too where NCCL
may pass a message to the local GPU of the other rail first (PXN: release 2.12 on, NVLink, not NCCL_PXN_DISABLE=1);
otherwise all but one rail's part of it crosses the spines.

Ranks on some GPUs of their hosts have the NICs of those GPUs and no others, and of a leaf that serves one rail what
it has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.errors import DescriptionError, SimulationError
from syncline.fabric.bill import group_of_host
from syncline.fabric.fabric import NETWORK_TIERS, DeviceKind, Fabric, Tier
from syncline.fabric.route import Routes
from syncline.schedule.collective import Kind as Collective
from syncline.sim.bound import Bound, SiteLines, bound_of
from syncline.sim.double_tree import lines_to_root
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.reach import Cells, FabricReach, fabric_reach
from syncline.sim.slow_port import slow_cables, slow_ports

Longs = NDArray[np.int64]
_KINDS = {
    "all_reduce": Collective.ALL_REDUCE, "all_gather": Collective.ALL_GATHER, "broadcast": Collective.BROADCAST,
    "reduce_scatter": Collective.REDUCE_SCATTER, "all_to_all": Collective.ALL_TO_ALL, "reduce": Collective.REDUCE,
    "send_recv": Collective.SEND_RECV,
}  # fmt: skip


@dataclass(frozen=True)
class UsedParts:
    """The hosts, GPUs and NICs of a fabric that a job uses; NICs are None where it has its hosts to itself."""

    hosts: Longs
    gpus: Longs
    nics: Longs | None

    @classmethod
    def of(cls, fabric: Fabric, gpus: NDArray[np.integer[Any]]) -> UsedParts:
        """Return what ranks on these GPUs use."""
        mine = np.sort(gpus).astype(np.int64)
        hosts = np.unique(fabric.devices.host[mine]).astype(np.int64)
        if len(mine) == int(np.isin(fabric.gpu_host, hosts).sum()):
            return cls(hosts, mine, None)
        own = Routes(fabric).inside.own_nics[0][mine]
        return cls(hosts, mine, np.unique(own[own >= 0]))


def on_fabric(system: NcclSystem, fabric: Fabric, gpus: NDArray[np.integer[Any]]) -> NcclSystem:
    """Return a described system with what the built fabric leaves these GPUs of ports, uplinks and NVLink."""
    reach = fabric_reach(fabric)
    used = UsedParts.of(fabric, gpus)
    assumed = list(system.assumed)
    found = replace(system, bounds=_bounds(fabric, system, used))
    if system.num_islands > 1 and reach.hosts.num > 1:
        if used.nics is None:
            found = _ports(found, reach, used.hosts, assumed)
        else:
            reach.even_hosts_Bps(used.hosts)  # raises where failed links part them
            found = _own_ports(found, fabric, used.gpus, used.nics, assumed)
        found = _across_rails(_thin_levels(found, reach, used), fabric, used, assumed)
        cables = slow_cables(fabric, used.hosts)
        assumed += [cables.words()] if cables is not None else []
    return replace(_nvlink(found, fabric, used, assumed), assumed=tuple(assumed))


def _own_ports(system: NcclSystem, fabric: Fabric, gpus: Longs, nics: Longs, assumed: list[str]) -> NcclSystem:
    """Return the system with the NICs of the GPUs in use, as fast as the GPU that gets least of them finds them."""
    links, devices = fabric.links, fabric.devices
    out = links.up & np.isin(links.tier, [int(tier) for tier in NETWORK_TIERS])
    nic_Bps = np.bincount(links.src[out], weights=links.rate_Bps[out], minlength=len(devices))
    mine = [np.unique(row[row >= 0]) for row in Routes(fabric).inside.own_nics[0][gpus]]
    sharers = np.bincount(np.concatenate(mine), minlength=len(devices))
    gpu_Bps = np.array([(nic_Bps[own] / sharers[own]).sum() for own in mine])
    worst = int(np.argmin(gpu_Bps))
    name = fabric.host_names[int(devices.host[gpus[worst]])]
    if gpu_Bps[worst] <= 0:
        raise SimulationError(f"{name} has no network port that works.", hint="Repair it, or leave the host out.")
    per_host = np.unique(devices.host[nics], return_counts=True)[1]
    # Of hosts with different numbers of ranks the emptiest counts; several NICs of a GPU are one to NCCL.
    count = min(system.num_nics, int(per_host.min() if system.ranks else per_host.max()))
    share = min(1.0, float(gpu_Bps[worst]) * system.gpus_per_host / (count * system.nic_rate_Bps))
    if share < 1 - 1e-9:
        assumed.append(f"the slowest GPU of {name} has {share:.0%} of an even share of the NICs and paces all rings")
    port_Bps = _slowest_port_Bps(system, fabric, np.isin(links.src, nics))
    return replace(system, num_nics=count, nic_rate_Bps=system.nic_rate_Bps * share, port_Bps=port_Bps)


def _ports(system: NcclSystem, reach: FabricReach, hosts: Longs, assumed: list[str]) -> NcclSystem:
    cells = np.unique(reach.hosts.of_host[hosts])
    nominal = system.num_nics * system.nic_rate_Bps / system.gpus_per_host
    share = min(1.0, reach.even_hosts_Bps(hosts) / float(reach.hosts.gpus[cells].max()) / nominal)
    if share >= 1 - 1e-9:
        return system
    worst = int(cells[np.argmin(reach.hosts.even_Bps[cells])])
    name = reach.fabric.host_names[int(np.flatnonzero(reach.hosts.of_host == worst)[0])]
    assumed.append(f"the slowest ring of {name} has {share:.0%} of a port (failed or slow) and paces all rings")
    slow = slow_ports(reach.fabric, hosts)
    if slow is not None:
        assumed.append(slow.words())
    mine = np.isin(reach.fabric.devices.host[reach.fabric.links.src], hosts)
    port_Bps = _slowest_port_Bps(system, reach.fabric, mine)
    return replace(system, nic_rate_Bps=system.nic_rate_Bps * share, port_Bps=port_Bps)


def _slowest_port_Bps(system: NcclSystem, fabric: Fabric, mine: NDArray[np.bool_]) -> float:
    """Return the line rate of the slowest NIC that works, of those whose links are `mine`; ports of one NIC are one."""
    links = fabric.links
    ports = (links.tier == Tier.ACCESS) & (fabric.devices.kind[links.src] == DeviceKind.NIC)
    each_Bps = links.rate_Bps / np.maximum(links.num_cables, 1)
    slowest = float(each_Bps[ports & mine & links.up].min(initial=np.inf))
    return system.nic_rate_Bps * min(1.0, slowest / float(each_Bps[ports].max(initial=slowest)))


def _thin_levels(system: NcclSystem, reach: FabricReach, used: UsedParts) -> NcclSystem:
    """Return the system with what racks, pods and sites that it spans let through."""
    hosts, rails = used.hosts, _rails_share(reach.fabric, used)
    ring, pairs, limit, long_us, far_us, tree_lines = np.inf, np.inf, "", 0.0, 0.0, 0
    lines, n = SiteLines.of(reach.fabric, reach.fabric.devices.host[used.gpus].astype(np.int64)), len(used.gpus)
    own = system.num_nics * system.hosts_per_island * system.nic_rate_Bps
    islands = system.num_islands
    for cells in reach.outer:
        inside = np.bincount(cells.of_host[hosts], minlength=cells.num) / system.hosts_per_island
        mine = np.flatnonzero(inside > 0)
        if len(mine) < 2:
            continue
        share = rails if cells.name == "rack" else 1.0  # spines and borders serve all rails
        out = share * float(reach.ring_Bps(cells, hosts)[mine].min())
        away = 1 - (inside[mine] - 1) / max(islands - 1, 1)
        each = share * float((reach.pairs_Bps(cells, hosts)[mine] / np.maximum(inside[mine] * away, 1e-9)).min())
        if cells.name == "site":
            far_us = lines.farthest_s(Collective.ALL_TO_ALL) * 1e6
            if (line_s := lines.direct_s_per_byte(n)) > 0:
                each = min(each, system.ranks_per_island * (1 - system.ranks_per_island / n) / line_s)
        if min(out, each) < min(ring, pairs, own):
            limit = _words(cells)
        ring, pairs, long_us = min(ring, out), min(pairs, each), max(long_us, cells.latency_s * 1e6)
        if cells.latency_s:
            tree_lines = lines_to_root(cells.of_host[hosts[:: system.hosts_per_island]].tolist())
    return replace(
        system, ring_cap_Bps=ring if ring < own else np.inf, pairs_cap_Bps=pairs if pairs < own else np.inf,
        limit=limit, long_us=long_us, far_us=far_us, tree_lines=tree_lines,
    )  # fmt: skip


def _rails_share(fabric: Fabric, used: UsedParts) -> float:
    """Return the share of the leaves that the NICs in use are on, where every leaf serves one rail."""
    leaf, nics = _leaves(fabric, replace(used, nics=None))
    if used.nics is None or _mixed(fabric, leaf, nics):
        return 1.0
    rail = fabric.devices.rail
    return len(np.unique(rail[used.nics])) / max(1, len(np.unique(rail[nics])))


def _across_rails(system: NcclSystem, fabric: Fabric, used: UsedParts, assumed: list[str]) -> NcclSystem:
    """Return the system with what an all-to-all gets where its messages have to change rails over the spines."""
    leaf, nics = _leaves(fabric, used)
    rails = np.bincount(fabric.devices.host[nics], minlength=fabric.num_hosts)[used.hosts].max(initial=0)
    if rails < 2 or len(np.unique(fabric.devices.rail[nics])) < 2 or _mixed(fabric, leaf, nics):
        return system
    if system.passes_rails:
        return system
    links, devices = fabric.links, fabric.devices
    up = (
        links.up
        & (devices.kind[links.src] == DeviceKind.SWITCH)
        & (devices.level[links.dst] > devices.level[links.src])
    )
    uplink_Bps = np.bincount(links.src[up], weights=links.rate_Bps[up], minlength=len(devices))
    ports = np.bincount(leaf, minlength=len(devices))
    each_Bps = float((uplink_Bps[leaf] / ports[leaf]).min()) * rails / (rails - 1)
    if each_Bps <= 0:
        raise DescriptionError(
            f"{fabric.name} joins no two rails, and NCCL may not pass messages from one to the other here.",
            hint="Leave NCCL_PXN_DISABLE out, or use release 2.12 or later.",
        )
    assumed.append("messages between rails cross the spines: PXN is off")
    cap = each_Bps * rails * system.hosts_per_island
    own = system.num_nics * system.hosts_per_island * system.nic_rate_Bps
    if cap >= min(own, system.pairs_cap_Bps):
        return system
    return replace(system, pairs_cap_Bps=cap, limit="uplinks of a rail")


def _leaves(fabric: Fabric, used: UsedParts) -> tuple[Longs, Longs]:
    """Return the leaf and the NIC of every port in use that works."""
    links, devices = fabric.links, fabric.devices
    access = links.up & (links.tier == Tier.ACCESS) & (devices.kind[links.src] == DeviceKind.NIC)
    mine = np.isin(devices.host[links.src], used.hosts) if used.nics is None else np.isin(links.src, used.nics)
    rows = np.flatnonzero(access & (devices.kind[links.dst] == DeviceKind.SWITCH) & mine)
    return links.dst[rows].astype(np.int64), links.src[rows].astype(np.int64)


def _mixed(fabric: Fabric, leaf: Longs, nics: Longs) -> bool:
    """Whether some leaf has ports of two rails."""
    pairs = np.unique(leaf * (1 << 16) + fabric.devices.rail[nics])
    return len(pairs) > len(np.unique(leaf))


def _words(cells: Cells) -> str:
    return {"site": "lines between sites", "group": "links between groups", "switch": "links between switches"}.get(
        cells.name, f"uplinks of a {cells.name}"
    )


def _nvlink(system: NcclSystem, fabric: Fabric, used: UsedParts, assumed: list[str]) -> NcclSystem:
    """Return the system with the scale-up rate of its slowest GPU, where some links are down or slow."""
    links = fabric.links
    mine = (links.tier == Tier.SCALE_UP) & (fabric.devices.kind[links.src] == DeviceKind.GPU)
    rate = np.where(links.up, links.rate_Bps, 0.0)
    per_gpu = np.bincount(links.src[mine], weights=rate[mine], minlength=len(fabric.devices))[fabric.gpus]
    group = group_of_host(fabric)[fabric.gpu_host]
    whole = np.zeros(group.max(initial=0) + 1)
    np.maximum.at(whole, group, per_gpu)  # GPUs of other hosts may have more, and none of theirs is missing here
    chosen = np.isin(fabric.gpus, used.gpus) & (whole[group] > 0)
    share = float((per_gpu[chosen] / whole[group[chosen]]).min(initial=1.0))
    if share >= 1 - 1e-9 or system.nvlink_GBps == 0:
        return system
    assumed.append(f"the slowest GPU has {share:.0%} of its NVLinks and paces all rings")
    return replace(system, nvlink_Bps=system.nvlink_GBps * 1e9 * max(share, 1e-6))


def _bounds(fabric: Fabric, system: NcclSystem, used: UsedParts) -> dict[str, Bound]:
    """Return what no run of NCCL can beat, by operation: it sends an all-to-all straight, and a receive to the next."""
    found = {
        op: bound_of(fabric, kind, used.gpus, in_network=system.collnet, direct=True, to_next=True)
        for op, kind in _KINDS.items()
    }
    return {op: bound for op, bound in found.items() if np.isfinite(bound.s_per_byte)}
