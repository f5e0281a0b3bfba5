"""A cluster description with one setting changed: `host.nics=4`, `network.oversubscription=2`, `wan.rate=40Gbps`."""

from __future__ import annotations

import copy
from typing import Any

from syncline.describe.document import Document
from syncline.describe.guide import cite
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError
from syncline.fabric.build import build
from syncline.fabric.fabric import Fabric
from syncline.fabric.load import parse_cluster, read_cluster
from syncline.fabric.spec import host_from_text, network_from_text


def changed(cluster: str, path: str, value: Any) -> Fabric:
    """Return the cluster of a file or preset, built with another value at a key path.

    >>> changed("h100-64-rail", "hosts", 2).num_gpus
    16
    """
    document = read_cluster(cluster)
    data = copy.deepcopy(document.data)
    keys = path.split(".")
    for at in _places(data, keys):
        at[keys[-1]] = value
    return build(parse_cluster(Document(data, document.lines, document.source)))


def _places(data: Any, keys: list[str]) -> list[JsonObject]:
    """Return the mappings that hold the last key; `host` and `network` of several sites are changed in all of them."""
    if not isinstance(data, dict):
        raise DescriptionError("a cluster description is a mapping.", hint=f"See {cite('cluster-file')}.")
    sites = data.get("sites") if keys[0] in ("host", "network", "hosts") else None
    places = [site for site in sites if isinstance(site, dict)] if isinstance(sites, list) else [data]
    for key in keys[:-1]:
        inner = []
        for at in places:
            if key not in at:
                known = ", ".join(map(str, at))
                raise DescriptionError(
                    f'there is no "{key}" to change in {".".join(keys)}.', detail=f"The description has {known}.",
                    hint="Name a key of the cluster file: host.nics, network.oversubscription, wan.rate, hosts.",
                )  # fmt: skip
            at[key] = _mapping(key, at[key])
            inner.append(at[key])
        places = inner
    return places


def _mapping(key: str, value: Any) -> JsonObject:
    """Return a short form written out, so that one of its keys can be set."""
    if isinstance(value, str):
        value = network_from_text(value) if key == "network" else host_from_text(value)
    if not isinstance(value, dict):
        raise DescriptionError(f'"{key}" holds {value!r}, which has no keys to change.')
    return value
