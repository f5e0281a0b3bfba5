"""The inventory: what a fabric amounts to, in the figures an architect asks for."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from syncline.describe.model import reported
from syncline.errors import RouteError
from syncline.fabric.bill import BillLine, bill
from syncline.fabric.bisection import bisection
from syncline.fabric.distance import chips_forward
from syncline.fabric.fabric import DeviceKind, Fabric, IntArray, LongArray, Tier
from syncline.fabric.faults import fault_words
from syncline.fabric.route import Routes
from syncline.fabric.topology import TOPOLOGIES

LEVEL_NAMES = {1: "leaf", 2: "spine", 3: "core"}
HOP_SAMPLE = 4096


@dataclass(frozen=True)
class Inventory:
    """Counts, bandwidths, price and power of one fabric, each computed from its columns; the fields are the JSON."""

    name: str
    topology: str
    gpus: int
    hosts: int
    gpu_models: dict[str, int]
    nics: int
    endpoints: int
    max_endpoints: int | None
    switches_by_tier: dict[str, int]
    """Network switches by tier and model: `{"leaf QM9700": 32, "spine QM9700": 16}`, `{"switch Rosetta": 80}`."""
    nvlink_domains_by_gpus: dict[int, int]
    """NVSwitch domains by size: `{72: 8}` is eight domains of 72 GPUs."""
    optical_switches: int
    ports: int
    """Switch ports in use."""
    cables_by_kind: dict[str, int]
    links_down: int
    faults: str
    """What the description says is broken: "64 NICs down"."""
    oversubscription: dict[str, float]
    bisection_Bps: float
    bisection_split: str
    """How the halves were chosen."""
    hops: dict[str, float]
    price_usd: float
    network_price_usd: float
    """What the network costs: switches, optics and cables, without NICs."""
    power_w: float
    unpriced: tuple[str, ...]
    bill: tuple[BillLine, ...]
    facts: dict[str, float | int | str]
    assumed: tuple[str, ...] = ()
    """What the description leaves open and was filled in, in words."""

    @reported
    def switches(self) -> int:
        return sum(self.switches_by_tier.values())

    @reported
    def nvlink_domains(self) -> int:
        return sum(self.nvlink_domains_by_gpus.values())

    @reported
    def cables(self) -> int:
        return sum(self.cables_by_kind.values())


def inventory(fabric: Fabric) -> Inventory:
    """Count and compute everything."""
    devices, links = fabric.devices, fabric.links
    at_switch = np.isin(devices.kind[links.src], (DeviceKind.SWITCH, DeviceKind.OCS))
    wired = links.cable >= 0
    access = (links.tier == Tier.ACCESS) & (devices.kind[links.src] == DeviceKind.NIC)
    largest = fabric.facts.get("max_endpoints")
    halves, bought = bisection(fabric), bill(fabric)
    return Inventory(
        name=fabric.name,
        topology=_topology(fabric),
        gpus=fabric.num_gpus,
        hosts=fabric.num_hosts,
        gpu_models=_count_parts(fabric, DeviceKind.GPU),
        nics=len(fabric.nics),
        endpoints=int(links.num_cables[access].sum()),
        max_endpoints=int(largest) if largest is not None else None,
        switches_by_tier=_switches(fabric),
        nvlink_domains_by_gpus=_nvlink_domains(fabric),
        optical_switches=int((devices.kind == DeviceKind.OCS).sum()),
        ports=int(links.num_cables[at_switch & wired].sum()),
        cables_by_kind=_count_cables(fabric),
        links_down=int((~links.up).sum()),
        faults=fault_words(fabric, fabric.spec.faults),
        oversubscription=oversubscription(fabric),
        bisection_Bps=halves.rate_Bps,
        bisection_split=halves.split,
        hops=hops(fabric),
        price_usd=bought.price_usd,
        network_price_usd=bought.network_price_usd,
        power_w=bought.power_w,
        unpriced=bought.unpriced,
        bill=bought.lines,
        facts={key: value for key, value in fabric.facts.items() if key != "max_endpoints"},
    )


def oversubscription(fabric: Fabric) -> dict[str, float]:
    """Return down to up bandwidth of each tier, for the switch of the tier where it is worst."""
    devices, links = fabric.devices, fabric.links
    level = devices.level.astype(np.int64)
    ratios: dict[str, float] = {}
    up = links.up & (links.tier >= Tier.ACCESS) & (links.tier != Tier.WAN)
    for number, name in LEVEL_NAMES.items():
        here = up & (level[links.src] == number) & (devices.kind[links.src] == DeviceKind.SWITCH)
        down_rate = _rates(fabric, here & (level[links.dst] < number))
        up_rate = _rates(fabric, here & (level[links.dst] > number))
        both = (up_rate > 0) & (down_rate > 0)
        if both.any():
            ratios[name] = float((down_rate[both] / up_rate[both]).max())
    _add_group_ratio(fabric, ratios, up)
    _add_site_ratio(fabric, ratios)
    return ratios


def built_otherwise(fabric: Fabric) -> tuple[str, ...]:
    """Return in words where whole ports and whole switches gave another oversubscription than the description asks."""
    asked = getattr(fabric.spec.network, "oversubscription", None)
    built = oversubscription(fabric).get("leaf")
    if asked is None or built is None or fabric.spec.faults or abs(built / asked - 1) < 0.01:
        return ()
    return (f"{asked:g}:1 was asked for and {built:.3g}:1 is built at the leaves: ports and switches are whole",)


def _add_group_ratio(fabric: Fabric, ratios: dict[str, float], up: np.ndarray) -> None:
    devices, links = fabric.devices, fabric.links
    for tier, name in ((Tier.GROUP_GLOBAL, "global"), (Tier.OPTICAL, "optical")):
        out = up & (links.tier == tier)
        if out.any():
            group = devices.group[links.src]
            count = int(group[out].max()) + 1
            leaving = np.bincount(group[out], weights=links.rate_Bps[out], minlength=count)
            entering = up & (links.tier == Tier.ACCESS) & (devices.kind[links.src] == DeviceKind.SWITCH)
            ends = np.bincount(group[entering], weights=links.rate_Bps[entering], minlength=count)
            if tier is Tier.OPTICAL:
                ends = np.full(count, links.rate_Bps[entering].sum() / count)
            both = (leaving > 0) & (ends[:count] > 0)
            ratios[name] = float((ends[:count][both] / leaving[both]).max())


def _add_site_ratio(fabric: Fabric, ratios: dict[str, float]) -> None:
    devices, links = fabric.devices, fabric.links
    between = links.up & (links.tier == Tier.WAN) & (devices.site[links.src] != devices.site[links.dst])
    if between.any():
        site = devices.site[links.src].astype(np.int64)
        leaving = np.bincount(site[between], weights=links.rate_Bps[between])
        access = (links.tier == Tier.ACCESS) & (devices.kind[links.src] == DeviceKind.NIC)
        ends = np.bincount(site[access], weights=links.rate_Bps[access], minlength=len(leaving))
        ratios["wan"] = float((ends / np.maximum(leaving, 1e-300)).max())


def _rates(fabric: Fabric, rows: np.ndarray) -> np.ndarray:
    links = fabric.links
    return np.bincount(links.src[rows], weights=links.rate_Bps[rows], minlength=len(fabric.devices))


def hops(fabric: Fabric) -> dict[str, float]:
    """Return mean and largest number of switches (chips, in a chip torus) between two hosts, over sampled pairs.

    `cut_off` counts the pairs that faults leave without a path; the figures are over the others.
    """
    num_hosts = fabric.num_hosts
    if num_hosts < 2:
        return {}
    rng = np.random.default_rng(0)
    if num_hosts <= 64:
        a, b = np.nonzero(~np.eye(num_hosts, dtype=bool))
    else:
        a = rng.integers(0, num_hosts, HOP_SAMPLE)
        b = (a + rng.integers(1, num_hosts, HOP_SAMPLE)) % num_hosts
    first = np.full(num_hosts, -1, np.int64)
    first[fabric.gpu_host[::-1]] = fabric.gpus[::-1]
    kinds = (DeviceKind.GPU,) if chips_forward(fabric) else (DeviceKind.SWITCH, DeviceKind.NVSWITCH)
    crossed = [
        np.isin(fabric.devices.kind[fabric.links.dst[path]], kinds).sum()
        for path in _joined(fabric, first[a], first[b])
    ]
    if not crossed:
        return {"pairs": 0, "cut_off": len(a)}
    return {
        "mean": float(np.mean(crossed)),
        "max": int(max(crossed)),
        "pairs": len(crossed),
        "cut_off": len(a) - len(crossed),
    }


def _joined(fabric: Fabric, src: LongArray, dst: LongArray) -> list[IntArray]:
    """Return the paths of those pairs that have one."""
    routes = Routes(fabric)
    try:
        paths = routes.many(src, dst)
        return [paths[i] for i in range(len(paths))]
    except RouteError:  # some pair is cut off: ask for each by itself
        joined = []
        for a, b in zip(src.tolist(), dst.tolist(), strict=True):
            with suppress(RouteError):
                joined.append(routes.path(a, b))
        return joined


def level_name(topology: str, level: int) -> str:
    """Return what a switch of a level is called, or "" where it has no name. A dragonfly or torus has no leaves."""
    known = TOPOLOGIES.get(topology)
    own = known.switch_word if known is not None and level in (1, 2, 3) else ""
    return own or LEVEL_NAMES.get(level, "")


def _switches(fabric: Fabric) -> dict[str, int]:
    devices, mine = fabric.devices, fabric.switches
    sites = [site.network.topology for site in fabric.spec.sites]
    rows = np.stack((devices.site[mine], devices.level[mine], devices.part[mine]), axis=1).astype(np.int64)
    counts: Counter[str] = Counter()
    for (site, level, part), count in zip(*np.unique(rows, axis=0, return_counts=True), strict=True):
        topology = sites[site] if sites else _topology(fabric)
        counts[f"{level_name(topology, int(level))} {fabric.parts[part]}".strip()] += int(count)
    return dict(counts)


def _topology(fabric: Fabric) -> str:
    return fabric.spec.network.topology if fabric.spec.network else ("sites" if fabric.spec.sites else "host")


def _count_parts(fabric: Fabric, kind: DeviceKind) -> dict[str, int]:
    parts, counts = np.unique(fabric.devices.part[fabric.devices.kind == kind], return_counts=True)
    return {fabric.parts[p]: int(c) for p, c in zip(parts, counts, strict=True)}


def _count_cables(fabric: Fabric) -> dict[str, int]:
    bought = fabric.links.cable[::2] >= 0
    kind, count = fabric.links.cable[::2][bought], fabric.links.num_cables[::2][bought]
    counts = np.bincount(kind, weights=count, minlength=len(fabric.cables))
    return {name: int(number) for name, number in zip(fabric.cables, counts, strict=True)}


def _nvlink_domains(fabric: Fabric) -> dict[int, int]:
    kind, links = fabric.devices.kind, fabric.links
    inward = (kind[links.src] == DeviceKind.GPU) & (kind[links.dst] == DeviceKind.NVSWITCH)
    crossbars = np.unique(links.dst[inward], return_counts=True)[1]
    sizes, counts = np.unique(crossbars, return_counts=True)
    return {int(size): int(count) for size, count in zip(sizes, counts, strict=True)}
