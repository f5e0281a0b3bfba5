"""Explicit graphs: cables as text or mapping, hosts that differ, and what each names wrongly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import FabricError
from syncline.fabric import ClusterSpec, Fabric, Tier, build
from syncline.fabric.inventory import inventory
from syncline.fabric.route import Routes
from syncline.fabric.topology.explicit import _from_text

HOST = {"model": "dgx-h100", "gpus": 2, "nics": 1}


def make(*cables: Any, hosts: Any = 2, host: Any = HOST, **network: Any) -> Fabric:
    switches = network.pop("switches", ["s"])
    graph = {"topology": "explicit", "switches": switches, "cables": list(cables)} | network
    whole = {"hosts": hosts, "network": graph} | ({"host": host} if host else {})
    return build(ClusterSpec.model_validate(whole))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("leaf-a <-> spine-0 : NDR x2", ("leaf-a", "spine-0", "NDR", 2)),
        ("leaf-a<->spine-0", ("leaf-a", "spine-0", None, 1)),
        ("leaf-a -- spine-0 : 400GbE", ("leaf-a", "spine-0", "400GbE", 1)),
        ("leaf-a - spine-0 x 4", ("leaf-a", "spine-0", None, 4)),
        ("host-00/nic-0 <-> box2", ("host-00/nic-0", "box2", None, 1)),
        ("a<->b : Omni-Path 100 x3", ("a", "b", "Omni-Path 100", 3)),
    ],
)
def test_cables_as_text(text: str, expected: tuple[Any, ...]) -> None:
    assert tuple(_from_text(text).values()) == expected


NAME = st.from_regex(r"[a-z]([a-z0-9/_.-]{0,8}[a-z0-9])?", fullmatch=True)


@given(NAME, NAME, st.sampled_from(["", " : NDR", ": 400GbE"]), st.integers(1, 64))
def test_any_two_names_can_be_joined(a: str, b: str, link: str, count: int) -> None:
    read = _from_text(f"{a} <-> {b}{link} x{count}")
    assert (read["a"], read["b"], read["link"] or "", read["count"]) == (a, b, link.lstrip(" :"), count)


@pytest.mark.parametrize("text", ["leaf-a", "leaf-a <->", "<-> b", "", "a b"])
def test_texts_that_are_no_cable(text: str) -> None:
    with pytest.raises(ValueError, match="is not a cable"):
        _from_text(text)


def test_cables_keep_what_is_said_of_them() -> None:
    fabric = make(
        {"a": "host-00/nic-0", "b": "s", "link": "NDR", "length": "2m", "rate": "200Gbps"},
        {"a": "host-01/nic-0", "b": "s", "rate": "10Gbps", "latency": "5us"},
        switches=[{"name": "s", "model": "QM9700"}],
    )
    access = [i for i in range(0, len(fabric.links), 2) if fabric.links.tier[i] == Tier.ACCESS]
    assert fabric.links.rate_Bps[access].tolist() == [25e9, 1.25e9]
    assert fabric.links.length_m[access].tolist() == [2.0, 0.0]
    assert fabric.links.latency_s[access[1]] == 5e-6
    assert fabric.links.latency_s[access[0]] > 300e-9  # the switch's own time is part of it
    counted = inventory(fabric)
    assert counted.cables == 2
    assert [line.part for line in counted.bill if line.unit_price_usd is None] == ["cable of a stated rate"]


def test_levels_make_tiers_and_racks_follow_the_first_switch() -> None:
    switches = [{"name": "a"}, {"name": "b"}, {"name": "up", "level": 2}, {"name": "top", "level": 3}]
    cables = ["host-00/nic-0 <-> a", "host-01/nic-0 <-> b", "a <-> b", "a <-> up x2", "b <-> up", "up <-> top"]
    fabric = make(*cables, switches=switches, link="NDR")
    names = {fabric.link_name(i): Tier(int(fabric.links.tier[i])) for i in range(len(fabric.links))}
    assert names["a -> b"] is Tier.GROUP_LOCAL
    assert names["a -> up"] is Tier.LEAF_SPINE
    assert names["up -> top"] is Tier.SPINE_CORE
    assert fabric.rack_of_host.tolist() == [0, 1]
    assert make(*cables, switches=switches, link="NDR", racks=[4, 4]).rack_of_host.tolist() == [0, 0]
    with pytest.raises(FabricError, match="`racks` has 1 entries but there are 2 hosts"):
        make(*cables, switches=switches, link="NDR", racks=[4])


def test_hosts_may_differ_and_unwired_nics_are_not_used() -> None:
    hosts = [{"count": 1, "host": {"model": "dgx-h100", "nics": 4}}, {"count": 1, "host": HOST}]
    fabric = make("host-00/nic-3 <-> s", "host-01/nic-0 <-> s", hosts=hosts, host=None, link="NDR")
    path = Routes(fabric).path(fabric.gpu(0, 0), fabric.gpu(1, 1))
    assert fabric.device("host-00/nic-3") in fabric.links.dst[path]
    assert inventory(fabric).endpoints == 2


@pytest.mark.parametrize(
    ("cables", "network", "message"),
    [
        (["host-00/nic-0 <-> s"], {"link": "NDR"}, "the fabric is not connected: 1 of 2 hosts cannot reach host-00."),
        (["host-00/nic-9 <-> s"], {"link": "NDR"}, 'there is no device "host-00/nic-9" for the cable'),
        (["host-00/nic-0 <-> s"], {}, 'the cable "host-00/nic-0" <-> "s" has neither a link nor a rate.'),
        ([], {"switches": ["s", "s"]}, 'two devices are called "s".'),
        ([], {"switches": ["host-00/nic-0"]}, 'two devices are called "host-00/nic-0".'),
        (
            ["host-00/nic-0 <-> s", "host-01/nic-0 <-> s : NDR x64"],
            {"link": "NDR", "switch": "QM9700"},
            'switch "s" has 65 ports in use but "QM9700" has 64.',
        ),
    ],
)
def test_graphs_that_cannot_be(cables: list[str], network: dict[str, Any], message: str) -> None:
    with pytest.raises(FabricError) as caught:
        make(*cables, **network)
    assert message in caught.value.message
    assert caught.value.hint


def test_the_links_over_the_limit_are_named() -> None:
    with pytest.raises(FabricError) as caught:
        make("host-00/nic-0 <-> s x3", "host-01/nic-0 <-> s x64", link="NDR", switch="QM9700")
    assert caught.value.detail == "Links over the limit: " + ", ".join(["s -> host-01/nic-0"] * 3)
