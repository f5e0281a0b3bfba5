"""A fault as a lab carries it out: which cables, which directions, which host, in numbers of the blueprint."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from syncline.describe.plain import JsonObject
from syncline.errors import FaultError
from syncline.fault.fault import HOST_KINDS, Fault, FaultKind
from syncline.lab.blueprint import Blueprint, End


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
        fastest = max(blueprint.cables[cable].ends()[side][3] for cable, side in directions)
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
    """Return the directions that a fault names: by both ends, or all of a host, an interface, a NIC or a switch."""
    ends = fault.ends()
    directions = []
    for number, cable in enumerate(blueprint.cables):
        for side, (near, far, link, _) in enumerate(cable.ends()):
            devices = blueprint.link_names[link].partition(" #")[0].split(" -> ")
            here, there = (_names(blueprint, *end) for end in zip((near, far), devices, strict=True))
            if fault.target in here if ends is None else ends[0] in here and ends[1] in there:
                directions += [(number, side), (number, 1 - side)] if ends is None or ends[2] else [(number, side)]
    if not directions:
        some = ", ".join(list(blueprint.link_names.values())[:3])
        raise FaultError(
            f'the lab has no link "{fault.target}".', detail=f"Links: {some} ...", hint="List them: syncline lab show."
        )
    return directions


def _names(blueprint: Blueprint, end: End, device: str) -> tuple[str, str, str]:
    """Return what people call one end of a cable."""
    box = blueprint.boxes[end.box].name
    return device, box, f"{box}:{end.interface}"


def _host(blueprint: Blueprint, name: str) -> int:
    box = blueprint.by_name.get(name)
    if box is None or blueprint.boxes[box].kind != "host":
        some = ", ".join(blueprint.boxes[h].name for h in blueprint.hosts[:4])
        raise FaultError(f'the lab has no host "{name}".', hint=f"Hosts: {some} ...")
    return box


def _host_and_interface(blueprint: Blueprint, place: str) -> tuple[int, str]:
    host, _, interface = place.replace("/nic-", ":eth").partition(":")
    return _host(blueprint, host), interface
