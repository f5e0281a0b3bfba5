"""Kubernetes labels as NVIDIA's topograph sets them, written and read.

    network.topology.nvidia.com/accelerator: nvl-00      the NVLink domain, where one reaches across hosts
    network.topology.nvidia.com/leaf: leaf-03            then spine and core, from the host outwards

Newer releases of topograph number the tiers (`fabric.topograph.run/tier-0`, `accelerator.topograph.run/domain`):
`labels="tiers"` writes those, and both are read, as are the older `block` and `datacenter`. The file is a Kubernetes
`List` of `Node` objects, the form that `kubectl get nodes -o yaml` prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import yaml

from syncline.describe.document import Document, read_document
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError, FabricError
from syncline.fabric.fabric import Fabric
from syncline.fabric.formats.tree import TreeSwitch, clean, domains_of, tree_of, tree_of_chains

PREFIX = "network.topology.nvidia.com/"
ACCELERATOR = (f"{PREFIX}accelerator", "accelerator.topograph.run/domain")
TIERS = (
    (f"{PREFIX}leaf", f"{PREFIX}block", "fabric.topograph.run/tier-0"),
    (f"{PREFIX}spine", "fabric.topograph.run/tier-1"),
    (f"{PREFIX}core", f"{PREFIX}datacenter", "fabric.topograph.run/tier-2"),
    ("fabric.topograph.run/tier-3",),
)
MAX_VALUE_CHARS = 63
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the C one is ten times faster
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\Z")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")


def host_labels(fabric: Fabric, *, labels: Literal["names", "tiers"] = "names") -> dict[str, dict[str, str]]:
    """Return the labels of every host, by its Kubernetes name."""
    tree = tree_of(fabric)
    parent = {child: switch.name for switch in tree for child in switch.children}
    keys = [names[0] if labels == "names" and len(names) > 1 else names[-1] for names in TIERS]
    result: dict[str, dict[str, str]] = {kubernetes_name(host): {} for host in fabric.host_names}
    if len(result) != fabric.num_hosts:
        raise FabricError("two host names differ in case only, and Kubernetes names are lower case.")
    for domain in domains_of(fabric) if _has_domains(fabric) else ():
        for host in domain.hosts:
            key = ACCELERATOR[0 if labels == "names" else 1]
            result[kubernetes_name(host)][key] = label_value(domain.name)
    for leaf in (switch for switch in tree if switch.hosts):
        above = _upwards(leaf.name, parent)
        values = {key: label_value(name) for key, name in zip(keys, above, strict=False)}
        for host in leaf.hosts:
            result[kubernetes_name(host)] |= values
    return result


def write_topograph(fabric: Fabric, *, labels: Literal["names", "tiers"] = "names", form: str = "yaml") -> str:
    """Return the labels as a Kubernetes `List` of `Node` objects, in YAML or JSON."""
    items = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": host, "labels": values}}
        for host, values in host_labels(fabric, labels=labels).items()
    ]
    data = {"apiVersion": "v1", "kind": "List", "items": items}
    if form == "json":
        return json.dumps(data, indent=2) + "\n"
    return yaml.dump(data, Dumper=_DUMPER, sort_keys=False, width=1000)


def parse_topograph(text: str, source: str = "labels") -> tuple[TreeSwitch, ...]:
    """Return the tree that the labels of all hosts describe; hosts without any topology label are left out."""
    document = read_document(text, source)
    chains = {host: chain for host, values in _hosts(document).items() if (chain := _chain(values))}
    if not chains:
        raise DescriptionError(
            "no host has a topology label.", where=source, hint=f"Labels are {TIERS[0][0]}, {TIERS[0][-1]} and so on."
        )
    return tree_of_chains(chains, source)


def label_value(name: str) -> str:
    """Return a name as a label value: letters, digits, `-`, `_`, `.`; over 63 of them are hashed, as topograph does."""
    value = clean(name)
    if len(name) > MAX_VALUE_CHARS or not _VALUE.match(value):
        return f"x{fnv64a(name.encode()):016x}"
    return value


def kubernetes_name(host: str) -> str:
    """Return a host name as Kubernetes takes it: small letters, digits, `-` and `.`."""
    name = clean(host).lower().replace("_", "-").strip(".-")
    if not _HOST.match(name) or len(name) > 253:
        raise FabricError(f'"{host[:80]}" cannot be the name of a host in Kubernetes.')
    return name


def _has_domains(fabric: Fabric) -> bool:
    return bool(fabric.facts.get("nvlink_domains"))


def _upwards(name: str, parent: Mapping[str, str]) -> list[str]:
    chain = [name]
    while chain[-1] in parent:
        chain.append(parent[chain[-1]])
    return chain


def _hosts(document: Document) -> dict[str, JsonObject]:
    """Return host -> labels from a List of Nodes, a single Node, or a plain mapping."""
    data = document.data
    if not isinstance(data, dict):
        raise DescriptionError("labels are a Kubernetes List of Node objects.", where=document.source)
    if "items" not in data and "metadata" not in data:
        plain = {str(host): labels for host, labels in data.items() if isinstance(labels, dict)}
        if len(plain) != len(data) or not plain:
            raise DescriptionError("labels are a mapping of host to labels.", where=document.source)
        return plain
    items = data.get("items") if "items" in data else [data]
    if not isinstance(items, list):
        raise DescriptionError("`items` must be a list.", where=document.where(("items",)))
    return dict(_node(document, index, item) for index, item in enumerate(items))


def _node(document: Document, index: int, item: Any) -> tuple[str, JsonObject]:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise DescriptionError("an item has no metadata.name.", where=document.where(("items", index)))
    labels = metadata.get("labels") or {}
    return str(metadata["name"]), labels if isinstance(labels, dict) else {}


def _chain(labels: Mapping[str, object]) -> list[str]:
    """Return the switches of a host from its leaf outwards, up to the first level without a label."""
    chain: list[str] = []
    for names in TIERS:
        value = next((labels[name] for name in names if labels.get(name)), None)
        if value is None:
            break
        if str(value) not in chain:
            chain.append(str(value))
    return chain


def fnv64a(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value
