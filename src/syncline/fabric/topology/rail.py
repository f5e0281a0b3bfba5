"""Rail-optimized: NIC j of every host of a scalable unit goes to that unit's leaf j; all leaves share the spines."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog
from syncline.fabric.draft import Draft
from syncline.fabric.topology import clos
from syncline.fabric.topology.fat_tree import clos_plan
from syncline.fabric.topology.network import NetworkParts, NetworkSpec, Ports, Ratio, attach, ceil_div, numbered
from syncline.fabric.wiring import IntArray


class RailOptimized(clos.Clos):
    """One leaf per rail in each scalable unit of `hosts_per_unit` hosts; spines (and cores) join every leaf.

    Traffic between equal rails of one unit crosses a single switch; between rails it goes over NVLink or the spines.
    """

    topology: Literal["rail-optimized"]
    oversubscription: Ratio = 1.0
    spine_oversubscription: Ratio = 1.0
    hosts_per_unit: int | None = Field(default=None, ge=1)
    tiers: int | None = Field(default=None, ge=1, le=3)
    units_per_pod: int | None = Field(default=None, ge=1)
    spine_groups: Literal["pod", "rail"] = "pod"
    """Whom a spine joins in three tiers: all leaves of its pod, or those of one rail only (a rail group)."""

    @model_validator(mode="after")
    def _rails_need_cores(self) -> RailOptimized:
        if self.spine_groups == "rail" and self.tiers is not None and self.tiers < 3:
            raise ValueError("spines of one rail need cores to join the rails: `tiers: 3`, or topology: rail-only")
        return self

    def build(self, draft: Draft, ports: Ports) -> None:
        parts = self.parts(draft.catalog)
        num_rails = len(np.unique(ports.rail))
        down, uplinks = self.leaf_ports(parts, ports.per_host // num_rails)
        used = ports.num_endpoints // num_rails
        if (
            self.oversubscription > 1
            and self.hosts_per_unit is None
            and self.tiers in (None, 2)
            and not self.units_per_pod
        ):
            upper, per_rail = self.upper(draft.catalog), ports.per_host // num_rails
            down, uplinks = clos.even_leaves(parts, upper, self.oversubscription, used, per_rail, num_rails=num_rails)
        if uplinks and self.hosts_per_unit is None:
            # Units of equal size, so that none is left nearly empty, with the uplinks that their hosts need.
            even = ceil_div(ceil_div(used, ceil_div(used, down)), ports.per_host // num_rails)
            down = min(down, even * (ports.per_host // num_rails))
            uplinks = min(uplinks, clos.leaf_uplinks(parts, down, self.oversubscription))
        leaves = add_rail_leaves(self, draft, ports, parts, down, "")
        draft.facts["max_endpoints"] = self.max_endpoints(draft.catalog, ports.per_host)
        if self.tiers == 1:
            if len(leaves) > num_rails:
                raise FabricError(
                    f"one tier joins one unit of {down // (ports.per_host // num_rails)} hosts, not {ports.num_hosts}.",
                    hint="Use two or three tiers (leave `tiers` out to let syncline choose), or a larger switch.",
                )
            return
        leaves, per_pod = self._pods(leaves, num_rails)
        upper = self.upper(draft.catalog)
        plan = clos_plan(len(leaves), uplinks, upper, self.tiers, self.spine_oversubscription, per_pod)
        clos.lay(draft, self, plan, leaves, parts, "", ports.site)

    def _pods(self, leaves: IntArray, num_rails: int) -> tuple[IntArray, int | None]:
        """Return the leaves in the order of their pods, and how many of them make a pod."""
        if self.spine_groups == "pod":
            return leaves, self.units_per_pod * num_rails if self.units_per_pod else None
        num_units = len(leaves) // num_rails
        units = self.units_per_pod or num_units
        if num_units % units:
            raise FabricError(
                f"{num_units} units do not make whole pods of {units}.",
                hint="Choose a units_per_pod that divides the number of units, or spine_groups: pod.",
            )
        return leaves.reshape(-1, units, num_rails).swapaxes(1, 2).ravel(), units

    def leaf_ports(self, parts: NetworkParts, ports_per_rail: int = 1) -> tuple[int, int]:
        """Return how many access ports and how many uplinks a leaf has, for hosts with so many ports on it."""
        if self.hosts_per_unit is not None:
            down = self.hosts_per_unit * ports_per_rail
            return down, clos.leaf_uplinks(parts, down, self.oversubscription)
        return (parts.radix, 0) if self.tiers == 1 else clos.leaf_split(parts, self.oversubscription)

    def max_endpoints(self, catalog: Catalog, ports_per_host: int) -> int:
        parts = self.parts(catalog)
        down, _ = self.leaf_ports(parts)
        if self.tiers == 1:
            return down * ports_per_host
        leaves = clos.max_leaves(self.upper(catalog), self.tiers or 3, self.spine_oversubscription)
        return leaves // ports_per_host * ports_per_host * down


def add_rail_leaves(
    network: NetworkSpec, draft: Draft, ports: Ports, parts: NetworkParts, down: int, prefix: str, together: int = 1
) -> IntArray:
    """Add a leaf of `down` access ports per unit and `together` rails, by unit, and cable the hosts; returns leaves."""
    rails = np.unique(ports.rail)
    of_leaf = rails[::together]
    # A NIC's ports all go to its rail's leaf.
    hosts_per_unit = max(1, down // (ports.per_host // len(rails) * together))
    num_units = ceil_div(ports.num_hosts, hosts_per_unit)
    unit_of_leaf = np.repeat(np.arange(num_units), len(of_leaf))
    leaves = draft.add_switches(
        numbered(f"{prefix}leaf", num_units * len(of_leaf)),
        parts.switch,
        level=1,
        group=unit_of_leaf,
        rail=np.tile(of_leaf, num_units),
        site=ports.site,
    )
    unit = (np.arange(ports.num_hosts) // hosts_per_unit).astype(np.int32)
    rail_index = np.searchsorted(rails, ports.rail) // together
    leaf = leaves[unit[:, None] * len(of_leaf) + rail_index[None, :]]
    attach(draft, network, ports, leaf, parts)
    ports.set_racks(draft, unit)
    return leaves
