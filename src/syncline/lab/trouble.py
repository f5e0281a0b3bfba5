"""A fault as a lab carries it out: which cables, which directions, which host, in numbers of the blueprint."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from syncline.describe.plain import JsonObject
from syncline.errors import FaultError
from syncline.fault.fault import HOST_KINDS, Fault, FaultKind
from syncline.lab.blueprint import Blueprint


@dataclass(frozen=True)
class LabTrouble:
    """What the process inside the lab is told: `directions` are (cable, 0 for a to b or 1 for b to a)."""

    text: str
    kind: str
    directions: tuple[tuple[int, int], ...] = ()
    host: int = -1
    to: int = -1
    address: str = ""
    rate_Bps: float = 0.0
    share: float = 0.0
    mtu_bytes: int = 0
    start_s: float = 0.0
    duration_s: float | None = None

    def to_json(self) -> JsonObject:
        """Return the trouble as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class FaultEvent:
    """A fault that begun or ended, or routes that were changed because of it, at a moment of the monotonic clock."""

    fault: int
    text: str
    what: Literal["begun", "ended", "rerouted"]
    at_s: float
    error: str = ""


def trouble(blueprint: Blueprint, fault: Fault) -> LabTrouble:
    """Find what a fault means in this lab; a FaultError names what is not there."""
    shared: dict[str, Any] = {
        "text": fault.text,
        "kind": fault.kind.value,
        "share": fault.share or 0.0,
        "rate_Bps": (fault.rate_Bps or 0.0) * blueprint.scale,
        "mtu_bytes": fault.mtu_bytes or 0,
        "start_s": fault.start_s,
        "duration_s": fault.duration_s,
    }
    if fault.kind in HOST_KINDS:
        return LabTrouble(host=_host(blueprint, fault.target), **shared)
    if fault.kind is FaultKind.TRAFFIC:
        return _traffic(blueprint, fault, shared)
    directions = tuple(sorted(_directions(blueprint, fault)))
    if fault.kind is FaultKind.RATE and fault.rate_Bps is not None:
        fastest = max(_rate(blueprint, direction) for direction in directions)
        if shared["rate_Bps"] > fastest * (1 + 1e-9):
            raise FaultError(f'"{fault.text}": that is faster than the link.', hint="A fault lowers a rate.")
    return LabTrouble(directions=directions, **shared)


def _traffic(blueprint: Blueprint, fault: Fault, shared: dict[str, Any]) -> LabTrouble:
    ends = fault.ends()
    assert ends is not None
    (a, interface_a), (b, interface_b) = (_host_and_interface(blueprint, end) for end in ends[:2])
    if a == b:
        raise FaultError(f'"{fault.text}": traffic goes from one host to another.')
    interface = interface_b or interface_a or "eth0"
    addresses = blueprint.addresses(b)
    if interface not in addresses:
        raise FaultError(f'{blueprint.boxes[b].name} has no interface "{interface}".')
    if fault.share is not None:
        rates = [rate for c in blueprint.cables for near, _, _, rate in c.ends() if near.box == a]
        shared = {**shared, "rate_Bps": fault.share * max(rates)}
    return LabTrouble(host=a, to=b, address=addresses[interface], **shared)


def _directions(blueprint: Blueprint, fault: Fault) -> list[tuple[int, int]]:
    ends = fault.ends()
    if ends is None:
        found = _of_place(blueprint, fault.target)
    else:
        found = _between(blueprint, *ends)
    if not found:
        some = ", ".join(list(blueprint.link_names.values())[:3])
        raise FaultError(
            f'the lab has no link "{fault.target}".', detail=f"Links: {some} ...", hint="List them: syncline lab show."
        )
    return found


def _of_place(blueprint: Blueprint, place: str) -> list[tuple[int, int]]:
    """Return all directions of the cables of a host, an interface, a NIC or a switch."""
    host, colon, interface = place.partition(":")
    found = []
    for number, cable in enumerate(blueprint.cables):
        for side, (near, _, link, _) in enumerate(cable.ends()):
            device = blueprint.link_names[link].partition(" -> ")[0]
            box = blueprint.boxes[near.box].name
            if (colon and box == host and near.interface == interface) or (not colon and place in (box, device)):
                found += [(number, side), (number, 1 - side)]
    return found


def _between(blueprint: Blueprint, a: str, b: str, both: bool) -> list[tuple[int, int]]:
    found = []
    for number, cable in enumerate(blueprint.cables):
        for side, (near, far, link, _) in enumerate(cable.ends()):
            device_a, _, device_b = blueprint.link_names[link].partition(" #")[0].partition(" -> ")
            names_a = (device_a, blueprint.boxes[near.box].name, f"{blueprint.boxes[near.box].name}:{near.interface}")
            names_b = (device_b, blueprint.boxes[far.box].name, f"{blueprint.boxes[far.box].name}:{far.interface}")
            if a in names_a and b in names_b:
                found += [(number, side), (number, 1 - side)] if both else [(number, side)]
    return found


def _rate(blueprint: Blueprint, direction: tuple[int, int]) -> float:
    return blueprint.cables[direction[0]].ends()[direction[1]][3]


def _host(blueprint: Blueprint, name: str) -> int:
    box = blueprint.by_name.get(name)
    if box is None or blueprint.boxes[box].kind != "host":
        some = ", ".join(blueprint.boxes[h].name for h in blueprint.hosts[:4])
        raise FaultError(f'the lab has no host "{name}".', hint=f"Hosts: {some} ...")
    return box


def _host_and_interface(blueprint: Blueprint, place: str) -> tuple[int, str]:
    host, _, interface = place.replace("/nic-", ":eth").partition(":")
    return _host(blueprint, host), interface
