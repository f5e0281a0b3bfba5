"""From a description to a Fabric: hosts, scale-up domains, network, sites, faults, and the checks on the whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from syncline.describe.hostlist import MAX_HOSTS
from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog, HostModel
from syncline.fabric.check import check_connected, check_ports
from syncline.fabric.draft import Draft, HostBlock
from syncline.fabric.fabric import Fabric, IntArray
from syncline.fabric.faults import apply_faults
from syncline.fabric.host import host_template, port_Bps
from syncline.fabric.nvlink_domain import join_domains
from syncline.fabric.order import in_order
from syncline.fabric.spec import ClusterSpec, HostGroup, Site
from syncline.fabric.topology.network import NetworkSpec, Ports, numbered
from syncline.fabric.topology.sites import join_sites


def build(spec: ClusterSpec) -> Fabric:
    """Build the described cluster, or raise a FabricError that says why it cannot be."""
    catalog = spec.catalog
    spec = in_order(spec, partial(_host_names, catalog, spec.network))
    draft = Draft(catalog)
    if spec.sites:
        _build_sites(draft, spec)
    else:
        _build_site(draft, spec.hosts, spec.network, "", 0)
    fabric = Fabric(**vars(draft.freeze(spec.name)), spec=spec)
    check_ports(fabric, draft.switch_parts, catalog)
    check_connected(fabric)
    return apply_faults(fabric, spec.faults)


def _build_sites(draft: Draft, spec: ClusterSpec) -> None:
    assert spec.wan is not None
    tops, room = [], 0
    for number, site in enumerate(spec.sites):
        tops.append(_build_named_site(draft, site, number))
        room += int(draft.facts.pop("max_endpoints", 0))
    if room:
        draft.facts["max_endpoints"] = room
    join_sites(draft, spec.wan, [site.name for site in spec.sites], tops)


def _build_named_site(draft: Draft, site: Site, number: int) -> IntArray:
    first = len(draft.switch_names)
    first_id = draft.num_devices
    _build_site(draft, site.hosts, site.network, f"{site.name}-", number)
    draft.switch_names[first:] = [f"{site.name}/{name}" for name in draft.switch_names[first:]]
    return draft.top_switches(first_id)


def _build_site(draft: Draft, groups: Sequence[HostGroup], network: NetworkSpec | None, prefix: str, site: int) -> None:
    blocks = []
    for group in groups:
        model = group.host.resolve(draft.catalog)
        names = _numbered(draft.catalog, group, network, prefix, len(draft.host_names))
        if taken := set(draft.host_names).intersection(names):
            raise FabricError(f'two hosts are called "{min(taken)}".', hint="Give one another name.")
        blocks.append(draft.add_hosts(host_template(model, draft.catalog), names, site))
    if network is not None:
        network.build(draft, _ports(draft, blocks, network))
    elif sum(block.num_hosts for block in blocks) > 1 and not blocks[0].template.model.scale_up_domain_gpus:
        raise FabricError("several hosts need a network.", hint="Add `network: fat-tree NDR`, say.")
    for block in blocks:
        join_domains(draft, block)


def _host_names(
    catalog: Catalog, network: NetworkSpec | None, group: HostGroup, site: Site | None, start: int
) -> Sequence[str]:
    """Return the names of a group's hosts, of which so many come before them in the file."""
    if site is None:
        return _numbered(catalog, group, network, "", start)
    return _numbered(catalog, group, site.network, f"{site.name}-", start)


def _numbered(
    catalog: Catalog, group: HostGroup, network: NetworkSpec | None, prefix: str, start: int
) -> Sequence[str]:
    if group.names:
        return group.names
    model = group.host.resolve(catalog)
    count = _max_hosts(catalog, model, network) if group.count == "max" else group.count
    assert count is not None
    return numbered(f"{prefix}host", count, start)


def _max_hosts(catalog: Catalog, model: HostModel, network: NetworkSpec | None) -> int:
    largest = network.max_endpoints(catalog, max(1, model.num_ports)) if network else None
    if largest is None:
        raise FabricError("`hosts: max` needs a network whose size has a bound.", hint="Say how many hosts.")
    count = largest // max(1, model.num_ports)
    if not 1 <= count <= MAX_HOSTS:
        raise FabricError(f"the largest such fabric would have {count:,} hosts; 1 to {MAX_HOSTS:,} can be built.")
    return count


def _ports(draft: Draft, blocks: list[HostBlock], network: NetworkSpec) -> Ports:
    """Lay all hosts' NIC ports out as one table: a row per host, a column per port."""
    models = [block.template.model for block in blocks]
    by_name = network.topology == "explicit"  # its cables name NICs, so hosts need not be alike
    num_nics, per_nic = (0, 1) if by_name else _nics_of_all(models, network)
    table = np.concatenate([np.repeat(block.nics[:, :num_nics], per_nic, axis=1) for block in blocks])
    counts = [block.num_hosts for block in blocks]
    rate_Bps = np.repeat([port_Bps(draft.catalog, model) for model in models], counts)
    return Ports(
        blocks=tuple(blocks),
        table=table,
        rail=np.repeat(np.arange(num_nics, dtype=np.int32), per_nic),
        plane=np.tile(np.arange(per_nic, dtype=np.int32), num_nics),
        rate_Bps=np.broadcast_to(rate_Bps[:, None], table.shape),
        bonded=np.repeat([model.bond for model in models], counts),
    )


def _nics_of_all(models: list[HostModel], network: NetworkSpec) -> tuple[int, int]:
    """Return how many NICs and ports per NIC every host has; raise if hosts differ or have none."""
    shapes = sorted({(model.num_nics, model.ports_per_nic) for model in models})
    if len(shapes) != 1:
        texts = [f"{nics} NICs" + (f" of {ports} ports" if ports > 1 else "") for nics, ports in shapes]
        raise FabricError(
            f"hosts with {' and hosts with '.join(texts)} cannot share a {network.topology} network.",
            hint="Give them equally many NICs and ports, or describe the cables by name (topology: explicit).",
        )
    if shapes[0][0] == 0 and network.topology != "torus":  # chips of a torus have links of their own
        raise FabricError(
            f"hosts of {models[0].name} have no NIC to join a {network.topology} network with.",
            hint="Add `nics: 8` and `nic: ConnectX-7` to the host.",
        )
    return shapes[0]
