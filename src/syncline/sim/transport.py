"""Transports: what sending costs the host, per message and per byte. The numbers are data, with their source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from syncline.describe.own_data import own_data
from syncline.errors import SimulationError
from syncline.fabric.catalog import LinkType, load_catalog
from syncline.fabric.fabric import Fabric

AUTO = "auto"
"""What the links of the hosts carry."""


@dataclass(frozen=True)
class Transport:
    """One transport. `host_Bps` is what the host can move for one NIC; infinite when the NIC does it all."""

    name: str
    message_s: float
    efficiency: float
    host_Bps: float
    gpudirect: bool
    source: str
    post_s: float = 0.0  # a sender's own time for each message of a round, one after the other (LogGP's o)


@cache
def transports() -> dict[str, Transport]:
    """Return all transports by name."""
    table = own_data("sim", "data/transports.yaml")
    return {
        name: Transport(
            name,
            float(row["message_us"]) * 1e-6,
            float(row["efficiency"]),
            float(row.get("host_GBps", "inf")) * 1e9,
            bool(row["gpudirect"]),
            str(row["source"]),
            float(row.get("post_us", 0.0)) * 1e-6,
        )
        for name, row in table.items()
    }


def transport(name: str) -> Transport:
    """Return the transport of that name."""
    table = transports()
    if name not in table:
        raise SimulationError(f'no transport is called "{name}".', hint=f"One of: {', '.join(table)}.")
    return table[name]


def transport_on(name: str, fabric: Fabric) -> str:
    """Return the transport of a name on a fabric; `auto` is EFA's on EFA links, TCP where links carry no RDMA.

    Raises:
        SimulationError: the links of the hosts do not carry it.
    """
    kinds: dict[str, str] = {link.transport: link.name for link in _host_links(fabric)}
    usual = next((kind for kind in ("tcp", "efa") if kind in kinds), "rdma")
    if name in (AUTO, usual, "ideal") or name not in transports():
        return usual if name == AUTO else name
    if name == "rdma":
        carries = "no RDMA" if usual == "tcp" else "EFA's own transport, not InfiniBand's or RoCE's"
        raise SimulationError(
            f"{kinds[usual]} links carry {carries}.", hint=f"Use --transport {usual}, or leave it out."
        )
    if name == "efa":
        raise SimulationError(f"no host of {fabric.name} is on EFA links.", hint=f"Use --transport {usual}.")
    return name


def _host_links(fabric: Fabric) -> list[LinkType]:
    """Return the kinds of links that the hosts of a fabric are on."""
    spec = fabric.spec
    catalog = load_catalog().with_parts(spec.parts) if spec.parts else load_catalog()
    sites = [(spec.hosts, spec.network)] if spec.hosts else [(site.hosts, site.network) for site in spec.sites]
    names = [
        getattr(network, "link", None) or group.host.resolve(catalog).link
        for hosts, network in sites
        for group in hosts
    ]
    return [catalog.link(name) for name in dict.fromkeys(names) if name]
