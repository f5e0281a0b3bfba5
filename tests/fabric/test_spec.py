"""Descriptions: short forms, host lists, and hosts that follow the catalogue with changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from syncline.describe.hostlist import expand
from syncline.errors import DescriptionError, FabricError
from syncline.fabric.catalog import load_catalog
from syncline.fabric.spec import ClusterSpec, HostSpec, host_from_text, network_from_text

CATALOG = load_catalog()


def test_three_lines_are_a_cluster() -> None:
    spec = ClusterSpec.model_validate({"hosts": 64, "host": "8 x H100", "network": "rail-optimized NDR"})
    assert spec.hosts[0].count == 64
    assert spec.hosts[0].host.resolve(CATALOG).name == "dgx-h100"
    assert spec.network is not None and (spec.network.topology, spec.network.link) == ("rail-optimized", "NDR")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fat-tree NDR", {"topology": "fat-tree", "link": "NDR"}),
        ("leaf-spine 400GbE 3:1", {"topology": "leaf-spine", "link": "400GbE", "oversubscription": "3:1"}),
        ("3:1 NDR Leaf-Spine", {"topology": "leaf-spine", "link": "NDR", "oversubscription": "3:1"}),
        ("torus 4x4x4", {"topology": "torus", "shape": [4, 4, 4]}),
        ("fat-tree Omni-Path 100", {"topology": "fat-tree", "link": "Omni-Path 100"}),
        ("fat-tree NDR 1.5:1", {"topology": "fat-tree", "link": "NDR", "oversubscription": "1.5:1"}),
    ],
)
def test_networks_as_text(text: str, expected: dict[str, Any]) -> None:
    assert network_from_text(text) == expected


@pytest.mark.parametrize("text", ["NDR", "", "fat-trie NDR"])
def test_a_network_without_a_topology(text: str) -> None:
    with pytest.raises(ValueError, match="names no topology; known: fat-tree"):
        network_from_text(text)


@pytest.mark.parametrize("text", ["8 x H100", "8xH100", " 8 × H100 "])
def test_hosts_as_text(text: str) -> None:
    assert host_from_text(text) == {"gpu": "H100", "gpus": 8}
    assert host_from_text("dgx-h100") == {"model": "dgx-h100"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu[001-003,007]", ["gpu001", "gpu002", "gpu003", "gpu007"]),
        ("a[8-11]b", ["a8b", "a9b", "a10b", "a11b"]),
        ("x, y,z", ["x", "y", "z"]),
        ("one", ["one"]),
    ],
)
def test_host_lists(text: str, expected: list[str]) -> None:
    assert expand(text) == expected


@given(st.integers(0, 500), st.integers(0, 60), st.integers(1, 5))
def test_ranges_of_a_host_list(first: int, more: int, width: int) -> None:
    names = expand(f"n[{first:0{width}d}-{first + more:0{width}d}]")
    assert len(set(names)) == more + 1
    assert [int(name[1:]) for name in names] == list(range(first, first + more + 1))


@pytest.mark.parametrize("text", ["n[3-1]", "n[-4]", "n[4-]", "n[,]", "n[0-9999999999]"])
def test_host_lists_that_are_none(text: str) -> None:
    with pytest.raises(DescriptionError, match=r"cannot read|names more than 1,000,000 hosts"):
        expand(text)


def refused(**description: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        ClusterSpec.model_validate(description)
    return str(caught.value.errors()[0]["msg"])


HOSTS: dict[str, Any] = {"hosts": 2, "host": "dgx-h100", "network": "fat-tree NDR"}


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (HOSTS | {"hosts": 0}, "0 hosts; a cluster has 1 to 1,000,000"),
        (HOSTS | {"hosts": -1}, "-1 hosts; a cluster has 1 to 1,000,000"),
        (HOSTS | {"hosts": 10**9}, "1,000,000,000 hosts; a cluster has 1 to 1,000,000"),
        (HOSTS | {"hosts": True}, '"True" is not a number of hosts'),
        (HOSTS | {"hosts": 2.5}, '"2.5" is not a number of hosts'),
        (HOSTS | {"hosts": "many"}, '"many" is not a number of hosts'),
        (HOSTS | {"host_names": ["a", "a"]}, 'two hosts are called "a"'),
        (HOSTS | {"host_names": ["a"]}, "count is 2 but there are 1 names"),
        (HOSTS | {"host_names": ["a/b", "c"]}, '"a/b" is not a host name'),
        (HOSTS | {"host_names": ["a <-> b", "c"]}, '"a <-> b" is not a host name'),
        ({"hosts": 2, "network": "fat-tree NDR"}, "add `host: 8 x H100` to say what they are"),
        ({"hosts": [{"count": 1, "host": "p5"}], "host": "p5"}, "`host` belongs inside each group"),
        ({"network": "fat-tree NDR"}, "describe either `hosts` and `host` (one site) or `sites`"),
        (HOSTS | {"host": {"nics": 3}}, "a host needs `model: dgx-h100` or `gpu: H100`"),
        ({"sites": [{"name": "a"} | HOSTS, {"name": "b"} | HOSTS]}, "several `sites` need a `wan`"),
        (
            {"sites": [{"name": "a"} | HOSTS, {"name": "a"} | HOSTS], "wan": {"rate": "1Gbps"}},
            "two sites have the same name",
        ),
    ],
)
def test_descriptions_that_break_a_rule(description: dict[str, Any], message: str) -> None:
    assert message in refused(**description)


def test_a_host_follows_its_model_with_changes() -> None:
    host = HostSpec(model="dgx-h100", gpus=4, price_usd=1000.0, nic_path_cap=19e9).resolve(CATALOG)
    assert (host.num_gpus, host.num_nics, host.price_usd) == (4, 4, 1000.0)
    assert (host.price_source, host.price_is_estimate) == ("cluster file", False)
    assert (host.nic_path_cap_Bps, host.nic_path_cap_source) == (19e9, "cluster file")
    half = HostSpec(model="dgx-h100", gpus=4).resolve(CATALOG)
    assert half.price_usd == CATALOG.host("dgx-h100").price_usd / 2  # type: ignore[operator]
    assert HostSpec(gpu="T4", gpus=2).resolve(CATALOG).gpu == "T4"


def test_a_link_follows_the_nic() -> None:
    assert HostSpec(model="dgx-h100", nic="ConnectX-8").resolve(CATALOG).link == "XDR"
    assert HostSpec(model="dgx-h100", nic="ConnectX-8", link="ndr").resolve(CATALOG).link == "NDR"
    assert HostSpec(model="dgx-h100", nics=0).resolve(CATALOG).link is None


def test_nics_need_a_name() -> None:
    bare = {"name": "bare", "like": "dgx-h100", "nic": None, "num_nics": 0, "link": None}
    with pytest.raises(FabricError, match="the host has 2 NICs, but neither it nor bare says which"):
        HostSpec(model="bare", nics=2).resolve(CATALOG.with_parts({"host": [bare]}))
