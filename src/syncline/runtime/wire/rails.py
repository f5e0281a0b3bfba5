"""Which network interfaces of this host the wire uses, and the addresses it binds to.

SYNCLINE_RAILS=eth1,eth2     these, by name or address; the first is rail 0 on every host
GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME   as for gloo and NCCL, where the first is not set
nothing                      the interface that leads to the master, and those of the same speed beside it
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from syncline.errors import SynchronizationError

VARIABLES = ("SYNCLINE_RAILS", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
LOOPBACK = "127.0.0.1"
# Bridges, tunnels and the like carry what some real interface carries already.
_VIRTUAL = ("docker", "br-", "virbr", "tun", "tap", "wg", "cni", "flannel", "cali", "vxlan", "dummy")
_SYS = Path("/sys/class/net")
_GET_ADDRESS = 0x8915


@dataclass(frozen=True)
class Rail:
    """An address of this host, and the interface that has it ("": not known)."""

    address: str
    interface: str = ""


def rails(environment: Mapping[str, str] | None = None) -> list[Rail]:
    """Return the rails of this host, in an order that is the same on hosts that are built alike."""
    environment = os.environ if environment is None else environment
    present = interfaces()
    for variable in VARIABLES:
        named = [name for name in environment.get(variable, "").split(",") if name]
        # NCCL's own signs: ^eth0 leaves out, =eth0 is exact; only plain names say what to use.
        if named and not named[0].startswith("^"):
            return [_rail(name.lstrip("="), variable, present) for name in named]
    main = Rail(_towards(environment.get("MASTER_ADDR", "")), "")
    own = next((rail for rail in present if rail.address == main.address), None)
    if own is None or own.interface == "lo":
        return [own or main]
    speed = _speed(own.interface)
    beside = [rail for rail in present if rail != own and _is_peer_of(rail.interface, speed)]
    return [own, *beside]


def are_there(environment: Mapping[str, str] | None = None) -> bool:
    """Tell whether this host has rails: IPv4 towards the master, or what the user names, right or wrong."""
    environment = os.environ if environment is None else environment
    if environment.get(VARIABLES[0]):
        return True
    try:
        master = environment.get("MASTER_ADDR", "") or socket.gethostname()
        socket.getaddrinfo(master, None, socket.AF_INET)
        return bool(rails(environment))
    except (OSError, SynchronizationError):
        return False


def interfaces() -> list[Rail]:
    """Return every interface of this host that is up and has an IPv4 address, by name."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in sorted(socket.if_nameindex(), key=lambda pair: pair[1]):
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asked.fileno(), _GET_ADDRESS, request)
            except OSError:
                continue
            found.append(Rail(socket.inet_ntoa(answer[20:24]), name))
    return found


def _rail(name: str, variable: str, present: list[Rail]) -> Rail:
    for rail in present:
        if name in (rail.interface, rail.address):
            return rail
    try:
        return Rail(str(ipaddress.ip_address(name)))
    except ValueError:
        there = ", ".join(f"{rail.interface} ({rail.address})" for rail in present)
        raise SynchronizationError(
            f'{variable} names "{name}", and this host has no such interface with an IPv4 address.',
            detail=f"It has: {there or 'none'}.",
            hint=f"Correct {variable}, or unset it to use the interface that leads to the master.",
        ) from None


def _towards(master: str) -> str:
    """Return the address of this host that packets to the master leave from."""
    try:
        target = socket.gethostbyname(master or socket.gethostname())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect((target, 9))
            return str(asked.getsockname()[0])
    except OSError:
        return LOOPBACK


def _is_peer_of(interface: str, speed: str) -> bool:
    if interface == "lo" or interface.startswith(_VIRTUAL):
        return False
    return bool(speed) and _speed(interface) == speed


def _speed(interface: str) -> str:
    try:
        return (_SYS / interface / "speed").read_text().strip()
    except OSError:
        return ""
