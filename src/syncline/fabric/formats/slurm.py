"""Slurm topologies: `topology.conf` (tree and block plugins) and `topology.yaml` (several topologies in one file).

Slurm knows switches and hosts but no hardware, so importing one takes a host model.

Written trees have one parent per switch (see `tree`); blocks are the NVLink domains, or the leaves where no domain
reaches beyond a host. Formats: topology.conf(5) and topology.yaml(5) of Slurm 25.05.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from syncline.describe.document import Document, read_document
from syncline.describe.hostlist import compress, expand
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError
from syncline.fabric.fabric import Fabric
from syncline.fabric.formats.tree import TreeSwitch, clean, domains_of, tree_of

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the C one is ten times faster
_PAIR = re.compile(r'\s*([A-Za-z]+)\s*=\s*("[^"]*"|[^\s"]+)')
_KEYS = {"switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes"}
_ROOT = "blocks"


def write_slurm_conf(fabric: Fabric, *, plugin: str = "tree") -> str:
    """Return a `topology.conf` for the plugin `topology/tree` or `topology/block`."""
    if plugin == "tree":
        lines = ["# TopologyPlugin=topology/tree"]
        for switch in tree_of(fabric):
            below = f"Nodes={_hosts(switch.hosts)}" if switch.hosts else f"Switches={compress(switch.children)}"
            lines.append(f"SwitchName={switch.name} {below}")
    elif plugin == "block":
        blocks = domains_of(fabric)
        lines = ["# TopologyPlugin=topology/block"]
        lines += [f"BlockName={block.name} Nodes={_hosts(block.hosts)}" for block in blocks]
        lines.append(f"BlockSizes={','.join(map(str, block_sizes(blocks)))}")
    else:
        raise DescriptionError(f'Slurm has no topology plugin "{plugin}" here.', hint='Use "tree" or "block".')
    return "\n".join(lines) + "\n"


def write_slurm_yaml(fabric: Fabric) -> str:
    """Return a `topology.yaml` with the tree as the cluster's default and the blocks beside it."""
    switches: list[dict[str, str]] = [
        {"switch": s.name, "nodes": _hosts(s.hosts)}
        if s.hosts
        else {"switch": s.name, "children": compress(s.children)}
        for s in tree_of(fabric)
    ]
    blocks = domains_of(fabric)
    rows = [{"block": block.name, "nodes": _hosts(block.hosts)} for block in blocks]
    data: list[JsonObject] = [
        {"topology": "tree", "cluster_default": True, "tree": {"switches": switches}},
        {"topology": "block", "cluster_default": False, "block": {"block_sizes": block_sizes(blocks), "blocks": rows}},
    ]
    return "---\n" + yaml.dump(data, Dumper=_DUMPER, sort_keys=False, width=1000)


def block_sizes(blocks: tuple[TreeSwitch, ...]) -> list[int]:
    """Return D, 2D, 4D ... up to all blocks, where D hosts fit every block; Slurm wants powers of two."""
    base = min(len(block.hosts) for block in blocks)
    sizes = [base]
    while sizes[-1] * 2 <= base * len(blocks):
        sizes.append(sizes[-1] * 2)
    return sizes


def parse_slurm_conf(text: str, source: str = "topology.conf") -> tuple[TreeSwitch, ...]:
    """Return the switches of a `topology.conf`; blocks become leaves below one switch that joins them."""
    switches: list[TreeSwitch] = []
    blocks: list[TreeSwitch] = []
    for number, line in _logical_lines(text):
        where = f"{source} line {number}"
        pairs = _pairs(line, where)
        if "switchname" in pairs:
            switches += _switches(pairs, where)
        elif "blockname" in pairs:
            hosts = tuple(expand(pairs.get("nodes", ""), where))
            blocks += [TreeSwitch(name, hosts=hosts, where=where) for name in expand(pairs["blockname"], where)]
        elif set(pairs) - {"blocksizes"}:
            raise DescriptionError("the line names neither a switch nor a block.", where=where)
    return _one_kind(switches, blocks, source)


def parse_slurm_yaml(text: str, source: str = "topology.yaml", topology: str | None = None) -> tuple[TreeSwitch, ...]:
    """Return the switches of one topology: the one named, else the cluster's default, else the first."""
    document = read_document(text, source)
    rows = document.data
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "topology" in row for row in rows) or not rows:
        raise DescriptionError("a topology.yaml is a list of `- topology: NAME`.", where=source)
    index = _choose(rows, topology, source)
    row = rows[index]
    if isinstance(tree := row.get("tree"), dict):
        path = (index, "tree", "switches")
        switches = [
            _yaml_switch(document, (*path, i), s) for i, s in enumerate(_list(document, path, tree.get("switches")))
        ]
        return _one_kind(switches, [], source)
    if isinstance(block := row.get("block"), dict):
        path = (index, "block", "blocks")
        switches = [
            _yaml_switch(document, (*path, i), b) for i, b in enumerate(_list(document, path, block.get("blocks")))
        ]
        return _one_kind([], switches, source)
    raise DescriptionError(
        f'topology "{row["topology"]}" has no tree and no blocks.',
        where=document.where((index,)),
        hint="A flat topology says nothing about the network.",
    )


def _hosts(names: tuple[str, ...]) -> str:
    return compress(clean(name) for name in names)


def _one_kind(switches: list[TreeSwitch], blocks: list[TreeSwitch], source: str) -> tuple[TreeSwitch, ...]:
    if switches and blocks:
        raise DescriptionError(
            "the file has both switches and blocks.", where=source, hint="Slurm takes one plugin a file."
        )
    if not switches and not blocks:
        raise DescriptionError("the file has neither switches nor blocks.", where=source)
    if len(blocks) > 1:
        return (*blocks, TreeSwitch(_ROOT, children=tuple(block.name for block in blocks)))
    return tuple(switches or blocks)


def _switches(pairs: dict[str, str], where: str) -> list[TreeSwitch]:
    hosts = tuple(expand(pairs.get("nodes", ""), where))
    children = tuple(expand(pairs.get("switches", ""), where))
    if bool(hosts) == bool(children):
        raise DescriptionError(
            f'switch "{pairs["switchname"]}" needs either Nodes or Switches.', where=where, hint="A leaf has Nodes."
        )
    return [TreeSwitch(name, hosts, children, where) for name in expand(pairs["switchname"], where)]


def _pairs(line: str, where: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    at = 0
    while match := _PAIR.match(line, at):
        pairs[match.group(1).lower()] = match.group(2).strip('"')
        at = match.end()
    if line[at:].strip():
        raise DescriptionError(f'cannot read "{line[at:].strip()[:40]}".', where=where, hint="Write Key=Value pairs.")
    if unknown := sorted(set(pairs) - _KEYS):
        raise DescriptionError(f'unknown key "{unknown[0]}".', where=where, hint="See topology.conf(5).")
    return pairs


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return (line number, text) without comments and with continued lines joined."""
    lines: list[tuple[int, str]] = []
    held, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split("#", 1)[0].rstrip()
        first = first or number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        if (held + line).strip():
            lines.append((first, held + line))
        held, first = "", 0
    return lines


def _choose(rows: list[JsonObject], topology: str | None, source: str) -> int:
    names = [str(row["topology"]) for row in rows]
    if topology is not None:
        if topology not in names:
            raise DescriptionError(
                f'there is no topology "{topology}".', where=source, hint=f"There are: {', '.join(names)}."
            )
        return names.index(topology)
    return next((i for i, row in enumerate(rows) if row.get("cluster_default") is True), 0)


def _list(document: Document, path: tuple[str | int, ...], value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DescriptionError(f"`{path[-1]}` must be a list.", where=document.where(path))
    return value


def _yaml_switch(document: Document, path: tuple[str | int, ...], row: Any) -> TreeSwitch:
    where = document.where(path)
    name = (row.get("switch") or row.get("block")) if isinstance(row, dict) else None
    if not name:
        raise DescriptionError("an entry has no `switch:` or `block:` name.", where=where)
    hosts, children = (tuple(expand(str(row.get(key) or ""), where)) for key in ("nodes", "children"))
    if bool(hosts) == bool(children):
        raise DescriptionError(f'"{name}" needs either `nodes` or `children`.', where=where)
    return TreeSwitch(str(name), hosts, children, where)
