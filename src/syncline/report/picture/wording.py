"""The words on a picture: what hovering over a box or wire says, and the names of rows and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from syncline.describe import units
from syncline.describe.units import counted
from syncline.fabric.fabric import DeviceKind, Fabric, Tier
from syncline.fabric.inventory import level_name
from syncline.report.picture.aggregate import CableBundle, Cell, PictureGroup
from syncline.report.picture.network import DEGRADED, DOWN, DrawnNetwork

KIND_WORDS = {
    DeviceKind.GPU: "GPU", DeviceKind.NIC: "NIC", DeviceKind.SWITCH: "switch", DeviceKind.NVSWITCH: "NVSwitch",
    DeviceKind.PCIE: "PCIe switch", DeviceKind.CPU: "CPU", DeviceKind.OCS: "optical switch",
}  # fmt: skip
TIER_WORDS = {
    Tier.SCALE_UP: "scale-up", Tier.PCIE: "PCIe", Tier.SOCKET: "between sockets", Tier.ACCESS: "access",
    Tier.LEAF_SPINE: "leaf to spine", Tier.SPINE_CORE: "spine to core", Tier.GROUP_LOCAL: "within groups",
    Tier.GROUP_GLOBAL: "between groups", Tier.WAN: "wide area", Tier.OPTICAL: "optical circuits",
}  # fmt: skip
_GROUP_WORDS = {-1: "site", 0: "NVLink domain", 2: "pod"}


def topology(fabric: Fabric) -> str:
    """Return the topology's name, or "" for hosts without a network and for several sites."""
    return fabric.spec.network.topology if fabric.spec.network else ""


def gpu_word(fabric: Fabric) -> str:
    """Return what the fabric's accelerators are called."""
    tpu = len(fabric.gpus) > 0 and fabric.parts[fabric.devices.part[fabric.gpus[0]]].upper().startswith("TPU")
    return "TPU chip" if tpu else "GPU"


def level_word(network: DrawnNetwork, level: int) -> str:
    """Return what a switch of that level is called."""
    return level_name(topology(network.fabric), level) or ("border" if level == 4 else f"level {level}")


def switch_word(network: DrawnNetwork, cell: Cell) -> str:
    """Return what a switch cell is: "leaf", "NVSwitch", "optical switch"."""
    return level_word(network, cell.level) if cell.kind == DeviceKind.SWITCH else KIND_WORDS[DeviceKind(cell.kind)]


def counted_switches(count: int, word: str) -> str:
    """Write `1 leaf switch`, `16 leaf switches`, `9 routers`."""
    if word == "router":
        return counted(count, word)
    whole = word if "switch" in word.lower() else f"{word} switch"
    return counted(count, whole)


def group_word(network: DrawnNetwork, group: PictureGroup) -> str:
    """Return what a group is called: "pod", "scalable unit", "rack"."""
    if group.level == 1:
        if topology(network.fabric) == "dragonfly":
            return "group"
        leaves = [cell for cell, n in group.all_cells() for _ in range(n) if cell.level == 1 and not cell.is_host]
        if network.lanes == "rail" and all(leaf.lane >= 0 for leaf in leaves):
            return "scalable unit"
        return "rack" if len(leaves) == 1 else "block"
    return _GROUP_WORDS.get(group.level, f"level {group.level} group")


def group_names(network: DrawnNetwork, group: PictureGroup) -> list[str]:
    """Return a group's caption, such as `pod 3: 128 hosts, 1,024 GPUs`, and ever shorter ones for narrow frames."""
    sites = network.fabric.spec.sites
    word = group_word(network, group)
    if group.level == -1 and sites:
        word = sites[group.number].name
    else:
        word = f"{word} {group.number}" if group.count == 1 else word
    times = f"{group.count:,} × " if group.count > 1 else ""
    hosts = [(cell, n) for cell, n in group.all_cells() if cell.is_host]
    gpus = sum(n * _host_parts(network.fabric, cell.vertex)[DeviceKind.GPU].total() for cell, n in hosts)
    num_hosts = counted(sum(n for _, n in hosts), "host")
    full = f"{times}{word}: {num_hosts}, {counted(gpus, gpu_word(network.fabric))}"
    return [full, f"{times}{word}: {num_hosts}", f"{times}{word}"]


def host_lines(network: DrawnNetwork, host: int) -> list[str]:
    """Return what one host is made of, one line a kind: `8 × H100-SXM5-80GB`."""
    parts = _host_parts(network.fabric, host)
    order = (DeviceKind.GPU, DeviceKind.NVSWITCH, DeviceKind.NIC, DeviceKind.CPU, DeviceKind.PCIE)
    return [f"{n} × {part}" for kind in order for part, n in parts[kind].items()]


def cell_title(network: DrawnNetwork, cell: Cell) -> str:
    """Return what hovering over a host or switch says: name, part, ports and rates."""
    fabric = network.fabric
    name = network.name(cell.vertex)
    more = f" and {cell.total - 1:,} like it" if cell.total > 1 else ""
    if cell.is_host:
        return "\n".join((f"{name}{more}", *host_lines(network, cell.vertex), *_ports(network, cell.vertex)))
    device = int(network.vertices.device[cell.vertex])
    what = f"{fabric.parts[fabric.devices.part[device]]}, {switch_word(network, cell)}"
    if cell.lane >= 0:
        what += f", {network.lanes} {cell.lane}"
    return "\n".join((f"{name}{more}", what, *_ports(network, cell.vertex)))


def device_title(network: DrawnNetwork, device: int) -> str:
    """Return what hovering over one device inside a host says."""
    fabric = network.fabric
    kind = DeviceKind(int(fabric.devices.kind[device]))
    first = f"{fabric.device_name(device)}\n{fabric.parts[fabric.devices.part[device]]}, {KIND_WORDS[kind]}"
    return "\n".join((first, *_port_lines(fabric, fabric.out_links(device))))


def bundle_title(network: DrawnNetwork, bundle: CableBundle, a: str, b: str) -> str:
    """Return what hovering over a wire says: its ends, count, medium, rate and state."""
    medium = network.fabric.media[bundle.medium]
    state = {DOWN: "\ndown", DEGRADED: "\ndegraded"}.get(bundle.state, "")
    load = "" if bundle.load is None else f"\nload {bundle.load:.0%}"
    many = f"{bundle.total:,} × " if bundle.total > 1 else ""
    return f"{a} – {b}\n{many}{units.show_rate(bundle.rate_Bps)} {medium}, {tier_word(bundle.tier)}{state}{load}"


def tier_word(tier: int) -> str:
    """Return what a tier is called on pictures."""
    return TIER_WORDS[Tier(tier)]


def rates_text(counts: Iterable[tuple[float, int]]) -> str:
    """Write cables by rate: `256 × 400 Gb/s + 8 × 100 Gb/s`; many rates are cut short."""
    by_rate: Counter[float] = Counter()
    for rate_Bps, count in counts:
        by_rate[rate_Bps] += count
    rows = sorted(by_rate.items(), key=lambda row: (-row[1], -row[0]))
    text = " + ".join(f"{n:,} × {units.show_rate(rate)}" for rate, n in rows[:2])
    return text + (f" + {sum(n for _, n in rows[2:]):,} others" if len(rows) > 2 else "")


def short_names(names: list[str]) -> list[str]:
    """Return names without what they all begin with, so that `host-03` is `03` among its like."""
    if len(names) < 2:
        return [name.rsplit("/", 1)[-1] for name in names]
    first, last = min(names), max(names)  # what these two share, all do
    start = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    while start and first[start - 1].isalnum():  # cut only after a hyphen or slash
        start -= 1
    return [name[start:] for name in names]


def _host_parts(fabric: Fabric, host: int) -> dict[DeviceKind, Counter[str]]:
    parts: dict[DeviceKind, Counter[str]] = {kind: Counter() for kind in DeviceKind}
    for device in np.flatnonzero(fabric.devices.host == host):
        parts[DeviceKind(int(fabric.devices.kind[device]))][fabric.parts[fabric.devices.part[device]]] += 1
    return parts


def _ports(network: DrawnNetwork, vertex: int) -> list[str]:
    fabric = network.fabric
    device = int(network.vertices.device[vertex])
    if device >= 0:
        return _port_lines(fabric, fabric.out_links(device))
    mine = np.flatnonzero(fabric.devices.host == vertex)
    links = np.concatenate([fabric.out_links(int(i)) for i in mine])
    return _port_lines(fabric, links[fabric.devices.host[fabric.links.dst[links]] != vertex])


def _port_lines(fabric: Fabric, links: np.ndarray) -> list[str]:
    """Return the used ports by tier and rate."""
    rows: Counter[tuple[int, float, str]] = Counter()
    for link in links:
        medium = fabric.media[fabric.links.medium[link]]
        rows[int(fabric.links.tier[link]), float(fabric.links.rate_Bps[link]), medium] += 1
    lines = [f"{n} × {units.show_rate(rate)} {m}, {tier_word(tier)}" for (tier, rate, m), n in sorted(rows.items())]
    return [f"{counted(len(links), 'port')} in use", *lines] if len(rows) > 1 else lines
