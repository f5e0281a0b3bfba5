"""Multi-plane: port p of every NIC belongs to plane p, and the planes are equal networks that never meet."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog
from syncline.fabric.draft import Draft
from syncline.fabric.topology.fat_tree import FatTree
from syncline.fabric.topology.leaf_spine import LeafSpine
from syncline.fabric.topology.network import NetworkSpec, Ports
from syncline.fabric.topology.rail import RailOptimized
from syncline.fabric.topology.rail_only import RailOnly

Plane = Annotated[FatTree | LeafSpine | RailOptimized | RailOnly, Field(discriminator="topology")]


class MultiPlane(NetworkSpec):
    """`planes` copies of the network `plane`; each NIC has one port in every plane."""

    topology: Literal["multi-plane"]
    link: str = ""
    planes: int = Field(ge=2, le=64)
    plane: Plane

    def build(self, draft: Draft, ports: Ports) -> None:
        num_ports = int(ports.plane.max()) + 1
        if num_ports != self.planes:
            raise FabricError(
                f"the network has {self.planes} planes but every NIC has {num_ports} port(s).",
                hint=f"Write `ports_per_nic: {self.planes}` in the host, or `planes: {num_ports}`.",
            )
        for plane in range(self.planes):
            first_switch = len(draft.switch_names)
            self.plane.build(draft, ports.select(np.flatnonzero(ports.plane == plane).astype(np.int32)))
            added = draft.switch_names[first_switch:]
            draft.switch_names[first_switch:] = [f"plane-{plane}/{name}" for name in added]
        draft.facts["max_endpoints"] = self.max_endpoints(draft.catalog, ports.per_host) or 0

    def max_endpoints(self, catalog: Catalog, ports_per_host: int) -> int | None:
        one = self.plane.max_endpoints(catalog, ports_per_host // self.planes)
        return one * self.planes if one else None
