"""Where a cloud's instances are in its network, as the clouds' own tools print it.

    aws ec2 describe-instance-topology                  NetworkNodes, from the top down
    gcloud compute instances list --format json         resourceStatus.physicalHostTopology: cluster, block, subblock
    oci compute compute-host list                       hpc-island-id, network-block-id, local-block-id

Each is a chain of places above an instance, and together they are a tree. Instances without a place are left out and
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from syncline.describe.document import read_json
from syncline.errors import DescriptionError
from syncline.fabric.formats.tree import TreeSwitch, tree_of_chains


@dataclass(frozen=True)
class CloudTopology:
    """One cloud's list of instances: the command that prints it, keys it has, and the places above an instance."""

    command: str
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, object]], tuple[str, list[str]]]

    def recognise(self, text: str) -> bool:
        """Say whether a text is this cloud's answer."""
        return text.lstrip()[:1] in ("{", "[") and all(f'"{key}"' in _plain(text) for key in self.keys)


def parse_cloud(kind: str, text: str, source: str) -> tuple[tuple[TreeSwitch, ...], tuple[str, ...]]:
    """Return the tree of an answer, and what is to be noted."""
    cloud = CLOUDS[kind]
    hint = f"Give the output of `{cloud.command}`."
    data = read_json(text, source, hint)
    rows = _items(data)
    if rows is None:
        raise DescriptionError("a list of instances is missing.", where=source, hint=hint)
    chains: dict[str, list[str]] = {}
    unplaced = 0
    for number, row in enumerate(rows):
        plain = {_plain(str(key)): value for key, value in row.items()} if isinstance(row, Mapping) else {}
        name, chain = cloud.read(plain)
        if not name:
            raise DescriptionError(f"instance {number} has no name.", where=source, hint=hint)
        if name in chains:
            raise DescriptionError(f'instance "{name}" is listed twice.', where=source, hint="Give each page once.")
        if chain:
            chains[name] = chain
        unplaced += not chain
    if not chains:
        raise DescriptionError("no instance says where it is.", where=source, hint=hint)
    notes = [f"instances that do not state their place, left out: {unplaced:,}"] if unplaced else []
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
    """Return the chain up to the first place that is missing."""
    return words[: words.index("")] if "" in words else words


def _word(value: object) -> str:
    return str(value) if isinstance(value, str | int) and str(value) != "null" else ""


def _plain(text: str) -> str:
    """Return keys as one: NetworkNodes, network-nodes and network_nodes."""
    return text.replace("-", "").replace("_", "").lower()


CLOUDS = {
    "aws-topology": CloudTopology("aws ec2 describe-instance-topology", ("networknodes", "instanceid"), _aws),
    "gcp-topology": CloudTopology("gcloud compute instances list --format json", ("physicalhosttopology",), _gcp),
    "oci-topology": CloudTopology("oci compute compute-host list", ("networkblockid", "localblockid"), _oci),
}
