"""Addresses and AS numbers: a loopback and an AS for each switch, a /31 for each host port, one prefix for each leaf.

Every leaf owns one aligned block, so that it announces one prefix and a spine holds as many routes as there are
leaves. Leaves have an AS of their own, the spines of a pod share one and so do all cores (RFC 7938, section 5.2): a
path that went up cannot come up again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network

from syncline.describe.plain import csv_text
from syncline.errors import FabricError
from syncline.install.wiring import CablingPlan

LOOPBACKS = IPv4Network("10.255.0.0/16")
HOST_PORTS = IPv4Network("10.0.0.0/9")
FIRST_AS = 4_200_000_000
"""Private AS numbers of four bytes (RFC 6996): 4200000000 to 4294967294."""


@dataclass(frozen=True)
class HostPort:
    """One host port and the leaf port it is cabled to: the two addresses of a /31."""

    host: str
    nic: str
    nic_port: int
    leaf: str
    leaf_port: int
    leaf_address: IPv4Address
    address: IPv4Address

    @property
    def interface(self) -> str:
        """The name that the host's files give the port: `rail3`, `rail3p2` of a card's second port."""
        return f"rail{self.nic.rpartition('-')[2]}" + (f"p{self.nic_port}" if self.nic_port > 1 else "")


@dataclass(frozen=True)
class SwitchAddress:
    """A switch's loopback, AS number and, for one with hosts, the prefix of their ports."""

    name: str
    loopback: IPv4Address
    asn: int
    prefix: IPv4Network | None


@dataclass(frozen=True)
class AddressPlan:
    """All addresses: of switches by name and of host ports by (NIC, port number there)."""

    switches: dict[str, SwitchAddress]
    ports: dict[tuple[str, int], HostPort]

    @cached_property
    def of_leaf(self) -> dict[str, dict[int, HostPort]]:
        """The host ports of each leaf by the leaf's port number."""
        leaves: dict[str, dict[int, HostPort]] = {}
        for port in self.ports.values():
            leaves.setdefault(port.leaf, {})[port.leaf_port] = port
        return leaves

    def to_csv(self) -> str:
        """Return the plan as one table."""
        rows: list[tuple[object, ...]] = []
        for switch in self.switches.values():
            rows.append((switch.name, "loopback", f"{switch.loopback}/32", switch.asn, "router id; ping it first"))
            if switch.prefix:
                rows.append((switch.name, "prefix", switch.prefix, switch.asn, "all its host ports in one route"))
        rows += [
            (port.nic, "port", f"{port.address}/31", "", f"gateway {port.leaf_address} on {port.leaf}")
            for port in self.ports.values()
        ]
        return csv_text(("device", "what", "address", "as", "why"), rows)


def addresses(wiring: CablingPlan) -> AddressPlan:
    """Give every switch and host port its addresses."""
    names = wiring.switch_names
    if len(names) > LOOPBACKS.num_addresses - 2:
        raise FabricError(f"{len(names):,} switches do not fit {LOOPBACKS}.", hint="Build one site or pod of it.")
    switches: dict[str, SwitchAddress] = {}
    ports: dict[tuple[str, int], HostPort] = {}
    at = int(HOST_PORTS.network_address)
    group_as: dict[tuple[int, int, int], int] = {}
    for number, name in enumerate(names):
        below = [(own, far) for own, far, _ in wiring.of_device.get(name, ()) if "/nic-" in far.device]
        prefix = None
        if below:
            size = 1 << (2 * len(below) - 1).bit_length()
            at = -(-at // size) * size
            if at + size > int(HOST_PORTS.broadcast_address):
                raise FabricError(f"the host ports do not fit {HOST_PORTS}.", hint="Build one site or pod of it.")
            prefix = IPv4Network((at, 32 - (size.bit_length() - 1)))
            for row, (own, far) in enumerate(below):
                pair = IPv4Address(at + 2 * row), IPv4Address(at + 2 * row + 1)
                host = far.device.partition("/nic-")[0]
                ports[far.device, far.number] = HostPort(host, far.device, far.number, name, own.number, *pair)
            at += size
        switches[name] = SwitchAddress(name, LOOPBACKS[number + 1], _asn(wiring, name, group_as), prefix)
    return AddressPlan(switches, ports)


def _asn(wiring: CablingPlan, name: str, given: dict[tuple[int, int, int], int]) -> int:
    device = wiring.fabric.device(name)
    devices, level = wiring.fabric.devices, wiring.level(name)
    group = int(devices.group[device]) if level == 2 else 0
    plane = plane_of(name)
    key = (level, device, 0) if level < 2 else (level, group, plane * 1000 + int(devices.site[device]))
    return FIRST_AS + given.setdefault(key, len(given))


def plane_of(name: str) -> int:
    """Return the plane a switch belongs to by its name (`plane-3/spine-00`), 0 without one."""
    head = name.partition("/")[0]
    return int(head.removeprefix("plane-")) if head.startswith("plane-") and head[6:].isdecimal() else 0
