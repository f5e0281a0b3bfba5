"""Dragonfly: groups of fully joined switches, with global cables between every two groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog
from syncline.fabric.draft import Draft
from syncline.fabric.topology.network import NetworkParts, NetworkSpec, Ports, Routing, attach, ceil_div, numbered
from syncline.fabric.wiring import IntArray, Tier


@dataclass(frozen=True)
class DragonflyShape:
    """p endpoints, a switches per group, h global ports per switch, g groups (Kim et al., ISCA 2008)."""

    endpoints_per_switch: int
    switches_per_group: int
    global_ports: int
    num_groups: int

    @property
    def endpoints_per_group(self) -> int:
        return self.endpoints_per_switch * self.switches_per_group

    @property
    def cables_per_pair(self) -> int:
        """How many global cables join two groups."""
        if self.num_groups < 2:
            return 0
        return self.switches_per_group * self.global_ports // (self.num_groups - 1)


class Dragonfly(NetworkSpec):
    """Balanced (a = 2p = 2h) for the switch's ports by default; as many groups as the hosts need."""

    switch_word: ClassVar[str] = "switch"
    topology: Literal["dragonfly"]
    routing: Routing = "ugal"
    """By load, over third switches and groups too, as Slingshot does; `minimal` or `ecmp`: shortest ways alone."""
    endpoints_per_switch: int | None = Field(default=None, ge=1)
    switches_per_group: int | None = Field(default=None, ge=1)
    global_ports_per_switch: int | None = Field(default=None, ge=0)
    groups: int | None = Field(default=None, ge=1)
    local_cables: int = Field(default=1, ge=1)
    """Parallel cables between two switches of a group."""
    cables_per_group_pair: int | None = Field(default=None, ge=1)
    """Global cables between two groups; default: as many as the global ports allow."""
    spread_nics: bool = False
    """Put the NICs of a host on neighbouring switches, one each (HPE Cray EX), not all on one."""

    def build(self, draft: Draft, ports: Ports) -> None:
        parts = self.parts(draft.catalog)
        shape = self.plan(parts, ports.num_endpoints)
        group = np.repeat(np.arange(shape.num_groups), shape.switches_per_group)
        names = [
            f"group-{g:0{max(2, len(str(shape.num_groups - 1)))}d}/{switch}"
            for g in range(shape.num_groups)
            for switch in numbered("switch", shape.switches_per_group)
        ]
        switches = draft.add_switches(names, parts.switch, level=1, group=group, site=ports.site)
        switch_of_port = self._switch_of_port(ports, shape)
        attach(draft, self, ports, switches[switch_of_port.ravel()], parts)
        ports.set_racks(draft, switch_of_port[:, 0].astype(np.int32))
        self._join_groups(draft, switches.reshape(shape.num_groups, shape.switches_per_group), shape, parts)
        draft.facts["dragonfly_groups"] = shape.num_groups
        draft.facts["max_endpoints"] = self.max_endpoints(draft.catalog, ports.per_host)

    def _switch_of_port(self, ports: Ports, shape: DragonflyShape) -> np.ndarray:
        """Return the switch of every port, as positions among all switches."""
        if not self.spread_nics:
            return (np.arange(ports.num_endpoints) // shape.endpoints_per_switch).reshape(ports.table.shape)
        if shape.switches_per_group % ports.per_host:
            raise FabricError(
                f"{ports.per_host} ports of a host cannot be spread evenly over {shape.switches_per_group} switches.",
                hint=f"Use groups of a multiple of {ports.per_host} switches, or leave spread_nics out.",
            )
        chassis = np.arange(ports.num_hosts) // shape.endpoints_per_switch
        return chassis[:, None] * ports.per_host + np.arange(ports.per_host)[None, :]

    def plan(self, parts: NetworkParts, num_endpoints: int) -> DragonflyShape:
        """Return the shape asked for, with what was left open chosen by the balanced rule."""
        balanced = max(1, (parts.radix + 1) // 4)
        p = self.endpoints_per_switch or balanced
        a = self.switches_per_group or 2 * balanced
        h = self.global_ports_per_switch if self.global_ports_per_switch is not None else balanced
        g = self.groups or ceil_div(num_endpoints, p * a)
        shape = DragonflyShape(p, a, h, g)
        if num_endpoints > g * p * a:
            raise FabricError(
                f"{g} groups of {a} switches with {p} host ports join {g * p * a}; the hosts have {num_endpoints}.",
                hint=f"Use at least {ceil_div(num_endpoints, p * a)} groups.",
            )
        if g > a * h + 1:
            raise FabricError(
                f"a group has {a} x {h} = {a * h} global ports, too few to reach {g - 1} other groups.",
                hint="Use larger groups, more global ports per switch, or a larger switch.",
            )
        if g > 1 and self.cables_per_group_pair and self.cables_per_group_pair > shape.cables_per_pair:
            raise FabricError(
                f"{self.cables_per_group_pair} cables between every two of {g} groups need "
                f"{self.cables_per_group_pair * (g - 1)} global ports per group; there are {a * h}.",
                hint=f"At most {shape.cables_per_pair} fit.",
            )
        return shape

    def max_endpoints(self, catalog: Catalog, ports_per_host: int) -> int:
        parts = self.parts(catalog)
        one = self.plan(parts, 1)
        global_ports = one.switches_per_group * one.global_ports
        groups = self.groups or global_ports // (self.cables_per_group_pair or 1) + 1
        return groups * one.endpoints_per_group

    def _join_groups(self, draft: Draft, table: IntArray, shape: DragonflyShape, parts: NetworkParts) -> None:
        a, b = np.triu_indices(shape.switches_per_group, 1)
        latency_s = parts.switch.latency_s
        for _ in range(self.local_cables):
            draft.cable(
                table[:, a].ravel(),
                table[:, b].ravel(),
                link=parts.uplink,
                tier=Tier.GROUP_LOCAL,
                length_m=self.lengths.group_local,
                end_latency_s=latency_s,
            )
        cables = self.cables_per_group_pair or shape.cables_per_pair
        if cables == 0:
            return
        i, j = np.triu_indices(shape.num_groups, 1)
        which = np.arange(cables)
        # Port number of the cable in each group: the other group's number among the rest, so ports fill evenly.
        port_i = (which[None, :] * (shape.num_groups - 1) + (j - 1)[:, None]) % shape.switches_per_group
        port_j = (which[None, :] * (shape.num_groups - 1) + i[:, None]) % shape.switches_per_group
        draft.cable(
            table[np.repeat(i, cables), port_i.ravel()],
            table[np.repeat(j, cables), port_j.ravel()],
            link=parts.uplink,
            tier=Tier.GROUP_GLOBAL,
            length_m=self.lengths.group_global,
            end_latency_s=latency_s,
        )
