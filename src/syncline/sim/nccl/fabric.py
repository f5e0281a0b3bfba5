"""NCCL on the fabric that was built: failed and slow ports, thin racks and pods, lines between sites, and floors.

A description says what hosts have; the fabric says what is left of it (`sim/reach.py`). Rings are striped over the NICs
of a host, so the slowest NIC that is up paces all of them, and a NIC that is down leaves its share to the others: a
slow one may be worse than none (`sim/slow_port.py`), and the answer then says so.

Where every NIC of a host has a leaf of its own (rails), rings stay on theirs. An all-to-all stays there too where NCCL
may pass a message to the local GPU of the other rail first (PXN: release 2.12 on, NVLink, not NCCL_PXN_DISABLE=1);
otherwise all but one rail's part of it crosses the spines.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from syncline.errors import DescriptionError
from syncline.fabric.fabric import DeviceKind, Fabric, Tier
from syncline.schedule.collective import Kind as Collective
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.reach import Cells, FabricReach, fabric_reach
from syncline.sim.slow_port import slow_cables, slower_than_none

Longs = NDArray[np.int64]
_KINDS = {
    "all_reduce": Collective.ALL_REDUCE, "all_gather": Collective.ALL_GATHER, "broadcast": Collective.BROADCAST,
    "reduce_scatter": Collective.REDUCE_SCATTER, "all_to_all": Collective.ALL_TO_ALL, "reduce": Collective.REDUCE,
}  # fmt: skip


def on_fabric(system: NcclSystem, fabric: Fabric) -> NcclSystem:
    """Return a described system with what the built fabric leaves its first hosts of ports, uplinks and NVLink."""
    reach = fabric_reach(fabric)
    hosts = np.arange(min(system.num_hosts, fabric.num_hosts), dtype=np.int64)
    assumed = list(system.assumed)
    found = replace(system, floor_us_per_byte=_floors(reach, system, hosts))
    if system.num_islands > 1 and reach.hosts.num > 1:
        found = _across_rails(_thin_levels(_ports(found, reach, hosts, assumed), reach, hosts), fabric, hosts, assumed)
        cables = slow_cables(fabric, hosts)
        assumed += [cables.words()] if cables is not None else []
    return replace(_nvlink(found, fabric, hosts, assumed), assumed=tuple(assumed))


def _ports(system: NcclSystem, reach: FabricReach, hosts: Longs, assumed: list[str]) -> NcclSystem:
    cells = np.unique(reach.hosts.of_host[hosts])
    nominal = system.num_nics * system.nic_rate_Bps / system.gpus_per_host
    share = min(1.0, reach.even_hosts_Bps(hosts) / float(reach.hosts.gpus[cells].max()) / nominal)
    if share >= 1 - 1e-9:
        return system
    worst = int(cells[np.argmin(reach.hosts.even_Bps[cells])])
    name = reach.fabric.host_names[int(np.flatnonzero(reach.hosts.of_host == worst)[0])]
    assumed.append(f"the slowest ring of {name} has {share:.0%} of a port (failed or slow) and paces all rings")
    slow = slower_than_none(reach.fabric, hosts)
    if slow is not None:
        assumed.append(slow.words())
    return replace(system, nic_rate_Bps=system.nic_rate_Bps * share, port_share=share)


def _thin_levels(system: NcclSystem, reach: FabricReach, hosts: Longs) -> NcclSystem:
    """Return the system with what racks, pods and sites that it spans let through."""
    ring, pairs, limit, long_us = np.inf, np.inf, "", 0.0
    own = system.num_nics * system.hosts_per_island * system.nic_rate_Bps
    islands = system.num_islands
    for cells in reach.outer:
        inside = np.bincount(cells.of_host[hosts], minlength=cells.num) / system.hosts_per_island
        used = np.flatnonzero(inside > 0)
        if len(used) < 2:
            continue
        out = float(reach.ring_Bps(cells, hosts)[used].min())
        away = 1 - (inside[used] - 1) / max(islands - 1, 1)
        each = float((reach.pairs_Bps(cells, hosts)[used] / np.maximum(inside[used] * away, 1e-9)).min())
        if min(out, each) < min(ring, pairs, own):
            limit = _words(cells)
        ring, pairs, long_us = min(ring, out), min(pairs, each), max(long_us, cells.latency_s * 1e6)
    return replace(
        system, ring_cap_Bps=ring if ring < own else np.inf, pairs_cap_Bps=pairs if pairs < own else np.inf,
        limit=limit, long_us=long_us,
    )  # fmt: skip


def _across_rails(system: NcclSystem, fabric: Fabric, hosts: Longs, assumed: list[str]) -> NcclSystem:
    """Return the system with what an all-to-all gets where its messages have to change rails over the spines."""
    leaf, nics = _leaves(fabric, hosts)
    rails = np.bincount(fabric.devices.host[nics], minlength=fabric.num_hosts)[hosts].max(initial=0)
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


def _leaves(fabric: Fabric, hosts: Longs) -> tuple[Longs, Longs]:
    """Return the leaf and the NIC of every port of these hosts that works."""
    links, devices = fabric.links, fabric.devices
    access = links.up & (links.tier == Tier.ACCESS) & (devices.kind[links.src] == DeviceKind.NIC)
    rows = np.flatnonzero(
        access & (devices.kind[links.dst] == DeviceKind.SWITCH) & np.isin(devices.host[links.src], hosts)
    )
    return links.dst[rows].astype(np.int64), links.src[rows].astype(np.int64)


def _mixed(fabric: Fabric, leaf: Longs, nics: Longs) -> bool:
    """Whether some leaf has ports of two rails."""
    pairs = np.unique(leaf * (1 << 16) + fabric.devices.rail[nics])
    return len(pairs) > len(np.unique(leaf))


def _words(cells: Cells) -> str:
    return {"site": "lines between sites", "group": "links between groups", "switch": "links between switches"}.get(
        cells.name, f"uplinks of a {cells.name}"
    )


def _nvlink(system: NcclSystem, fabric: Fabric, hosts: Longs, assumed: list[str]) -> NcclSystem:
    """Return the system with the scale-up rate of its slowest GPU, where some links are down or slow."""
    links = fabric.links
    mine = (links.tier == Tier.SCALE_UP) & (fabric.devices.kind[links.src] == DeviceKind.GPU)
    rate = np.where(links.up, links.rate_Bps, 0.0)
    per_gpu = np.bincount(links.src[mine], weights=rate[mine], minlength=len(fabric.devices))[fabric.gpus]
    used = per_gpu[np.isin(fabric.gpu_host, hosts)]
    share = float(used.min() / per_gpu.max()) if len(used) and per_gpu.max() > 0 else 1.0
    if share >= 1 - 1e-9 or system.nvlink_GBps == 0:
        return system
    assumed.append(f"the slowest GPU has {share:.0%} of its NVLinks and paces all rings")
    return replace(system, nvlink_Bps=system.nvlink_GBps * 1e9 * max(share, 1e-6))


def _floors(reach: FabricReach, system: NcclSystem, hosts: Longs) -> dict[str, float]:
    """Return for each operation the us that a byte takes at least, whatever the algorithm."""
    chosen = np.isin(reach.fabric.gpu_host, hosts)
    devices = reach.fabric.gpus[chosen]
    if system.num_hosts == 1:
        devices = devices[: system.gpus_per_host]
    whole = {op: reach.bound_s(kind, devices, 1.0, in_network=system.collnet) for op, kind in _KINDS.items()}
    return {op: 1e6 * bound for op, bound in whole.items() if np.isfinite(bound)}
