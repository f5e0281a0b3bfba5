"""From a description to a Fabric: hosts, scale-up domains, network, sites, faults, and the checks on the whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog, HostModel, load_catalog
from syncline.fabric.check import check_connected, check_ports
from syncline.fabric.draft import Draft, HostBlock
from syncline.fabric.fabric import Fabric, IntArray
from syncline.fabric.faults import apply_faults
from syncline.fabric.host import host_template
from syncline.fabric.network import Network, Ports, numbered
from syncline.fabric.nvlink_domain import join_domains
from syncline.fabric.sites import join_sites
from syncline.fabric.spec import MAX_HOSTS, ClusterSpec, HostGroup, Site


def build(spec: ClusterSpec) -> Fabric:
    """Build the described cluster, or raise a FabricError that says why it cannot be."""
    catalog = load_catalog().with_parts(spec.parts) if spec.parts else load_catalog()
    draft = Draft(catalog)
    if spec.sites:
        _build_sites(draft, spec)
    else:
        _build_site(draft, spec.hosts, spec.network, "", 0)
    fabric = draft.freeze(spec.name, spec)
    check_ports(fabric, draft.switch_parts, catalog)
    check_connected(fabric)
    return apply_faults(fabric, spec.faults)


def _build_sites(draft: Draft, spec: ClusterSpec) -> None:
    assert spec.wan is not None
    tops = [_build_named_site(draft, site, number) for number, site in enumerate(spec.sites)]
    join_sites(draft, spec.wan, [site.name for site in spec.sites], tops)


def _build_named_site(draft: Draft, site: Site, number: int) -> IntArray:
    first = len(draft.switch_names)
    first_id = draft.num_devices
    _build_site(draft, site.hosts, site.network, f"{site.name}-", number)
    draft.switch_names[first:] = [f"{site.name}/{name}" for name in draft.switch_names[first:]]
    return draft.top_switches(first_id)


def _build_site(draft: Draft, groups: Sequence[HostGroup], network: Network | None, prefix: str, site: int) -> None:
    blocks = []
    for group in groups:
        model = group.host.resolve(draft.catalog)
        names = _names(draft, group, model, network, prefix)
        block = draft.add_hosts(host_template(model, draft.catalog), names, site)
        blocks.append(block)
    if network is None:
        if sum(block.num_hosts for block in blocks) > 1 and not blocks[0].template.model.scale_up_domain_gpus:
            raise FabricError("several hosts need a network.", hint="Add `network: fat-tree NDR`, say.")
        for block in blocks:
            join_domains(draft, block)
        return
    network.build(draft, _ports(draft, blocks, network))
    for block in blocks:
        join_domains(draft, block)


def _names(draft: Draft, group: HostGroup, model: HostModel, network: Network | None, prefix: str) -> Sequence[str]:
    if group.names:
        taken = set(draft.host_names) & set(group.names)
        if taken:
            raise FabricError(f'two hosts are called "{min(taken)}".', hint="Give one another name.")
        return group.names
    count = group.count
    if count == "max":
        count = _max_hosts(draft.catalog, model, network)
    assert isinstance(count, int)
    return numbered(f"{prefix}host", count, len(draft.host_names))


def _max_hosts(catalog: Catalog, model: HostModel, network: Network | None) -> int:
    largest = network.max_endpoints(catalog, max(1, model.num_ports)) if network else None
    if largest is None:
        raise FabricError("`hosts: max` needs a network whose size has a bound.", hint="Say how many hosts.")
    count = largest // max(1, model.num_ports)
    if not 1 <= count <= MAX_HOSTS:
        raise FabricError(f"the largest such fabric would have {count:,} hosts; 1 to {MAX_HOSTS:,} can be built.")
    return count


def _ports(draft: Draft, blocks: list[HostBlock], network: Network) -> Ports:
    """Lay all hosts' NIC ports out as one table; a bond makes the ports of a NIC one port of their summed rate."""
    widths = {block.template.model.num_nics for block in blocks}
    models = [block.template.model for block in blocks]
    ports_per_nic = {1 if m.bond else m.ports_per_nic for m in models}
    if len(widths) != 1 or len(ports_per_nic) != 1 or len({m.ports_per_nic for m in models if m.bond}) > 1:
        raise FabricError(
            f"hosts with different numbers of NICs ({', '.join(map(str, sorted(widths)))}) share one network.",
            hint="Give them equally many NICs, or describe the cables by name (topology: explicit).",
        )
    (per_nic,) = ports_per_nic
    num_nics = widths.pop()
    if num_nics == 0 and network.topology not in ("torus", "explicit"):
        raise FabricError(
            f"hosts of {models[0].name} have no NIC to join a {network.topology} network with.",
            hint="Add `nics: 8` and `nic: ConnectX-7` to the host.",
        )
    nics = np.concatenate([block.nics for block in blocks])
    table = np.repeat(nics, per_nic, axis=1)
    rail = np.repeat(np.arange(num_nics, dtype=np.int32), per_nic)
    plane = np.tile(np.arange(per_nic, dtype=np.int32), num_nics)
    rate = np.concatenate(
        [np.full((block.num_hosts, table.shape[1]), _port_Bps(draft.catalog, block)) for block in blocks]
    )
    return Ports(tuple(blocks), table, rail, plane, rate, bonded=models[0].ports_per_nic if models[0].bond else 1)


def _port_Bps(catalog: Catalog, block: HostBlock) -> float:
    """Return what one port of the block's NICs can do; a bond's port is all ports of its NIC."""
    model = block.template.model
    if model.link is None:
        return 0.0
    return catalog.link(model.link).rate_Bps * (model.ports_per_nic if model.bond else 1)
