"""Slurm's two files are written as its manual says and read with their lines."""

from __future__ import annotations

import pytest
import yaml

from syncline.errors import DescriptionError
from syncline.fabric import build
from syncline.fabric.formats import import_fabric
from syncline.fabric.formats.slurm import (
    block_sizes,
    parse_slurm_conf,
    parse_slurm_yaml,
    write_slurm_conf,
    write_slurm_yaml,
)
from syncline.fabric.formats.tree import TreeSwitch, clean, domains_of, tree_of

# After the example of topology.yaml(5), Slurm 25.05.
MANUAL_YAML = """\
---
- topology: topo1
  cluster_default: true
  tree:
    switches:
      - switch: sw_root
        children: s[1-2]
      - switch: s1
        nodes: node[01-02]
      - switch: s2
        nodes: node[03-04]
- topology: topo2
  cluster_default: false
  block:
    block_sizes:
      - 2
      - 4
    blocks:
      - block: b1
        nodes: node[01-02]
      - block: b2
        nodes: node[03-04]
- topology: topo3
  flat: true
"""
MANUAL_CONF = """\
# Switch Configuration, after topology.conf(5)
switchname=s0 Nodes=dev[0-5]   LinkSpeed=900
SwitchName=s1 Nodes="dev[6-11]"
SWITCHNAME=s2 \\
  Switches=s[0-1]   # the top
"""


def names_of(tree):
    return {(s.name, tuple(clean(h) for h in s.hosts), s.children) for s in tree}


def test_a_tree_is_written_and_read_back(any_fabric):
    assert names_of(parse_slurm_conf(write_slurm_conf(any_fabric))) == names_of(tree_of(any_fabric))
    assert names_of(parse_slurm_yaml(write_slurm_yaml(any_fabric))) == names_of(tree_of(any_fabric))


def test_lines_are_what_slurm_expects(fabric_of):
    assert write_slurm_conf(fabric_of("rail-optimized")) == (
        "# TopologyPlugin=topology/tree\n"
        "SwitchName=leaf-00 Nodes=host-[00-17]\n"
        "SwitchName=leaf-08 Nodes=host-[18-35]\n"
        "SwitchName=spine-00 Switches=leaf-[00,08]\n"
    )
    assert write_slurm_conf(fabric_of("nvl72"), plugin="block") == (
        "# TopologyPlugin=topology/block\n"
        "BlockName=nvl-00 Nodes=host-[00-17]\n"
        "BlockName=nvl-01 Nodes=host-[18-35]\n"
        "BlockSizes=18,36\n"
    )


def test_yaml_has_the_tree_as_default_and_the_blocks(fabric_of):
    tree, block = yaml.safe_load(write_slurm_yaml(fabric_of("nvl72")))
    assert list(tree) == ["topology", "cluster_default", "tree"]
    assert (tree["cluster_default"], block["cluster_default"]) == (True, False)
    assert block["block"] == {
        "block_sizes": [18, 36],
        "blocks": [{"block": "nvl-00", "nodes": "host-[00-17]"}, {"block": "nvl-01", "nodes": "host-[18-35]"}],
    }


def test_block_sizes_double_and_fit_every_block():
    blocks = tuple(TreeSwitch(str(i), hosts=("h",) * size) for i, size in enumerate((18, 18, 16, 18, 18)))
    assert block_sizes(blocks) == [16, 32, 64]


def test_the_manual_s_examples_are_read():
    tree = parse_slurm_conf(MANUAL_CONF)
    assert [(s.name, len(s.hosts), s.children) for s in tree] == [("s0", 6, ()), ("s1", 6, ()), ("s2", 0, ("s0", "s1"))]
    assert [s.name for s in parse_slurm_yaml(MANUAL_YAML)] == ["sw_root", "s1", "s2"]
    blocks = parse_slurm_yaml(MANUAL_YAML, topology="topo2")
    assert [(s.name, s.hosts or s.children) for s in blocks] == [
        ("b1", ("node01", "node02")), ("b2", ("node03", "node04")), ("blocks", ("b1", "b2"))
    ]  # fmt: skip


def test_a_file_builds_with_a_host_model(tmp_path):
    path = tmp_path / "topology.conf"
    path.write_text(MANUAL_CONF)
    fabric = build(import_fabric(path, host="dgx-h100"))
    assert (fabric.num_gpus, fabric.host_names[:2], len(fabric.switches)) == (96, ("dev0", "dev1"), 3)
    yaml_path = tmp_path / "topology.yaml"
    yaml_path.write_text(MANUAL_YAML)
    small = build(import_fabric(yaml_path, host="8 x H100", link="400GbE", topology="topo1"))
    assert (small.num_hosts, "400GbE" in small.media) == (4, True)


def test_blocks_of_an_nvl72_make_its_domains(fabric_of, tmp_path):
    path = tmp_path / "blocks.conf"
    path.write_text(write_slurm_conf(fabric_of("nvl72"), plugin="block"))
    fabric = build(import_fabric(path, host="gb200-nvl72"))
    assert [d.hosts for d in domains_of(fabric)] == [d.hosts for d in domains_of(fabric_of("nvl72"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SwitchName=s0", 'topology.conf line 1: switch "s0" needs either Nodes or Switches.'),
        ("\nSwitchName=s0 Nodes=a Switches=b", 'line 2: switch "s0" needs either Nodes or Switches.'),
        ("SwitchName=s0 Nodes=a[1-", "line 1: cannot read"),
        ("SwitchName=s0 Nodes=a Colour=red", 'line 1: unknown key "colour".'),
        ("SwitchName=s0 Nodes=a junk", 'line 1: cannot read "junk".'),
        ("Nodes=a", "line 1: the line names neither a switch nor a block."),
        ("# nothing\n", "the file has neither switches nor blocks."),
        ("SwitchName=s0 Nodes=a\nBlockName=b Nodes=a", "the file has both switches and blocks."),
        ("\x00\x01binary", "line 1: cannot read"),
    ],
)
def test_broken_conf_files_are_named_with_their_line(text, message):
    with pytest.raises(DescriptionError) as caught:
        parse_slurm_conf(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "a topology.yaml is a list of `- topology: NAME`."),
        ("[]", "a topology.yaml is a list of `- topology: NAME`."),
        ("- topology: t\n  flat: true", 'topology.yaml line 1: topology "t" has no tree and no blocks.'),
        ("- topology: t\n  tree:\n    switches: 3", "line 3: `switches` must be a list."),
        ("- topology: t\n  tree:\n    switches:\n    - nodes: a", "line 4: an entry has no `switch:`"),
        ("- topology: t\n  tree:\n    switches:\n    - switch: s", 'line 4: "s" needs either `nodes` or `children`.'),
        ("- topology: t\n  block:\n    blocks: []", "the file has neither switches nor blocks."),
    ],
)
def test_broken_yaml_files_are_named_with_their_line(text, message):
    with pytest.raises(DescriptionError) as caught:
        parse_slurm_yaml(text)
    assert message in str(caught.value)


def test_a_topology_that_is_not_there_and_a_plugin_that_is_not_known(fabric_of):
    with pytest.raises(DescriptionError, match='there is no topology "x"') as caught:
        parse_slurm_yaml(MANUAL_YAML, topology="x")
    assert caught.value.hint == "There are: topo1, topo2, topo3."
    with pytest.raises(DescriptionError, match='no topology plugin "ring"'):
        write_slurm_conf(fabric_of("fat-tree"), plugin="ring")
