"""Transports: what sending costs the host, per message and per byte. The numbers are data, with their source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.describe.own_data import own_data
from syncline.errors import SimulationError
from syncline.fabric.catalog import Catalog, LinkType, load_catalog
from syncline.fabric.fabric import Fabric
from syncline.fabric.topology.network import NetworkSpec

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
    post_s: float = 0.0  # a sender's own time for each message of a round, where its card does not say (LogGP's o)
    routing: str = "ecmp"


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
            str(row.get("routing", "ecmp")),
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


def stated_routing(fabric: Fabric) -> str:
    """Return the `routing` that the description of a cluster names; empty where it names none, or several.

    Dragonflies route by load (`ugal`) where it names none.
    """
    spec = fabric.spec
    networks = [spec.network] if spec.hosts else [site.network for site in spec.sites]
    found = {_own_routing(each) for each in networks}
    return found.pop() if len(found) == 1 else ""


def _own_routing(network: NetworkSpec | None) -> str:
    if network is None:
        return ""
    stated = "routing" in network.model_fields_set or network.topology == "dragonfly"
    return network.routing if stated else ""


def rails_apart(fabric: Fabric) -> bool:
    """Say whether nothing but the hosts joins the rails of a cluster: messages change rails there or nowhere."""
    spec = fabric.spec
    return bool(spec.hosts) and spec.network is not None and spec.network.topology == "rail-only"


@dataclass(frozen=True, eq=False)
class MessageCosts:
    """What a message costs, by the device that it leaves a host from: LogGP's o of its sender and g of the card."""

    overhead_s: NDArray[np.float64]
    gap_s: NDArray[np.float64]

    @property
    def any(self) -> bool:
        """Whether messages cost anything."""
        return bool(self.overhead_s.any() or self.gap_s.any())


def message_costs(fabric: Fabric, carrier: Transport) -> MessageCosts:
    """Return what messages cost on a fabric: a card's own figures where it is used through its own transport."""
    count = len(fabric.devices)
    overhead, gap = np.full(count, carrier.post_s), np.zeros(count)
    if carrier.name != "ideal":
        own = carrier.name == transport_on(AUTO, fabric)
        part = fabric.devices.part[fabric.nics]
        for number in np.unique(part).tolist():
            card, devices = _catalog(fabric).nic(fabric.parts[number]), fabric.nics[part == number]
            overhead[devices] = card.overhead_s if own and card.overhead_s is not None else carrier.post_s
            gap[devices] = card.gap_s or 0.0
    return MessageCosts(overhead, gap)


def message_lines(fabric: Fabric, name: str) -> list[str]:
    """Say what a message costs through every kind of card of a fabric, by a transport of that name.

    >>> from syncline.fabric import load
    >>> message_lines(load("h100-64-rail"), "rdma")
    ["each message of a round costs its sender 2.2 us and its ConnectX-7 3 ns (LogGP's o and g)"]
    """
    if name not in transports() or name == "ideal":
        return []
    costs, cards = message_costs(fabric, transport(name)), fabric.devices.part[fabric.nics]
    lines = []
    for number in np.unique(cards).tolist():
        nic = int(fabric.nics[cards == number][0])
        o, g = (units.show_time(float(column[nic])) for column in (costs.overhead_s, costs.gap_s))
        lines.append(
            f"each message of a round costs its sender {o} and its {fabric.parts[number]} {g} (LogGP's o and g)"
        )
    return lines


def _catalog(fabric: Fabric) -> Catalog:
    return load_catalog().with_parts(fabric.spec.parts) if fabric.spec.parts else load_catalog()


def packet_transport(name: str, fabric: Fabric) -> str:
    """Return what a transport of the flow level is packet by packet: credits on InfiniBand, DCQCN on other RDMA.

    >>> from syncline.fabric import load
    >>> packet_transport(AUTO, load("h100-64-rail")), packet_transport("rdma", load("llama3-24k-roce"))
    ('infiniband', 'dcqcn')
    """
    name = transport_on(AUTO, fabric) if name == AUTO else name
    if name == "rdma" and {link.transport for link in _host_links(fabric)} == {"infiniband"}:
        return "infiniband"
    return {"rdma": "dcqcn", "efa": "srd", "tcp": "cubic"}.get(name, name)


def _host_links(fabric: Fabric) -> list[LinkType]:
    """Return the kinds of links that the hosts of a fabric are on."""
    spec, catalog = fabric.spec, _catalog(fabric)
    sites = [(spec.hosts, spec.network)] if spec.hosts else [(site.hosts, site.network) for site in spec.sites]
    names = [
        getattr(network, "link", None) or group.host.resolve(catalog).link
        for hosts, network in sites
        for group in hosts
    ]
    return [catalog.link(name) for name in dict.fromkeys(names) if name]
