"""What a host should be, from the cluster description where there is one.

expect = from_cluster("cluster.yaml", host="h3")     # number of GPUs and NICs, link rate, MTU
Expect()                                             # no description: the catalogue and the host's own majority decide
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TypeVar

from syncline.errors import CatalogError, DescriptionError
from syncline.fabric.catalog import Gpu, LinkType, Nic, load_catalog
from syncline.fabric.formats.nccl_host import pci_ids
from syncline.fabric.load import parse_cluster, read_cluster
from syncline.fabric.spec import ClusterSpec, HostGroup

P = TypeVar("P", Nic, Gpu)


@dataclass(frozen=True)
class Expect:
    """Expected figures; None where unknown."""

    num_gpus: int | None = None
    num_nics: int | None = None
    ports_per_nic: int = 1
    rate_Bps: float | None = None
    """Per port and direction."""
    mtu_bytes: int | None = None
    link: str = ""
    is_rdma: bool | None = None
    rails: bool | None = None
    source: str = ""

    def by(self, otherwise: str) -> str:
        """Say where an expectation comes from."""
        return self.source or otherwise


def scaled(expect: Expect, factor: float) -> Expect:
    """Return the expectation in a lab: links at a part of their rate, and no GPUs."""
    rate = None if expect.rate_Bps is None else expect.rate_Bps * factor
    source = f"{expect.source} at {factor:g} of its rates" if expect.source and factor != 1 else expect.source
    return replace(expect, rate_Bps=rate, num_gpus=None, is_rdma=False, source=source)


def from_cluster(name: str | os.PathLike[str], host: str) -> Expect:
    """Return what a cluster description expects of the host of that name."""
    spec = parse_cluster(read_cluster(name))
    catalog = load_catalog().with_parts(spec.parts)
    group, networks = _group(spec, host, os.fspath(name))
    model = group.host.resolve(catalog)
    names = {model.link, *(getattr(network, "link", None) for network in networks)} - {None, ""}
    links = [catalog.link(str(link)) for link in names] if model.num_nics else []
    slowest = min(links, key=lambda link: link.rate_Bps, default=None)
    return Expect(
        num_gpus=model.num_gpus,
        num_nics=model.num_nics,
        ports_per_nic=model.ports_per_nic,
        rate_Bps=slowest.rate_Bps if slowest else None,
        mtu_bytes=min(link.mtu_bytes for link in links) if links else None,
        link=slowest.name if slowest else "",
        is_rdma=slowest.rdma if slowest else None,
        rails=any(getattr(network, "topology", "").startswith("rail") for network in networks),
        source=f"cluster {os.path.basename(os.fspath(name))}",
    )


def nic_part(pci_id: str) -> Nic | None:
    """Return the catalogue's network card of a PCI id, or None."""
    return _part("nic", pci_id, Nic)


def gpu_part(pci_id: str) -> Gpu | None:
    """Return the catalogue's GPU of a PCI id, or None."""
    return _part("gpu", pci_id, Gpu)


def link_at(rate_Bps: float, is_infiniband: bool) -> LinkType | None:
    """Return the catalogue's link type of that family and rate, or None."""
    family = "infiniband" if is_infiniband else "ethernet"
    links = [link for link in load_catalog().parts("link") if isinstance(link, LinkType) and link.family == family]
    return next((link for link in links if abs(link.rate_Bps - rate_Bps) < 0.01 * rate_Bps), None)


def _part(kind: str, pci_id: str, cls: type[P]) -> P | None:
    name = pci_ids()[kind].get(pci_id.lower())
    if name is None:
        return None
    try:
        part = getattr(load_catalog(), kind)(name)
    except CatalogError:
        return None
    return part if isinstance(part, cls) else None


def _group(spec: ClusterSpec, host: str, source: str) -> tuple[HostGroup, tuple[object, ...]]:
    """Return the group of hosts that one belongs to, and the networks it may be on."""
    groups = [(group, (spec.network,)) for group in spec.hosts]
    groups += [(group, (site.network,)) for site in spec.sites for group in site.hosts]
    short = host.split(".", 1)[0]
    for group, networks in groups:
        if host in group.names or short in group.names:
            return group, networks
    if len({group.host for group, _ in groups}) == 1:
        return groups[0]
    raise DescriptionError(
        f'"{host}" is not among its hosts, and there are several kinds of host.',
        where=source,
        hint="Give the groups `names:`, or say which host this is with --host NAME.",
    )
