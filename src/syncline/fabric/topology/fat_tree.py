"""Fat-tree of two or three tiers: ports of leaves filled in order, as many on each and no more uplinks than that."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog
from syncline.fabric.draft import Draft
from syncline.fabric.topology import clos
from syncline.fabric.topology.leaf_spine import add_leaves
from syncline.fabric.topology.network import NetworkParts, Ports, Ratio


class FatTree(clos.Clos):
    """Non-blocking by default; `tiers` is chosen by size: one switch, then two tiers, then three.

    The largest fat-tree of k-port switches joins k*k/2 endpoints in two tiers and k*k*k/4 in three.
    """

    topology: Literal["fat-tree"]
    tiers: int | None = Field(default=None, ge=1, le=3)
    oversubscription: Ratio = 1.0
    """Down to up bandwidth of the leaves."""
    spine_oversubscription: Ratio = 1.0
    """Down to up bandwidth of the spines (three tiers)."""
    hosts_per_leaf: int | None = Field(default=None, ge=1)
    """Hosts under a leaf (a rack with its own switch); default: as many ports as the leaf has."""
    leaves_per_pod: int | None = Field(default=None, ge=1)

    def build(self, draft: Draft, ports: Ports) -> None:
        parts = self.parts(draft.catalog)
        down, uplinks = self.leaf_ports(parts, ports.num_endpoints, ports.per_host)
        upper = self.upper(draft.catalog)
        if self._may_choose(ports.num_endpoints, down, upper):
            down, uplinks = clos.even_leaves(
                parts, upper, self.oversubscription, ports.num_endpoints, ports.per_host, step=1
            )
        leaves, _ = add_leaves(self, draft, ports, parts, down)
        plan = clos_plan(len(leaves), uplinks, upper, self.tiers, self.spine_oversubscription, self.leaves_per_pod)
        clos.lay(draft, self, plan, leaves, parts, "", ports.site)
        draft.facts["max_endpoints"] = self.max_endpoints(draft.catalog, ports.per_host)

    def _may_choose(self, num_endpoints: int, down: int, upper: clos.Upper) -> bool:
        """Say whether the leaves' split is free: two tiers of which nothing else is prescribed, not filled exactly."""
        two = num_endpoints > down and (self.tiers == 2 or num_endpoints <= down * upper.spine_radix)
        return (
            two
            and bool(self.oversubscription > 1 or num_endpoints % down)
            and not self.hosts_per_leaf
            and not self.leaves_per_pod
            and self.tiers not in (1, 3)
        )

    def leaf_ports(self, parts: NetworkParts, num_endpoints: int, per_host: int) -> tuple[int, int]:
        """Return access ports and uplinks of a leaf; a single switch needs no uplinks."""
        if self.hosts_per_leaf:
            down = self.hosts_per_leaf * per_host
            return down, clos.leaf_uplinks(parts, down, self.oversubscription)
        if self.tiers == 1 or (self.tiers is None and num_endpoints <= parts.radix):
            return parts.radix, 1
        return clos.leaf_split(parts, self.oversubscription)

    def max_endpoints(self, catalog: Catalog, ports_per_host: int) -> int:
        parts = self.parts(catalog)
        if self.tiers == 1:
            return parts.radix
        down = self.leaf_ports(parts, parts.radix + 1, ports_per_host)[0]
        return clos.max_leaves(self.upper(catalog), self.tiers or 3, self.spine_oversubscription) * down


def clos_plan(
    num_leaves: int, uplinks: int, upper: clos.Upper, tiers: int | None, ratio: float, leaves_per_pod: int | None
) -> clos.ClosPlan:
    """Choose two or three tiers for that many leaves and plan them."""
    if tiers is None:
        tiers = 3 if leaves_per_pod or num_leaves > upper.spine_radix else 2
    if tiers == 1 and num_leaves > 1:
        raise FabricError(
            f"one tier is one switch, but the hosts fill {num_leaves}.",
            hint="Use two or three tiers (leave `tiers` out to let syncline choose), or a larger switch.",
        )
    if tiers == 3:
        return clos.three_tier(num_leaves, uplinks, upper.spine_radix, ratio, leaves_per_pod, upper.core_radix)
    return clos.two_tier(num_leaves, uplinks, upper.spine_radix)
