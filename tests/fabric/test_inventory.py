"""The inventory and its bill: the figures of `syncline fabric show --json`, each from the columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

import syncline
from syncline.fabric import ClusterSpec, Fabric, build, load
from syncline.fabric.bill import bill
from syncline.fabric.catalog import load_catalog
from syncline.fabric.inventory import built_otherwise, inventory
from syncline.fabric.link_rows import links_by_tier, links_of
from syncline.report.text.fabric import inventory_lines, part_rows

CATALOG = load_catalog()


def make(hosts: Any, network: Any, host: Any = "dgx-h100", **more: Any) -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network, **more}))


def test_json_has_what_was_promised() -> None:
    found: Any = syncline.inventory("h100-64-rail").to_json()
    promised = {
        "gpus",
        "hosts",
        "switches",
        "ports",
        "cables",
        "bisection_Bps",
        "oversubscription",
        "price_usd",
        "power_w",
    }
    assert promised <= set(found)
    assert (found["gpus"], found["hosts"], found["switches"], found["ports"]) == (512, 64, 24, 1536)
    assert (found["cables"], found["bisection_Bps"], found["oversubscription"]) == (1024, 12.8e12, {"leaf": 1.0})
    assert found["hops"] == found["hops"] | {"max": 3, "cut_off": 0}
    assert found["nvlink_domains_by_gpus"] == {"8": 64}
    json.dumps(found, allow_nan=False)


def test_the_bill_adds_up() -> None:
    fabric = load("h100-64-rail")
    lines = bill(fabric).lines
    host, switch = CATALOG.host("dgx-h100"), CATALOG.switch("QM9700")
    assert [(line.kind, line.count) for line in lines] == [("host", 64), ("switch", 24), ("cable", 512), ("cable", 512)]
    assert lines[0].price_usd == 64 * host.price_usd  # type: ignore[operator]
    assert lines[1].power_w == 24 * switch.power_w
    assert bill(fabric).price_usd == sum(line.price_usd for line in lines)
    assert bill(fabric).network_price_usd == bill(fabric).price_usd - lines[0].price_usd
    assert all(line.source for line in lines)


def test_hosts_that_differ_in_anything_are_lines_of_their_own() -> None:
    hosts = [{"count": 2, "host": "dgx-h100"}, {"count": 1, "host": {"model": "dgx-h100", "price_usd": 5}},
             {"count": 3, "host": "dgx-h100"}]  # fmt: skip
    fabric = build(ClusterSpec.model_validate({"hosts": hosts, "network": "fat-tree NDR"}))
    lines = [line for line in bill(fabric).lines if line.kind == "host"]
    assert [(line.count, line.unit_price_usd) for line in lines] == [(5, CATALOG.host("dgx-h100").price_usd), (1, 5.0)]


def test_a_part_of_our_own_is_priced() -> None:
    parts = {"switch": [{"name": "our-tor", "like": "QM9700", "price_usd": 41000}]}
    fabric = make(16, {"topology": "fat-tree", "link": "NDR", "switch": "our-tor"}, parts=parts)
    (line,) = [line for line in bill(fabric).lines if line.kind == "switch"]
    assert (line.part, line.unit_price_usd, line.estimate) == ("our-tor", 41000, False)


def test_text_for_people() -> None:
    text = "\n".join(inventory_lines(inventory(load("h100-64-rail"))))
    assert text.startswith("h100-64-rail: 512 H100-SXM5-80GB in 64 hosts, rail-optimized\n")
    assert "24 switches (16 leaf QM9700 + 8 spine QM9700), 1,536 switch ports in use, 1,024 cables" in text
    assert "bisection 12.8 TB/s" in text
    one = "\n".join(inventory_lines(inventory(make(1, "fat-tree NDR"))))
    assert "in 1 host, fat-tree" in one
    assert "1 switch (1 leaf QM9700)" in one
    assert "1 NVLink domain of 8 GPUs" in one
    faulty = make(2, "fat-tree NDR", faults=[{"link": "host-00/nic-0 <-> leaf-00"}, {"device": "host-01/nic-0"}])
    assert "1 cable down, 1 NIC down" in "\n".join(inventory_lines(inventory(faulty)))
    cut = make(2, "fat-tree NDR", faults=[{"device": "leaf-00"}])
    assert "none; 2 of 2 pairs are cut off" in "\n".join(inventory_lines(inventory(cut)))


def test_unpriced_parts_are_named() -> None:
    text = "\n".join(inventory_lines(inventory(load("tpu-v4-pod"))))
    assert "without tpu-v4-host (4 x TPU-v4), which have no price" in text
    assert "no switches, 48 optical switches" in text
    assert "chips between two hosts" in text


def test_parts_for_people() -> None:
    rows = dict(part_rows(CATALOG.switch("QM9700").model_dump(mode="json", exclude_none=True)))
    assert rows["latency_s"].startswith("300 ns (estimate: ") and rows["power_w"].startswith("747 W (estimate: ")
    assert rows["modes"].startswith("link NDR, num_ports 64; ")
    assert rows["aliases"] == "Quantum-2; MQM9700"
    assert rows["adaptive_routing"] == "yes"
    assert all(rows.values())


def test_links_by_tier_and_by_device() -> None:
    fabric = load("h100-64-rail")
    rows = links_by_tier(fabric)
    assert sum(row.count for row in rows) == sum(row.up for row in rows) == len(fabric.links)
    assert {row.tier for row in rows} == {"scale-up", "pcie", "socket", "access", "leaf-spine"}
    mine = links_of(fabric, fabric.device("leaf-03"))
    assert len(mine) == 64 and mine[0].link == "leaf-03 -> host-00/nic-3"


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ({"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 6, "oversubscription": 3}, {"leaf": 3.0}),
        ({"topology": "fat-tree", "link": "NDR", "tiers": 3, "spine_oversubscription": 2}, {"leaf": 1.0, "spine": 2.0}),
    ],
)
def test_oversubscription_by_tier(network: dict[str, Any], expected: dict[str, float]) -> None:
    found = inventory(make(48, network)).oversubscription
    assert found == pytest.approx(expected, rel=0.05)


def test_a_dragonfly_has_switches_and_a_torus_routers_but_no_leaves() -> None:
    polaris = inventory(load("polaris"))
    assert polaris.switches_by_tier == {"switch Rosetta": 80}
    assert "80 switches (80 Rosetta), 4,160 switch ports in use" in "\n".join(inventory_lines(polaris))
    network = {"topology": "torus", "of": "hosts", "shape": "2x2", "link": "HDR"}
    torus = make(4, network, {"gpu": "A100", "nics": 1})
    assert inventory(torus).switches_by_tier == {"router QM8700": 4}
    assert "leaf" not in "\n".join(inventory_lines(inventory(torus)))


def test_hosts_without_a_switch_or_a_price_are_described_as_such() -> None:
    network = {"topology": "explicit", "link": "HDR", "cables": ["host-00/nic-0 <-> host-01/nic-0"]}
    pair = make(2, network, {"gpu": "A100", "nics": 1})
    lines = "\n".join(inventory_lines(inventory(pair)))
    assert "no switches, 1 cable\n" in lines
    assert "from NIC to NIC, without a switch" in lines
    chips = make(8, "torus 2x2x2", {"gpu": "TPU-v5p", "gpus": 1})
    assert "price      not known: tpu-v5p-host" in "\n".join(inventory_lines(inventory(chips)))


def test_another_ratio_than_was_asked_for_is_stated() -> None:
    """Four hosts of 8 ports a leaf, 3:1: eleven uplinks are the fewest that reach it, which is 2.91:1."""
    network = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 4}
    asked, met = (build(ClusterSpec.model_validate({"hosts": 16, "host": "dgx-h100", "network": {
        **network, "oversubscription": ratio}})) for ratio in ("3:1", "2:1"))  # fmt: skip
    assert built_otherwise(met) == ()
    assert built_otherwise(asked) == (
        "3:1 was asked for and 2.91:1 is built at the leaves: ports and switches are whole",
    )
