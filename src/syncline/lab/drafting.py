"""From a Fabric to the blueprint of a lab: which namespaces, which cables, which addresses, at which scale.

Only the network between hosts is emulated: every cable from a NIC or between switches. What is inside a host (NVLink,
PCIe, GPUs) is not: ranks of one host talk over its loopback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from syncline.describe import units
from syncline.errors import LabError
from syncline.fabric import Fabric
from syncline.fabric.distance import GLOBAL_HOPS, chips_forward
from syncline.fabric.fabric import DeviceKind, Tier
from syncline.lab.blueprint import Blueprint, BoxKind, End, LabBox, LabCable
from syncline.lab.profile import DEFAULT, Profile
from syncline.lab.reach import same_rail_cables, switch_components

TOTAL_RATE_BPS = 250e6
"""All hosts sending at once: about what two cores carry without becoming the bottleneck (2 Gb/s)."""
MIN_RATE_BPS = 12_500.0
MAX_BOXES = 400
MAX_CABLES = 1500
IGNORES = (
    "links inside hosts (NVLink, PCIe)",
    "latency below that of site trunks",
    "RDMA and priority flow control: flows are TCP",
    "switch buffers: one queue of fixed size per port",
)
"""What an emulation does not show; every Timeline of a lab says so."""


def draft(
    fabric: Fabric,
    *,
    scale: float | None = None,
    profile: Profile = DEFAULT,
    hosts: int | Sequence[str] | None = None,
) -> Blueprint:
    """Return what a lab of this fabric is made of.

    `scale` multiplies every rate; without one it is the largest of 1, 0.5, 0.2, 0.1 ... at which all hosts sending at
    once stay below 2 Gb/s. `hosts` takes only so many (from every site the first), or those named, and the switches
    between them.
    """
    if chips_forward(fabric):
        raise LabError(
            f"the accelerators of {fabric.name} pass traffic on for each other; a lab has only NICs and switches.",
            hint="Use a network of switches, or topology: torus with `of: hosts`.",
        )
    chosen = _chosen(fabric, hosts)
    rows = _network_links(fabric, chosen)
    _check_size(fabric, len(rows), len(chosen))
    factor = _scale(fabric, rows, scale)
    blueprint = _lay(fabric, chosen, rows, factor, profile)
    if hosts is not None:
        kept = same_rail_cables(blueprint)
        blueprint = _lay(fabric, chosen, [row for row, keep in zip(rows, kept, strict=True) if keep], factor, profile)
    _check_rates(blueprint)
    return blueprint


def _chosen(fabric: Fabric, hosts: int | Sequence[str] | None) -> list[int]:
    """Return the hosts to build, by number."""
    if hosts is None:
        return list(range(fabric.num_hosts))
    if isinstance(hosts, int):
        if not 1 <= hosts <= fabric.num_hosts:
            raise LabError(f"{fabric.name} has {fabric.num_hosts} hosts, not {hosts}.", hint="Ask for fewer.")
        # The first of every site in turn: half of a cluster of two sites has two sites.
        site = fabric.site_of_host
        turn = np.array([int((site[:host] == site[host]).sum()) for host in range(fabric.num_hosts)])
        return sorted(np.lexsort((np.arange(fabric.num_hosts), site, turn))[:hosts].tolist())
    place = {name: i for i, name in enumerate(fabric.host_names)}
    for name in hosts:
        if name not in place:
            raise LabError(f'{fabric.name} has no host "{name}".', hint=f"Names look like {fabric.host_names[0]}.")
    return sorted(place[name] for name in hosts)


def _network_links(fabric: Fabric, chosen: list[int]) -> list[int]:
    """Return the even links (one per cable) that join NICs of chosen hosts and switches."""
    devices, links = fabric.devices, fabric.links
    kept = np.zeros(fabric.num_hosts, bool)
    kept[chosen] = True
    part = (devices.kind == DeviceKind.SWITCH) | ((devices.kind == DeviceKind.NIC) & kept[devices.host])
    even = np.arange(0, len(links), 2)
    network = part[links.src[even]] & part[links.dst[even]] & (links.tier[even] >= Tier.ACCESS)
    rows: list[int] = even[network].tolist()
    if not any(DeviceKind.NIC in (devices.kind[links.src[row]], devices.kind[links.dst[row]]) for row in rows):
        raise LabError(f"{fabric.name} has no NIC on a network.", hint="Add `nics:` to the host and a `network:`.")
    return rows


def _check_size(fabric: Fabric, num_cables: int, num_hosts: int) -> None:
    if num_hosts > MAX_BOXES // 2 or num_cables > 200 * MAX_CABLES:
        raise LabError(
            f"{fabric.name} has {num_hosts} hosts and {num_cables} cables; one machine cannot hold such a lab.",
            hint="Take a part of it: --hosts 8.",
        )


def _scale(fabric: Fabric, rows: list[int], scale: float | None) -> float:
    if scale is not None:
        if not 0 < scale <= 1000:
            raise LabError(f"the scale must be above 0, got {scale:g}.", hint="Write 1, 0.01 or 1/400.")
        return scale
    links, devices = fabric.links, fabric.devices
    total = sum(
        float(links.rate_Bps[row])
        * ((devices.kind[links.src[row]] == DeviceKind.NIC) + (devices.kind[links.dst[row]] == DeviceKind.NIC))
        for row in rows
    )
    return nice_scale(TOTAL_RATE_BPS / total)


def nice_scale(most: float) -> float:
    """Return the largest of 1, 0.5, 0.2, 0.1, 0.05 ... that is not above `most`."""
    factors = (1.0 / (first * 10.0**power) for power in range(20) for first in (1, 2, 5))
    for factor in factors:
        if factor <= most * (1 + 1e-9):
            return factor
    raise LabError("no scale fits the rates of this fabric.")


def _lay(fabric: Fabric, chosen: list[int], rows: list[int], scale: float, profile: Profile) -> Blueprint:
    devices, links = fabric.devices, fabric.links
    box_of_host = {host: i for i, host in enumerate(chosen)}
    gpus = Counter(devices.host[fabric.gpus].tolist())
    boxes = [LabBox(fabric.host_names[h], "host", gpus[h], int(fabric.site_of_host[h])) for h in chosen]
    box_of_switch: dict[int, int] = {}
    for row in rows:
        for device in (int(links.src[row]), int(links.dst[row])):
            if devices.kind[device] == DeviceKind.SWITCH and device not in box_of_switch:
                box_of_switch[device] = len(boxes)
                boxes.append(LabBox(fabric.device_name(device), "router", 0, int(devices.site[device])))

    def box_of(device: int) -> int:
        return box_of_switch[device] if device in box_of_switch else box_of_host[int(devices.host[device])]

    pairs = [(box_of(int(links.src[row])), box_of(int(links.dst[row]))) for row in rows]
    boxes = _switching(boxes, pairs, profile)
    names = _interfaces(fabric, rows, pairs, boxes)
    cables = []
    num_trunks = 0
    for row, (a, b), (name_a, name_b) in zip(rows, pairs, names, strict=True):
        latency = float(links.latency_s[row])
        if boxes[a].kind == "host" or boxes[b].kind == "host":
            end_a, end_b = _access_ends(boxes, a, name_a, b, name_b)
        else:
            end_a, end_b = _trunk_ends(boxes, a, name_a, b, name_b, num_trunks)
            num_trunks += 1
        cables.append(
            LabCable(
                row,
                end_a,
                end_b,
                float(links.rate_Bps[row]) * scale,
                float(links.rate_Bps[row ^ 1]) * scale,
                delay_s=latency if latency >= profile.min_delay_s else 0.0,
                weight=GLOBAL_HOPS if links.tier[row] == Tier.GROUP_GLOBAL else 1,
                up=bool(links.up[row]),
            )
        )
    link_names = {link: fabric.link_name(link) for row in rows for link in (row, row ^ 1)}
    return Blueprint(fabric.name, tuple(boxes), tuple(cables), scale, profile, unique(link_names))


def unique(names: dict[int, str]) -> dict[int, str]:
    """Return the names with parallel links told apart: `leaf-00 -> spine-00 #1`."""
    count: Counter[str] = Counter()
    result = {}
    for link, name in names.items():
        result[link] = f"{name} #{count[name]}" if count[name] else name
        count[name] += 1
    return result


def _switching(boxes: list[LabBox], pairs: list[tuple[int, int]], profile: Profile) -> list[LabBox]:
    """Say of each switch whether it bridges or routes: bridges may not form a loop."""
    result = list(boxes)
    for members, is_tree in switch_components(boxes, pairs):
        kind: BoxKind = "router"
        if profile.switching == "bridge" and not is_tree:
            raise LabError(
                f"the switches {boxes[members[0]].name} ... form a loop, and bridges cannot.",
                hint="Leave `switching` at auto.",
            )
        if profile.switching == "bridge" or (profile.switching == "auto" and is_tree):
            kind = "bridge"
        for box in members:
            result[box] = replace(boxes[box], kind=kind)
    return result


def _interfaces(
    fabric: Fabric, rows: list[int], pairs: list[tuple[int, int]], boxes: list[LabBox]
) -> list[tuple[str, str]]:
    """Name the interfaces of both ends of each cable: eth0 ... of hosts by NIC and port, p0 ... of switches."""
    links, devices = fabric.links, fabric.devices
    ends: dict[int, list[tuple[int, int, int]]] = {}
    for i, (row, (a, b)) in enumerate(zip(rows, pairs, strict=True)):
        for side, (box, device) in enumerate(((a, int(links.src[row])), (b, int(links.dst[row])))):
            order = int(devices.local[device]) if boxes[box].kind == "host" else 0
            ends.setdefault(box, []).append((order, i, side))
    names: dict[tuple[int, int], str] = {}
    for box, mine in ends.items():
        prefix = "eth" if boxes[box].kind == "host" else "p"
        for number, (_, i, side) in enumerate(sorted(mine)):
            names[i, side] = f"{prefix}{number}"
    return [(names[i, 0], names[i, 1]) for i in range(len(rows))]


def host_address(host: int, interface: str) -> str:
    """Return the address of interface ethR of a host: 10.(R+1).x.y, the same whether switches bridge or route."""
    rail = int(interface.removeprefix("eth"))
    offset = 4 * host + 2
    return f"10.{rail + 1}.{offset >> 8}.{offset & 255}"


def _access_ends(boxes: list[LabBox], a: int, name_a: str, b: int, name_b: str) -> tuple[End, End]:
    kinds = (boxes[a].kind, boxes[b].kind)
    if kinds == ("host", "host"):
        return End(a, name_a, host_address(a, name_a), 32), End(b, name_b, host_address(b, name_b), 32)
    if kinds[0] != "host":
        far, near = _access_ends(boxes, b, name_b, a, name_a)
        return near, far
    own = host_address(a, name_a)
    if kinds[1] == "bridge":
        return End(a, name_a, own, 16), End(b, name_b)
    return End(a, name_a, own, 30), End(b, name_b, f"{own.rpartition('.')[0]}.{int(own.rpartition('.')[2]) - 1}", 30)


def _trunk_ends(boxes: list[LabBox], a: int, name_a: str, b: int, name_b: str, number: int) -> tuple[End, End]:
    if boxes[a].kind == "bridge":
        return End(a, name_a), End(b, name_b)
    first = (172 << 24) + (16 << 16) + 4 * number + 1
    return End(a, name_a, _dotted(first), 30), End(b, name_b, _dotted(first + 1), 30)


def _dotted(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def _check_rates(blueprint: Blueprint) -> None:
    if len(blueprint.boxes) > MAX_BOXES or len(blueprint.cables) > MAX_CABLES:
        raise LabError(
            f"{blueprint.name} needs {len(blueprint.boxes)} namespaces and {len(blueprint.cables)} cables; "
            f"a lab has at most {MAX_BOXES} and {MAX_CABLES}.",
            hint="Take a part of it: --hosts 8.",
        )
    slowest = min(rate for cable in blueprint.cables for _, _, _, rate in cable.ends())
    if slowest < MIN_RATE_BPS:
        raise LabError(
            f"at scale {blueprint.scale:g} the slowest link has {units.show_rate(slowest)}, too little to measure.",
            hint=f"Use a larger --scale, or fewer --hosts; a link needs {units.show_rate(MIN_RATE_BPS)}.",
        )
