"""Labels are Kubernetes labels, name the places topograph would, and lead back to the tree."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import DescriptionError, FabricError
from syncline.fabric import build
from syncline.fabric.formats import import_fabric
from syncline.fabric.formats.topograph import (
    fnv64a,
    host_labels,
    kubernetes_name,
    label_value,
    parse_topograph,
    write_topograph,
)
from syncline.fabric.formats.tree import tree_of

PREFIX = "network.topology.nvidia.com/"
VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")


def test_labels_say_domain_leaf_spine_and_core(fabric_of):
    assert host_labels(fabric_of("nvl72"))["host-20"] == {
        f"{PREFIX}accelerator": "nvl-01", f"{PREFIX}leaf": "leaf-04", f"{PREFIX}spine": "spine-00",
    }  # fmt: skip
    assert f"{PREFIX}accelerator" not in host_labels(fabric_of("fat-tree"))["host-00"]
    dragonfly = host_labels(fabric_of("dragonfly"))["host-00"]
    assert [dragonfly[PREFIX + key] for key in ("leaf", "spine", "core")] == [
        "group-00-switch-00",
        "group-00",
        "fabric",
    ]


def test_newer_names_number_the_tiers(fabric_of):
    assert host_labels(fabric_of("nvl72"), labels="tiers")["host-00"] == {
        "accelerator.topograph.run/domain": "nvl-00",
        "fabric.topograph.run/tier-0": "leaf-00",
        "fabric.topograph.run/tier-1": "spine-00",
    }


def test_all_labels_are_valid_and_lead_back_to_the_tree(any_fabric):
    text = write_topograph(any_fabric)
    for item in yaml.safe_load(text)["items"]:
        assert item["kind"] == "Node"
        assert all(VALUE.match(value) for value in item["metadata"]["labels"].values())
    tree = tree_of(any_fabric)
    assert {(s.name, s.hosts) for s in parse_topograph(text) if s.hosts} == {(s.name, s.hosts) for s in tree if s.hosts}


def test_json_holds_the_same_and_builds(fabric_of, tmp_path):
    fabric = fabric_of("rail-optimized")
    text = write_topograph(fabric, form="json")
    assert json.loads(text) == yaml.safe_load(write_topograph(fabric))
    (tmp_path / "labels.json").write_text(text)
    again = build(import_fabric(tmp_path / "labels.json", host="dgx-h100"))
    assert again.host_names == fabric.host_names
    assert (again.rack_of_host == fabric.rack_of_host).all()


def test_what_kubectl_prints_is_read():
    text = """
apiVersion: v1
kind: List
items:
- metadata:
    name: n1
    labels:
      kubernetes.io/os: linux
      network.topology.nvidia.com/block: b1
      network.topology.nvidia.com/spine: s1
      network.topology.nvidia.com/datacenter: d1
- metadata:
    name: n2
    labels: {fabric.topograph.run/tier-0: b2, fabric.topograph.run/tier-1: s1, fabric.topograph.run/tier-2: d1}
- metadata: {name: control-plane, labels: {}}
"""
    tree = {(s.name, s.hosts or s.children) for s in parse_topograph(text)}
    assert tree == {("b1", ("n1",)), ("b2", ("n2",)), ("s1", ("b1", "b2")), ("d1", ("s1",))}


def test_a_plain_mapping_is_read_too():
    assert [s.hosts for s in parse_topograph(f"n1: {{{PREFIX}leaf: a}}\nn2: {{{PREFIX}leaf: a}}\n")] == [("n1", "n2")]


@given(st.text(min_size=1, max_size=200))
def test_any_name_becomes_a_valid_label(name):
    assert VALUE.match(label_value(name))


def test_long_names_are_hashed_as_topograph_hashes_them():
    # Published test vectors of FNV-1a, 64 bits (Fowler, Noll and Vo).
    assert [fnv64a(text) for text in (b"", b"a", b"foobar")] == [
        0xCBF29CE484222325, 0xAF63DC4C8601EC8C, 0x85944171F73967E8
    ]  # fmt: skip
    assert label_value("a" * 63) == "a" * 63
    assert re.fullmatch(r"x[0-9a-f]{16}", label_value("a" * 64))
    assert label_value("a" * 64) != label_value("a" * 65)


def test_host_names_are_kubernetes_names():
    assert kubernetes_name("East_Host-01/x") == "east-host-01-x"
    with pytest.raises(FabricError, match="cannot be the name of a host"):
        kubernetes_name("h" * 300)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "labels are a Kubernetes List of Node objects."),
        ("kind: List\nitems: 3", "labels line 2: `items` must be a list."),
        ("kind: List\nitems:\n- {kind: Node}", "labels line 3: an item has no metadata.name."),
        ("kind: List\nitems: []", "no host has a topology label."),
        ("a: 1", "labels are a mapping of host to labels."),
        (
            f"a: {{{PREFIX}leaf: l, {PREFIX}spine: s}}\nb: {{{PREFIX}leaf: l, {PREFIX}spine: t}}",
            '"l" lies below both "s" and "t"',
        ),
        (f"a: {{{PREFIX}leaf: l, {PREFIX}spine: s}}\nb: {{{PREFIX}leaf: s}}", '"s" is a leaf of some hosts'),
        ("&a [*a]", "cyclic"),
    ],
)
def test_broken_labels_are_named(text, message):
    with pytest.raises(DescriptionError) as caught:
        parse_topograph(text)
    assert message in str(caught.value)
