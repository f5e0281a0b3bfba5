"""The inventory: what a fabric amounts to, in the figures an architect asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.fabric.bill import Bill, bill
from syncline.fabric.bisection import Bisection, bisection
from syncline.fabric.distance import chips_forward
from syncline.fabric.fabric import Fabric, Kind, Tier
from syncline.fabric.route import Routes

LEVEL_NAMES = {1: "leaf", 2: "spine", 3: "core"}
HOP_SAMPLE = 4096


@dataclass(frozen=True)
class Inventory:
    """Counts, bandwidths, price and power of one fabric, each computed from its columns."""

    name: str
    topology: str
    num_gpus: int
    num_hosts: int
    gpu_models: Mapping[str, int]
    num_nics: int
    num_endpoints: int
    max_endpoints: int | None
    switches: Mapping[str, int]
    """Network switches by tier and model: `{"leaf QM9700": 32, "spine QM9700": 16}`."""
    num_nvswitch_domains: int
    num_optical_switches: int
    num_ports: int
    """Switch ports in use."""
    cables: Mapping[str, int]
    links_down: int
    oversubscription: Mapping[str, float]
    bisection: Bisection
    hops: Mapping[str, float]
    bill: Bill
    facts: Mapping[str, float | int | str]

    def to_json(self) -> dict[str, Any]:
        """Return the object that `syncline fabric show --json` prints."""
        return {
            "name": self.name,
            "topology": self.topology,
            "gpus": self.num_gpus,
            "hosts": self.num_hosts,
            "gpu_models": dict(self.gpu_models),
            "nics": self.num_nics,
            "endpoints": self.num_endpoints,
            "max_endpoints": self.max_endpoints,
            "switches": sum(self.switches.values()),
            "switches_by_tier": dict(self.switches),
            "nvlink_domains": self.num_nvswitch_domains,
            "optical_switches": self.num_optical_switches,
            "ports": self.num_ports,
            "cables": sum(self.cables.values()),
            "cables_by_kind": dict(self.cables),
            "links_down": self.links_down,
            "oversubscription": dict(self.oversubscription),
            "bisection_Bps": self.bisection.rate_Bps,
            "bisection_split": self.bisection.split,
            "hops": dict(self.hops),
            "price_usd": self.bill.price_usd,
            "network_price_usd": self.bill.network_price_usd,
            "power_w": self.bill.power_w,
            "unpriced": list(self.bill.unpriced),
            "bill": [
                {
                    "kind": line.kind,
                    "part": line.part,
                    "count": line.count,
                    "unit_price_usd": line.unit_price_usd,
                    "price_usd": line.price_usd,
                    "power_w": line.power_w,
                    "source": line.source,
                    "estimate": line.is_estimate,
                }
                for line in self.bill.lines
            ],
            "facts": {k: v for k, v in self.facts.items() if k != "max_endpoints"},
        }


def inventory(fabric: Fabric) -> Inventory:
    """Count and compute everything."""
    devices, links = fabric.devices, fabric.links
    at_switch = np.isin(devices.kind[links.src], (Kind.SWITCH, Kind.OCS))
    wired = links.cable >= 0
    access = (links.tier == Tier.ACCESS) & (devices.kind[links.src] == Kind.NIC)
    largest = fabric.facts.get("max_endpoints")
    return Inventory(
        name=fabric.name,
        topology=fabric.spec.network.topology if fabric.spec.network else ("sites" if fabric.spec.sites else "host"),
        num_gpus=fabric.num_gpus,
        num_hosts=fabric.num_hosts,
        gpu_models=_count_parts(fabric, Kind.GPU),
        num_nics=len(fabric.nics),
        num_endpoints=int(access.sum()),
        max_endpoints=int(largest) if largest is not None else None,
        switches=_switches(fabric),
        num_nvswitch_domains=int((devices.kind == Kind.NVSWITCH).sum()),
        num_optical_switches=int((devices.kind == Kind.OCS).sum()),
        num_ports=int((at_switch & wired).sum()),
        cables=_count_cables(fabric),
        links_down=int((~links.up).sum()),
        oversubscription=oversubscription(fabric),
        bisection=bisection(fabric),
        hops=hops(fabric),
        bill=bill(fabric),
        facts=fabric.facts,
    )


def oversubscription(fabric: Fabric) -> dict[str, float]:
    """Return down to up bandwidth of each tier, for the switch of the tier where it is worst."""
    devices, links = fabric.devices, fabric.links
    level = devices.level.astype(np.int64)
    ratios: dict[str, float] = {}
    up = links.up & (links.tier >= Tier.ACCESS) & (links.tier != Tier.WAN)
    for number, name in LEVEL_NAMES.items():
        here = up & (level[links.src] == number) & (devices.kind[links.src] == Kind.SWITCH)
        down_rate = _rates(fabric, here & (level[links.dst] < number))
        up_rate = _rates(fabric, here & (level[links.dst] > number))
        both = (up_rate > 0) & (down_rate > 0)
        if both.any():
            ratios[name] = float((down_rate[both] / up_rate[both]).max())
    _add_group_ratio(fabric, ratios, up)
    _add_site_ratio(fabric, ratios)
    return ratios


def _add_group_ratio(fabric: Fabric, ratios: dict[str, float], up: np.ndarray) -> None:
    devices, links = fabric.devices, fabric.links
    for tier, name in ((Tier.GROUP_GLOBAL, "global"), (Tier.OPTICAL, "optical")):
        out = up & (links.tier == tier)
        if out.any():
            group = devices.group[links.src]
            count = int(group[out].max()) + 1
            leaving = np.bincount(group[out], weights=links.rate_Bps[out], minlength=count)
            entering = up & (links.tier == Tier.ACCESS) & (devices.kind[links.src] == Kind.SWITCH)
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
        access = (links.tier == Tier.ACCESS) & (devices.kind[links.src] == Kind.NIC)
        ends = np.bincount(site[access], weights=links.rate_Bps[access], minlength=len(leaving))
        ratios["wan"] = float((ends / np.maximum(leaving, 1e-300)).max())


def _rates(fabric: Fabric, rows: np.ndarray) -> np.ndarray:
    links = fabric.links
    return np.bincount(links.src[rows], weights=links.rate_Bps[rows], minlength=len(fabric.devices))


def hops(fabric: Fabric) -> dict[str, float]:
    """Return mean and largest number of switches (chips, in a chip torus) between two hosts, over sampled pairs."""
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
    paths = Routes(fabric).many(first[a], first[b], policy="ecmp")
    kinds = fabric.devices.kind[fabric.links.dst[paths.links]]
    crossed = np.isin(kinds, (Kind.SWITCH, Kind.NVSWITCH))
    if chips_forward(fabric):
        crossed = kinds == Kind.GPU
    total = np.concatenate(([0], np.cumsum(crossed)))
    each = total[paths.start[1:]] - total[paths.start[:-1]]
    return {"mean": float(each.mean()), "max": float(each.max()), "pairs": float(len(each))}


def _switches(fabric: Fabric) -> dict[str, int]:
    mine = fabric.switches
    counts: dict[str, int] = {}
    keys = np.stack((fabric.devices.level[mine].astype(np.int64), fabric.devices.part[mine].astype(np.int64)))
    if len(mine) == 0:
        return counts
    for (level, part), count in zip(*_unique_columns(keys), strict=True):
        counts[f"{LEVEL_NAMES.get(int(level), 'border')} {fabric.parts[int(part)]}"] = int(count)
    return counts


def _unique_columns(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, counts = np.unique(keys, axis=1, return_counts=True)
    return values.T, counts


def _count_parts(fabric: Fabric, kind: Kind) -> dict[str, int]:
    parts, counts = np.unique(fabric.devices.part[fabric.devices.kind == kind], return_counts=True)
    return {fabric.parts[p]: int(c) for p, c in zip(parts, counts, strict=True)}


def _count_cables(fabric: Fabric) -> dict[str, int]:
    kinds, counts = np.unique(fabric.links.cable[::2], return_counts=True)
    return {fabric.cables[k]: int(c) for k, c in zip(kinds, counts, strict=True) if k >= 0}
