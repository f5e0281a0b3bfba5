"""Rail-only: each rail is a network of its own, and nothing joins the rails but the hosts' NVLink."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog
from syncline.fabric.draft import Draft
from syncline.fabric.topology import clos
from syncline.fabric.topology.fat_tree import clos_plan
from syncline.fabric.topology.network import Ports, Ratio
from syncline.fabric.topology.rail import add_rail_leaves


class RailOnly(clos.Clos):
    """Separate spines per rail (arXiv 2307.12169): fewer switches than rail-optimized, no network path across rails."""

    topology: Literal["rail-only"]
    oversubscription: Ratio = 1.0
    spine_oversubscription: Ratio = 1.0
    tiers: int | None = Field(default=None, ge=1, le=3)
    rails_per_leaf: int = Field(default=1, ge=1)
    """Rails that share a switch, where one switch has the ports of all their hosts."""

    def build(self, draft: Draft, ports: Ports) -> None:
        parts = self.parts(draft.catalog)
        ports_per_rail = ports.num_endpoints // len(np.unique(ports.rail))
        single = self.tiers == 1 or (self.tiers is None and ports_per_rail <= parts.radix)
        down, uplinks = (parts.radix, 1) if single else clos.leaf_split(parts, self.oversubscription)
        rails, together = np.unique(ports.rail), self.rails_per_leaf
        if together > 1 and (ports_per_rail * together > parts.radix or len(rails) % together):
            raise FabricError(
                f"{together} rails of {ports_per_rail} ports do not share a {parts.switch.name} of {parts.radix}.",
                hint="Lower rails_per_leaf to a divisor of the rails that fits, or choose a larger switch.",
            )
        for rail in rails[::together]:
            shared = (ports.rail >= rail) & (ports.rail < rail + together)
            mine = ports.select(np.flatnonzero(shared).astype(np.int32))
            prefix = f"rail-{rail}/"
            leaves = add_rail_leaves(self, draft, mine, parts, down, prefix, together)
            plan = clos_plan(
                len(leaves), uplinks, self.upper(draft.catalog), self.tiers, self.spine_oversubscription, None
            )
            clos.lay(draft, self, plan, leaves, parts, prefix, ports.site)
        draft.facts["max_endpoints"] = self.max_endpoints(draft.catalog, ports.per_host)

    def max_endpoints(self, catalog: Catalog, ports_per_host: int) -> int:
        parts = self.parts(catalog)
        if self.tiers == 1:
            return parts.radix * ports_per_host
        down, _ = clos.leaf_split(parts, self.oversubscription)
        most = clos.max_leaves(self.upper(catalog), self.tiers or 3, self.spine_oversubscription)
        return most * down * ports_per_host
