"""One switch as its configuration sees it: ports by name, neighbours, addresses, tier, buffer."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.fabric.catalog import Switch
from syncline.install.addresses import AddressPlan, HostPort, SwitchAddress
from syncline.install.names import file_name, lldp_port, port_name
from syncline.install.qos import SwitchBuffer
from syncline.install.wiring import CablingPlan, Port

TIER_NAMES = {1: "leaf", 2: "spine", 3: "core"}
HASH_SEEDS = {1: 0, 2: 10, 3: 25}
"""A seed for each tier: with one seed a spine would hash as the leaf did and use one uplink in n (polarisation)."""


@dataclass(frozen=True)
class SwitchPort:
    """A port in use: its name, what is at the other end, and the /31 where that is a host."""

    name: str
    port: Port
    far_device: str
    far_port: str
    rate_Bps: float
    length_m: float
    host: HostPort | None
    is_uplink: bool
    lldp: tuple[str, str]
    """The name and the port that the other end sends by LLDP."""


@dataclass(frozen=True)
class SwitchView:
    """All that a configuration of one switch needs."""

    name: str
    system: str
    model: Switch
    level: int
    address: SwitchAddress
    ports: tuple[SwitchPort, ...]
    buffer: SwitchBuffer | None
    ecmp_width: int
    """The most next hops any route of this switch has: all uplinks of a leaf, or all cables to one neighbour above."""

    @property
    def tier(self) -> str:
        return TIER_NAMES.get(self.level, "switch")

    @property
    def fabric_ports(self) -> tuple[SwitchPort, ...]:
        """Ports to other switches."""
        return tuple(port for port in self.ports if port.host is None)

    @property
    def host_ports(self) -> tuple[SwitchPort, ...]:
        return tuple(port for port in self.ports if port.host is not None)

    @property
    def uplinks(self) -> tuple[SwitchPort, ...]:
        return tuple(port for port in self.ports if port.is_uplink)

    @property
    def rates_Bps(self) -> list[float]:
        """The rates of its ports, each once."""
        return sorted({port.rate_Bps for port in self.ports})

    @property
    def breakouts(self) -> dict[int, int]:
        """Cages that hold several ports, and how many."""
        return {port.port.cage: port.port.lanes for port in self.ports if port.port.lanes > 1}

    @property
    def buffer_lines(self) -> list[str]:
        """The arithmetic of its buffer; none where the catalogue has no buffer size."""
        return self.buffer.arithmetic if self.buffer else []

    @property
    def file_name(self) -> str:
        return file_name(self.name)

    @property
    def hash_seed(self) -> int:
        return HASH_SEEDS.get(self.level, 0)

    @property
    def longest_m(self) -> float:
        return max((port.length_m for port in self.ports), default=1.0)


def views(
    wiring: CablingPlan,
    plan: AddressPlan,
    buffers: dict[str, SwitchBuffer],
    system: dict[str, str],
    lengths: dict[int, float],
) -> tuple[SwitchView, ...]:
    """Return every switch that gets a configuration."""
    numbers = {id(wire): number for number, wire in enumerate(wiring.wires)}
    switches = []
    for name in wiring.switch_names:
        model = wiring.switch_model(name)
        if model is None:
            continue
        level, ports = wiring.level(name), []
        hosts = plan.of_leaf.get(name, {})
        for own, far, wire in wiring.of_device.get(name, ()):
            is_switch = far.device in system
            far_port = port_name(system[far.device], far) if is_switch else f"p{far.number}"
            up = is_switch and wiring.level(far.device) > level
            host = hosts.get(own.number)
            heard = (host.host, host.interface) if host else (file_name(far.device), far_port)
            if is_switch:
                heard = file_name(far.device), lldp_port(system[far.device], far)
            ports.append(
                SwitchPort(port_name(system[name], own), own, far.device, far_port, wire.rate_Bps,
                           lengths[numbers[id(wire)]], host, up, heard)
            )  # fmt: skip
        switches.append(
            SwitchView(name, system[name], model, level, plan.switches[name], tuple(ports),
                       buffers.get(name), _width(ports))
        )  # fmt: skip
    return tuple(switches)


def _width(ports: list[SwitchPort]) -> int:
    up = sum(port.is_uplink for port in ports)
    below: dict[str, int] = {}
    for port in ports:
        if not port.is_uplink and port.host is None:
            below[port.far_device] = below.get(port.far_device, 0) + 1
    return max(1, up, *below.values())
