"""Every preset against what its source says, and the guide's table against the code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from syncline.fabric.bill import bill
from syncline.fabric.bisection import bisection
from syncline.fabric.build import build
from syncline.fabric.check import components
from syncline.fabric.fabric import DeviceKind, Fabric, Tier
from syncline.fabric.inventory import level_name, oversubscription
from syncline.fabric.load import load, presets
from syncline.fabric.spec import ClusterSpec

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "presets.md"


@dataclass(frozen=True)
class Published:
    """What a source says; what it does not say is left out and not tested."""

    source: str
    gpus: int
    hosts: int
    switches: dict[str, int] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    bisection_TBps: float | None = None


PUBLISHED = {
    "dgx-a100-superpod": Published(
        "RA-09950-001, compute fabric table, 140 hosts",
        1120, 140, {"leaf": 56, "spine": 80, "core": 28}, {"leaf": 1, "spine": 1}, 1120 * 25e-3 / 2,
    ),
    "dgx-h100-superpod": Published(
        "RA-11333-001 table 4, 4 SU: 127 hosts, 1,016 GPUs, 32 leaf, 16 spine",
        1016, 127, {"leaf": 32, "spine": 16}, {"leaf": 1},
    ),
    "dgx-h100-superpod-1su": Published(
        "RA-11333-001 table 4, 1 SU: 8 leaf, 4 spine; a unit is 32 hosts",
        256, 32, {"leaf": 8, "spine": 4}, {"leaf": 1}, 6.4,
    ),
    "selene": Published(
        "arXiv 2201.11990: 560 DGX A100; RA-09950-001: 8 leaves for 20 hosts",
        4480, 560, {"leaf": 224}, {"leaf": 1, "spine": 1}, 56.0,
    ),
    "eos": Published(
        "NVIDIA blog, February 2024: 576 DGX H100, 4,608 GPUs; RA-11333-001: 8 leaves for 32 hosts",
        4608, 576, {"leaf": 144}, {"leaf": 1, "spine": 1},
    ),
    "llama3-24k-roce": Published(
        "arXiv 2407.21783 section 3.3.1: 24,576 GPUs, 16 a rack, 192 racks a pod, 8 pods, 1:7",
        24576, 3072, {"leaf": 8 * 192}, {"leaf": 1, "spine": 7},
    ),
    "p4d-ultracluster": Published("AWS, P4d launch: 4,000 A100, non-blocking", 4000, 500, {}, {"leaf": 1}, 12.5),
    "p5-ultracluster": Published("AWS, P5: 20,000 H100, non-blocking", 20000, 2500, {}, {"leaf": 1, "spine": 1}),
    "p6-b200": Published("AWS, P6-B200: non-blocking; size ours", 4096, 512, {}, {"leaf": 1}),
    "nd-h100-v5": Published("MLPerf training v3.1, ND_H100_v5_n1344", 10752, 1344, {}, {"leaf": 1, "spine": 1}),
    "a3-mega": Published("Google Cloud, A3 Mega: 8 GPUs and 8 x 200 Gb/s; size ours", 1024, 128),
    "gb200-nvl72-pod": Published("DGX GB200 SuperPOD: 8 racks of 18 trays, 72 GPUs", 576, 144, {}, {"leaf": 1}, 14.4),
    "gb300-nvl72-pod": Published(
        "DGX B300 SuperPOD with Quantum-X800, table 3, 576 GPUs: 8 leaf, 4 spine",
        576, 144, {"leaf": 8, "spine": 4}, {"leaf": 1}, 28.8,
    ),
    "alps": Published("CSCS: 2,688 hosts, 10,752 GH200, 24 cabinets of at most 64 switches", 10752, 2688),
    "polaris": Published("ALCF: 560 hosts, 2,240 A100", 2240, 560),
    "frontier": Published(
        "glennklockwood.com: 9,408 hosts, 74 groups of 32 switches, blocking 512 / (4 x 73) = 1.753",
        37632, 9408, {"switch": 74 * 32}, {"global": 512 / (4 * 73)},
    ),
    "jean-zay": Published("BLOOM: 48 hosts, 384 A100, 4 links a host, non-blocking", 384, 48, {}, {"leaf": 1}, 1.2),
    "tpu-v4-pod": Published(
        "arXiv 2304.01433: 4,096 chips; cut of a 16 x 16 x 16 torus: 2 x 256 links of 50 GB/s", 4096, 1024, {}, {}, 25.6
    ),
    "tpu-v5p-pod": Published("Google Cloud, TPU v5p: 8,960 chips, 4 a host; 2 x 320 links of 100 GB/s", 8960, 2240),
    "old-10gbe": Published("an example: 4 servers of 4 GPUs, one switch", 16, 4, {"leaf": 1}, {}, 2.5e-3),
    "h100-64-rail": Published(
        "DGX B200 SuperPOD, component table, 2 SU: 64 hosts, 512 GPUs, 16 leaf, 8 spine",
        512, 64, {"leaf": 16, "spine": 8}, {"leaf": 1}, 12.8,
    ),
    "fat-tree-64port-2tier": Published(
        "k*k/2 endpoints, k leaf, k/2 spine", 2048, 256, {"leaf": 64, "spine": 32}, {"leaf": 1}, 51.2
    ),
    "fat-tree-1024": Published(
        "DGX B200 SuperPOD, component table, 1,024 GPUs: 32 leaf, 16 spine; not 1,536 as an article says",
        1024, 128, {"leaf": 32, "spine": 16}, {"leaf": 1}, 25.6,
    ),
    "h100-131k-3tier": Published(
        "a quarter of k*k*k/4 endpoints: k*k/8 leaf and spine, k*k/16 core",
        131072, 16384, {"leaf": 2048, "spine": 2048, "core": 1024}, {"leaf": 1, "spine": 1},
    ),
    "two-sites-wan": Published("an example: two sites of a unit", 512, 64, {"leaf": 16, "spine": 8}, {"leaf": 1}, 0.1),
    "deepseek-v3": Published(
        "arXiv 2505.09343: 2,048 H800, eight planes of two-layer fat-trees", 2048, 256, {}, {"leaf": 1}
    ),
}  # fmt: skip


@cache
def preset(name: str) -> Fabric:
    return load(name)


def by_tier(fabric: Fabric) -> dict[str, int]:
    levels = Counter(fabric.devices.level[fabric.devices.kind == DeviceKind.SWITCH].tolist())
    topology = fabric.spec.network.topology if fabric.spec.network else ""
    return {level_name(topology, level) or "border": count for level, count in sorted(levels.items())}


def test_every_preset_is_compared() -> None:
    assert set(PUBLISHED) == set(presets())


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_agree_with_the_source(name: str) -> None:
    fabric, published = preset(name), PUBLISHED[name]
    assert (fabric.num_gpus, fabric.num_hosts) == (published.gpus, published.hosts), published.source
    found = by_tier(fabric)
    assert {tier: found.get(tier) for tier in published.switches} == published.switches, published.source
    ratios = oversubscription(fabric)
    for tier, ratio in published.ratios.items():
        # Whole cables: the pods of Llama 3 have 384 cables down to 55 up, 6.98:1 for the 7:1 of the paper.
        assert ratios[tier] == pytest.approx(ratio, rel=0.005), published.source


@pytest.mark.parametrize("name", [name for name, p in PUBLISHED.items() if p.bisection_TBps is not None])
def test_bisection(name: str) -> None:
    expected = PUBLISHED[name].bisection_TBps
    assert expected is not None
    assert bisection(preset(name)).rate_Bps == pytest.approx(expected * 1e12, rel=1e-6)


@pytest.mark.parametrize("name", presets())
def test_is_whole_and_says_where_it_comes_from(name: str) -> None:
    fabric = preset(name)
    assert len(np.unique(components(fabric)[fabric.gpus])) == 1
    assert fabric.spec.source and fabric.spec.notes
    assert "\n" not in fabric.spec.notes and len(fabric.spec.notes) <= 120
    assert fabric.name == name
    costs = bill(fabric)
    assert costs.power_w > 0
    assert all(line.price_usd > 0 for line in costs.lines if line.unit_price_usd is not None)


@pytest.mark.parametrize(
    ("host", "link", "units", "hosts_per_unit", "leaf", "spine", "core"),
    [
        # NVIDIA DGX SuperPOD reference architecture, DGX H100 (RA-11333-001), table 4.
        ("dgx-h100", "NDR", 1, 32, 8, 4, 0),
        ("dgx-h100", "NDR", 2, 32, 16, 8, 0),
        ("dgx-h100", "NDR", 3, 32, 24, 16, 0),
        ("dgx-h100", "NDR", 4, 32, 32, 16, 0),
        # DGX B200, component table.
        ("dgx-b200", "NDR", 8, 32, 64, 32, 0),
        ("dgx-b200", "NDR", 16, 32, 128, 128, 64),
        ("dgx-b200", "NDR", 32, 32, 256, 256, 128),
        ("dgx-b200", "NDR", 64, 32, 512, 512, 256),
        # DGX B300 with Quantum-X800, table 3.
        ("dgx-b300", "XDR", 1, 72, 8, 4, 0),
        ("dgx-b300", "XDR", 2, 72, 16, 8, 0),
        ("dgx-b300", "XDR", 4, 72, 32, 18, 0),
        ("dgx-b300", "XDR", 8, 72, 64, 36, 0),
        ("dgx-b300", "XDR", 18, 72, 144, 72, 0),
    ],
)
def test_scalable_units_grow_as_published(
    host: str, link: str, units: int, hosts_per_unit: int, leaf: int, spine: int, core: int
) -> None:
    spec = {"hosts": units * hosts_per_unit, "host": host, "network": f"rail-optimized {link}"}
    found = by_tier(build(ClusterSpec.model_validate(spec)))
    assert (found["leaf"], found["spine"], found.get("core", 0)) == (leaf, spine, core)


def test_cables_of_the_h100_superpod() -> None:
    # RA-11333-001 table 4, row 4 SU: 1,020 cables of hosts and the fabric manager (4 of them), 1,024 leaf to spine.
    tiers = Counter(preset("dgx-h100-superpod").links.tier[::2].tolist())
    assert (tiers[Tier.ACCESS], tiers[Tier.LEAF_SPINE]) == (1016, 1024)


def test_multi_plane_of_deepseek_can_grow_to_what_the_paper_says() -> None:
    # arXiv 2505.09343, table 3, multi-plane fat-tree of 64-port switches: 16,384 endpoints, 768 switches.
    network = {"topology": "rail-only", "link": "NDR", "tiers": 2}
    fabric = build(ClusterSpec.model_validate({"hosts": "max", "host": "hgx-h800-8", "network": network}))
    assert (fabric.num_gpus, len(fabric.switches)) == (16384, 768)


def test_rail_groups_of_the_a100_superpod() -> None:
    fabric = preset("dgx-a100-superpod")
    links, devices = fabric.links, fabric.devices
    up = (links.tier == Tier.LEAF_SPINE) & (devices.level[links.src] == 1)
    rails_of_spine: dict[int, set[int]] = {}
    for leaf, spine in zip(links.src[up].tolist(), links.dst[up].tolist(), strict=True):
        rails_of_spine.setdefault(spine, set()).add(int(devices.rail[leaf]))
    assert len(rails_of_spine) == 80
    assert all(len(rails) == 1 for rails in rails_of_spine.values())


def test_optical_switches_and_cubes_of_the_tpu_pods() -> None:
    v4, v5p = preset("tpu-v4-pod"), preset("tpu-v5p-pod")
    assert int((v4.devices.kind == DeviceKind.OCS).sum()) == 48  # arXiv 2304.01433
    assert v4.facts["torus_shape"] == "16x16x16"
    assert v5p.facts["torus_shape"] == "16x20x28"
    assert len(np.unique(v4.rack_of_host)) == 64 and len(np.unique(v5p.rack_of_host)) == 140
    # Six links a chip, and no crossbar over the torus.
    out = np.bincount(v4.links.src[v4.links.tier == Tier.SCALE_UP], minlength=len(v4.devices))
    assert set(out[v4.gpus].tolist()) == {6}
    assert not (v4.devices.kind == DeviceKind.NVSWITCH).any()


def test_optical_links_of_a_tpu_v4_cube() -> None:
    # A cube has 96 optical links, 6 faces of 16: 6,144 in a pod (glennklockwood.com, TPUv4), which are 128 on each of
    # the 48 optical switches. A circuit joins two of them.
    fabric = preset("tpu-v4-pod")
    links, rack = fabric.links, fabric.rack_of_host[fabric.devices.host]
    torus = np.flatnonzero(links.tier == Tier.SCALE_UP)[::2]
    assert int((rack[links.src[torus]] != rack[links.dst[torus]]).sum()) == 64 * 96 // 2


def test_nvlink_domains_of_the_nvl72_pods() -> None:
    for name in ("gb200-nvl72-pod", "gb300-nvl72-pod"):
        fabric = preset(name)
        crossbars = np.flatnonzero(fabric.devices.kind == DeviceKind.NVSWITCH)
        joined = np.bincount(fabric.links.src[fabric.links.tier == Tier.SCALE_UP], minlength=len(fabric.devices))
        assert joined[crossbars].tolist() == [72] * 8


def test_hosts_of_a_cray_chassis_have_a_switch_for_each_nic() -> None:
    for name, nics in (("alps", 4), ("frontier", 4), ("polaris", 2)):
        fabric = preset(name)
        access = (fabric.links.tier == Tier.ACCESS) & (fabric.devices.kind[fabric.links.src] == DeviceKind.NIC)
        first = fabric.links.dst[access][: 2 * nics].tolist()
        assert len(set(first[:nics])) == nics and first[:nics] == first[nics:]


def test_racks_of_llama3_share_one_switch() -> None:
    fabric = preset("llama3-24k-roce")
    assert np.bincount(fabric.rack_of_host).tolist() == [2] * 1536


def test_the_table_of_the_guide_is_true() -> None:
    text = GUIDE.read_text("utf-8")
    for name in presets():
        assert table_row(preset(name)) in text
        assert preset(name).spec.source
    assert text.count("\n| `") == len(presets())


def table_row(fabric: Fabric) -> str:
    """Return a preset's row of docs/guides/presets.md."""
    counts = [f"{count:,} {tier}" for tier, count in by_tier(fabric).items()]
    optical = int((fabric.devices.kind == DeviceKind.OCS).sum())
    counts += [f"{optical} optical"] if optical else []
    ratios = ", ".join(f"{tier} {ratio:.3g}:1" for tier, ratio in oversubscription(fabric).items())
    return (
        f"| `{fabric.name}` | {fabric.num_gpus:,} | {fabric.num_hosts:,} | {', '.join(counts) or '-'} | "
        f"{ratios or '-'} |\n"
    )
