"""What each system calls a port: `Ethernet8`, `swp2s1`, `Ethernet2/5`, port 7."""

from __future__ import annotations

from syncline.install.wiring import Port

SYSTEMS = ("sonic", "nvue", "eos", "frr", "opensm", "none")
CAGE_LANES = 8
"""Electrical lanes of an OSFP or QSFP-DD cage; SONiC and EOS number by lane."""


def port_name(system: str, port: Port) -> str:
    """Return a switch port as its system writes it."""
    if system == "sonic":
        return f"Ethernet{(port.cage - 1) * CAGE_LANES + port.lane * (CAGE_LANES // port.lanes)}"
    if system in ("nvue", "frr"):
        return f"swp{port.cage}" + (f"s{port.lane}" if port.lanes > 1 else "")
    if system == "eos":
        return f"Ethernet{port.cage}/{1 + port.lane * (CAGE_LANES // port.lanes)}"
    return str(port.number)


def lldp_port(system: str, port: Port) -> str:
    """Return the port id that a switch sends by LLDP: SONiC's lldpmgrd sends the alias, others the port's name."""
    if system == "sonic":
        return f"etp{port.cage}" + ("abcdefgh"[port.lane] if port.lanes > 1 else "")
    return port_name(system, port)


def file_name(device: str) -> str:
    """Return a device's name as a folder: the slash of a plane or site becomes a hyphen."""
    return device.replace("/", "-")
