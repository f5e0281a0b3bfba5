"""2D and 3D torus, of chips (TPU pods: the chips forward) or of one switch per host (routers)."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from syncline.errors import FabricError
from syncline.fabric.draft import Draft
from syncline.fabric.fabric import IntArray, Kind, Tier
from syncline.fabric.network import Network, Ports, Seconds, attach, numbered


class Torus(Network):
    """`shape: [16, 16, 16]`; `of: chips` joins accelerators by their own links, `of: hosts` gives each host a router.

    A dimension of two positions has one cable between them, not two. Wrap-around cables of a chip torus may pass
    optical circuit switches (`optical_switches`), which cost money and allow the shape to be changed.
    """

    topology: Literal["torus"]
    link: str = ""
    shape: tuple[int, ...] = Field(min_length=1, max_length=6)
    of: Literal["chips", "hosts"] = "chips"
    wrap: bool = True
    optical_switches: int = Field(default=0, ge=0)
    optical_switch: str = "OCS"
    reconfiguration: Seconds = 0.01

    @field_validator("shape")
    @classmethod
    def _positive(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if any(n < 1 for n in shape):
            raise ValueError("every dimension of a torus is at least 1")
        return shape

    def build(self, draft: Draft, ports: Ports) -> None:
        if self.of == "chips":
            self._join_chips(draft, ports)
        else:
            self._join_hosts(draft, ports)
        draft.facts["torus_shape"] = "x".join(map(str, self.shape))
        if self.optical_switches:
            draft.add_switches(
                numbered("ocs", self.optical_switches), self.optical_switch, level=2, kind=Kind.OCS, site=ports.site
            )
            draft.facts["reconfiguration_s"] = self.reconfiguration

    def _join_chips(self, draft: Draft, ports: Ports) -> None:
        chips = np.concatenate([block.gpus.ravel() for block in ports.blocks])
        model = ports.blocks[0].template.model
        gpu = draft.catalog.gpu(model.gpu)
        if gpu.scale_up is None:
            raise FabricError(f"{gpu.name} has no links of its own to form a torus with.", hint="Write `of: hosts`.")
        self._check_count(len(chips), "chips")
        link = draft.catalog.scale_up(gpu.scale_up)
        for a, b in self.neighbours(chips.astype(np.int32)):
            draft.join(a, b, medium=link.name, tier=Tier.SCALE_UP, rate_Bps=link.link_Bps, latency_s=link.latency_s)
        per_host = model.num_gpus
        cube = math.prod(min(4, n) for n in self.shape)
        racks = np.arange(ports.num_hosts) * per_host // cube
        ports.set_racks(draft, racks.astype(np.int32))

    def _join_hosts(self, draft: Draft, ports: Ports) -> None:
        if not self.link:
            raise FabricError("a torus of hosts needs a link.", hint="Write `link: NDR` in the network.")
        parts = self.parts(draft.catalog)
        self._check_count(ports.num_hosts, "hosts")
        routers = draft.add_switches(
            numbered("router", ports.num_hosts),
            parts.switch,
            level=1,
            group=np.arange(ports.num_hosts),
            site=ports.site,
        )
        attach(draft, self, ports, np.repeat(routers, ports.per_host), parts)
        for a, b in self.neighbours(routers):
            draft.cable(
                a,
                b,
                link=parts.uplink,
                tier=Tier.GROUP_LOCAL,
                length_m=self.lengths.group_local,
                end_latency_s=parts.switch.latency_s,
            )
        ports.set_racks(draft, np.arange(ports.num_hosts, dtype=np.int32))

    def neighbours(self, devices: IntArray) -> list[tuple[IntArray, IntArray]]:
        """Return the pairs to join, one entry per dimension."""
        grid = devices.reshape(self.shape)
        pairs = []
        for axis, length in enumerate(self.shape):
            if length < 2:
                continue
            ahead = np.roll(grid, -1, axis=axis)
            keep = length if self.wrap and length > 2 else length - 1
            index = tuple(slice(0, keep) if d == axis else slice(None) for d in range(grid.ndim))
            pairs.append((grid[index].ravel(), ahead[index].ravel()))
        return pairs

    def _check_count(self, found: int, what: str) -> None:
        if math.prod(self.shape) != found:
            text = " x ".join(map(str, self.shape))
            raise FabricError(
                f"a torus of {text} has {math.prod(self.shape)} places but there are {found} {what}.",
                hint=f"Choose a shape whose product is {found}.",
            )
