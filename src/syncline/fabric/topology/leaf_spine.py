"""Leaf-spine: hosts under top-of-rack leaves, every leaf joined to every spine, any oversubscription."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog
from syncline.fabric.draft import Draft
from syncline.fabric.topology import clos
from syncline.fabric.topology.network import NetworkParts, NetworkSpec, Ports, Ratio, attach, ceil_div, numbered


class LeafSpine(clos.Clos):
    """Two tiers. A host's NICs all go to one leaf; `oversubscription: 3:1` gives a leaf three times the down rate.

    As few switches as will do, and hosts spread evenly over the leaves unless `hosts_per_leaf` says otherwise.
    """

    topology: Literal["leaf-spine"]
    oversubscription: Ratio = 1.0
    hosts_per_leaf: int | None = Field(default=None, ge=1)
    spines: int | None = Field(default=None, ge=1)

    def build(self, draft: Draft, ports: Ports) -> None:
        parts = self.parts(draft.catalog)
        down, uplinks = self.leaf_ports(parts, ports.per_host)
        upper = self.upper(draft.catalog)
        if self.hosts_per_leaf is None and self.spines is None:
            down, uplinks = clos.even_leaves(parts, upper, self.oversubscription, ports.num_endpoints, ports.per_host)
        leaves, _ = add_leaves(self, draft, ports, parts, down)
        plan = clos.two_tier(len(leaves), uplinks, upper.spine_radix, self.spines)
        clos.lay(draft, self, plan, leaves, parts, "", ports.site)
        draft.facts["max_endpoints"] = self.max_endpoints(draft.catalog, ports.per_host)

    def leaf_ports(self, parts: NetworkParts, per_host: int) -> tuple[int, int]:
        """Return how many NIC ports and how many uplinks a leaf has."""
        down, uplinks = clos.leaf_split(parts, self.oversubscription)
        if self.hosts_per_leaf is None:
            return whole_hosts(down, per_host, parts.switch.name), uplinks
        down = self.hosts_per_leaf * per_host
        return down, clos.leaf_uplinks(parts, down, self.oversubscription)

    def max_endpoints(self, catalog: Catalog, ports_per_host: int) -> int:
        parts = self.parts(catalog)
        return clos.max_leaves(self.upper(catalog), 2) * self.leaf_ports(parts, ports_per_host)[0]


def whole_hosts(down: int, per_host: int, switch: str) -> int:
    """Round a leaf's down ports so that a host is never split over two leaves."""
    if per_host > down:
        raise FabricError(
            f'a host has {per_host} ports but a leaf "{switch}" has {down} for hosts.',
            hint="Use topology: rail-optimized or fat-tree, or a larger switch.",
        )
    return down - down % per_host


def add_leaves(
    network: NetworkSpec, draft: Draft, ports: Ports, parts: NetworkParts, down: int
) -> tuple[np.ndarray, np.ndarray]:
    """Add the leaves and cable ports to them in order, `down` to a leaf; returns leaves and each host's rack."""
    leaf_of_port = np.arange(ports.num_endpoints) // down
    num_leaves = ceil_div(ports.num_endpoints, down)
    leaves = draft.add_switches(
        numbered("leaf", num_leaves), parts.switch, level=1, group=np.arange(num_leaves), site=ports.site
    )
    attach(draft, network, ports, leaves[leaf_of_port], parts)
    racks = leaf_of_port.reshape(ports.table.shape)[:, 0].astype(np.int32)
    ports.set_racks(draft, racks)
    return leaves, racks
