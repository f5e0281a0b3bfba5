"""Where a cloud says that instances are: the answers that topograph asks for, as the clouds' own tools print them.

    aws ec2 describe-instance-topology                  NetworkNodes, from the top down
    gcloud compute instances list --format json         resourceStatus.physicalHostTopology: cluster, block, subblock
    oci compute compute-host list                       hpc-island-id, network-block-id, local-block-id

Each is a chain of places above an instance, and together they are a tree. Instances of which nothing is said are left
out and counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from syncline.errors import DescriptionError
from syncline.fabric.formats.tree import TreeSwitch, tree_of_chains

CLOUDS = ("aws-topology", "gcp-topology", "oci-topology")
_HINTS = {
    "aws-topology": "Give the output of `aws ec2 describe-instance-topology`.",
    "gcp-topology": "Give the output of `gcloud compute instances list --format json`; topology must be enabled.",
    "oci-topology": "Give the output of `oci compute compute-host list`.",
}


def detect_cloud(text: str) -> str | None:
    """Return which cloud's answer a text is."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    plain = _plain(text)
    if '"networknodes"' in plain and '"instanceid"' in plain:
        return "aws-topology"
    if '"physicalhosttopology"' in plain:
        return "gcp-topology"
    return "oci-topology" if "networkblockid" in plain and "localblockid" in plain else None


def parse_cloud(kind: str, text: str, source: str) -> tuple[tuple[TreeSwitch, ...], tuple[str, ...]]:
    """Return the tree of an answer, and what is to be noted."""
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DescriptionError(f"it is not JSON ({error}).", where=source, hint=_HINTS[kind]) from None
    rows = _items(data)
    if rows is None:
        raise DescriptionError("a list of instances is missing.", where=source, hint=_HINTS[kind])
    read = {"aws-topology": _aws, "gcp-topology": _gcp, "oci-topology": _oci}[kind]
    chains: dict[str, list[str]] = {}
    unplaced = 0
    for number, row in enumerate(rows):
        name, chain = read({_plain(str(key)): value for key, value in row.items()} if isinstance(row, Mapping) else {})
        if not name:
            raise DescriptionError(f"instance {number} has no name.", where=source, hint=_HINTS[kind])
        if name in chains:
            raise DescriptionError(f'instance "{name}" is listed twice.', where=source, hint="Give each page once.")
        if chain:
            chains[name] = chain
        unplaced += not chain
    if not chains:
        raise DescriptionError("no instance says where it is.", where=source, hint=_HINTS[kind])
    notes = [f"instances that say nothing of their place, left out: {unplaced:,}"] if unplaced else []
    if isinstance(data, Mapping) and (data.get("NextToken") or data.get("nextPageToken")):
        notes.append("the answer has more pages, whose instances are missing")
    return tree_of_chains(chains, source), tuple(notes)


def _items(data: object) -> Sequence[object] | None:
    """Return the list of instances, wherever the tool puts it."""
    if isinstance(data, list):
        return data
    if isinstance(data, Mapping):
        for name in ("Instances", "items", "data"):
            if name in data:
                return _items(data[name])
    return None


def _aws(row: Mapping[str, object]) -> tuple[str, list[str]]:
    nodes = row.get("networknodes")
    return _word(row.get("instanceid")), [str(node) for node in reversed(nodes)] if isinstance(nodes, list) else []


def _gcp(row: Mapping[str, object]) -> tuple[str, list[str]]:
    status = row.get("resourcestatus")
    place = status.get("physicalHostTopology") if isinstance(status, Mapping) else row.get("physicalhosttopology")
    keys = ("subblock", "block", "cluster")
    words = [_word(place.get(key)) for key in keys] if isinstance(place, Mapping) else []
    return _word(row.get("name") or row.get("instanceid") or row.get("id")), _whole(words)


def _oci(row: Mapping[str, object]) -> tuple[str, list[str]]:
    words = [
        _word(row.get(key) or row.get(f"compute{key}")) for key in ("localblockid", "networkblockid", "hpcislandid")
    ]
    return _word(row.get("displayname") or row.get("instanceid") or row.get("id")), _whole(words)


def _whole(words: list[str]) -> list[str]:
    """Return the chain up to the first place that is not told; the leaf must be."""
    return words[: words.index("")] if "" in words else words


def _word(value: object) -> str:
    return str(value) if isinstance(value, str | int) and str(value) != "null" else ""


def _plain(text: str) -> str:
    """Return keys as one: NetworkNodes, network-nodes and network_nodes."""
    return text.replace("-", "").replace("_", "").lower()
