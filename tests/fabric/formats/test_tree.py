"""A fabric as a tree of switches, and a tree as a fabric."""

from __future__ import annotations

import pytest

from syncline.errors import DescriptionError
from syncline.fabric import build
from syncline.fabric.fabric import DeviceKind
from syncline.fabric.formats.tree import TreeSwitch, clean, domains_of, tree_cluster, tree_of


def test_every_host_has_one_leaf_and_every_switch_one_parent(any_fabric):
    tree = tree_of(any_fabric)
    assert sorted(h for switch in tree for h in switch.hosts) == sorted(any_fabric.host_names)
    children = [child for switch in tree for child in switch.children]
    assert len(children) == len(set(children))
    names = [switch.name for switch in tree]
    assert len(names) == len(set(names))
    assert all(names.index(child) < names.index(switch.name) for switch in tree for child in switch.children)
    assert len(set(names) - set(children)) == 1  # one root


def test_rails_make_one_leaf_of_a_unit(fabric_of):
    assert [(s.name, len(s.hosts), s.children) for s in tree_of(fabric_of("rail-optimized"))] == [
        ("leaf-00", 18, ()), ("leaf-08", 18, ()), ("spine-00", 0, ("leaf-00", "leaf-08"))
    ]  # fmt: skip


def test_pods_spines_and_cores_nest(fabric_of):
    tree = tree_of(fabric_of("two sites"))
    assert [s.name for s in tree if s.children] == ["east-border"]
    dragonfly = tree_of(fabric_of("dragonfly"))
    assert [s.name for s in dragonfly if s.children] == ["group-00", "group-01", "group-02", "group-03", "fabric"]


def test_blocks_are_nvlink_domains_or_leaves(fabric_of):
    assert [(d.name, len(d.hosts)) for d in domains_of(fabric_of("nvl72"))] == [("nvl-00", 18), ("nvl-01", 18)]
    assert [d.name for d in domains_of(fabric_of("rail-optimized"))] == ["leaf-00", "leaf-08"]


def test_a_tree_builds_a_fabric_with_that_tree(any_fabric):
    tree = tree_of(any_fabric)
    built = build(tree_cluster(tree, "dgx-h100", name="again"))
    assert {(s.name, s.hosts) for s in tree_of(built) if s.hosts} == {(s.name, s.hosts) for s in tree if s.hosts}
    assert built.num_gpus == 8 * any_fabric.num_hosts


def test_uplinks_match_what_hangs_below():
    tree = [TreeSwitch("a", hosts=("h1", "h2")), TreeSwitch("b", hosts=("h3",)), TreeSwitch("top", children=("a", "b"))]
    for ratio, uplinks in ((1.0, (16, 8)), (2.0, (8, 4)), (16.0, (1, 1))):
        fabric = build(tree_cluster(tree, "dgx-h100", name="t", oversubscription=ratio))
        for leaf, count in zip(("a", "b"), uplinks, strict=True):
            ends = fabric.links.dst[fabric.out_links(fabric.device(leaf))]
            assert (ends == fabric.device("top")).sum() == count
    assert fabric.devices.level[fabric.device("top")] == 2


def test_a_host_below_two_leaves_shares_its_cards_out():
    tree = [TreeSwitch("a", hosts=("h",)), TreeSwitch("b", hosts=("h",)), TreeSwitch("top", children=("a", "b"))]
    fabric = build(tree_cluster(tree, "dgx-h100", name="t"))
    below = fabric.links.dst[fabric.out_links(fabric.device("a"))]
    assert (fabric.devices.kind[below] == DeviceKind.NIC).sum() == 4


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([TreeSwitch("a", hosts=("h",)), TreeSwitch("a", hosts=("i",))], 'switch "a" is defined twice.'),
        ([TreeSwitch("a", children=("b",))], 'switch "a" has "b" below it, which is not defined.'),
        ([TreeSwitch("a", children=("b",)), TreeSwitch("b", children=("a",))], 'switch "a" is below itself.'),
        (
            [TreeSwitch("l", hosts=("h",)), TreeSwitch("a", children=("l",)), TreeSwitch("b", children=("l",))],
            'switch "l" is below "a" and "b".',
        ),
        ([TreeSwitch("a")], "the tree has switches but no hosts."),
        (
            [TreeSwitch("0", hosts=("h",)), *(TreeSwitch(str(i), children=(str(i - 1),)) for i in range(1, 12))],
            "the tree has more than 9 levels.",
        ),
    ],
)
def test_what_is_no_tree_is_refused(tree, message):
    with pytest.raises(DescriptionError) as caught:
        tree_cluster(tree, "dgx-h100", name="t", source="topology.conf")
    assert caught.value.message == message


def test_hosts_without_cards_cannot_hang_below_switches():
    with pytest.raises(DescriptionError, match="no NIC to hang below a switch"):
        tree_cluster([TreeSwitch("a", hosts=("h",))], {"model": "dgx-h100", "nics": 0}, name="t")


def test_names_lose_what_schedulers_read_as_syntax():
    assert [clean(name) for name in ("plane-0/leaf[1]", "a b,c=d", "///")] == ["plane-0-leaf-1", "a-b-c-d", "x"]
