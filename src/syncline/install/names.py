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


def host_port_name(port: Port) -> str:
    """Return a NIC's port: `p1`."""
    return f"p{port.number}"


def interface_of(nic: str, port: int) -> str:
    """Return the name the host files give a NIC's port: `rail3` of `host-00/nic-3`, `rail3p2` of its second port."""
    return f"rail{nic.rpartition('-')[2]}" + (f"p{port}" if port > 1 else "")


def file_name(device: str) -> str:
    """Return a device's name as a folder: the slash of a plane or site becomes a hyphen."""
    return device.replace("/", "-")
