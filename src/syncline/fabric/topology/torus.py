"""2D and 3D torus, of chips (TPU pods: the chips forward) or of one switch per host (routers)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from syncline.describe.quantity import Seconds
from syncline.errors import FabricError
from syncline.fabric.draft import Draft
from syncline.fabric.topology.network import NetworkSpec, Ports, attach, numbered
from syncline.fabric.wiring import DeviceKind, IntArray, Tier


class Torus(NetworkSpec):
    """`shape: [16, 16, 16]`; `of: chips` joins accelerators by their own links, `of: hosts` gives each host a router.

    A dimension of two positions has one cable between them, not two. Cables that leave a rack (TPU: a cube of chips)
    may pass optical circuit switches (`optical_switches`), which cost money and allow the shape to be changed.
    """

    switch_word: ClassVar[str] = "router"
    topology: Literal["torus"]
    link: str = ""
    shape: tuple[int, ...] = Field(min_length=1, max_length=6)
    of: Literal["chips", "hosts"] = "chips"
    host_shape: tuple[int, ...] | None = None
    """How a host's chips lie in the torus (TPU: [2, 2, 1]); default: one after the other along the last dimension."""
    rack_shape: tuple[int, ...] | None = None
    """How a rack's chips lie (TPU: [4, 4, 4])."""
    wrap: bool = True
    optical_switches: int = Field(default=0, ge=0)
    optical_switch: str = "OCS-136"
    reconfiguration: Seconds = 0.01

    @field_validator("shape", "host_shape", "rack_shape", mode="before")
    @classmethod
    def _from_text(cls, shape: Any) -> Any:
        """Read "4x4x4" as in the short form of a network."""
        if not isinstance(shape, str):
            return shape
        try:
            return [int(part) for part in shape.lower().split("x")]
        except ValueError:
            raise ValueError(f'"{shape}" is not a shape; write "4x4x4" or [4, 4, 4]') from None

    @field_validator("shape")
    @classmethod
    def _positive(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if any(n < 1 for n in shape):
            raise ValueError("every dimension of a torus is at least 1")
        return shape

    @model_validator(mode="after")
    def _blocks_fit(self) -> Torus:
        if self.of == "hosts" and (self.host_shape or self.rack_shape):
            raise ValueError("host_shape and rack_shape say where chips lie; a torus of hosts has none")
        outer = self.shape
        for name, block in (("rack_shape", self.rack_shape), ("host_shape", self.host_shape)):
            if block is None:
                continue
            if len(block) != len(outer) or any(b < 1 or n % b for b, n in zip(block, outer, strict=False)):
                raise ValueError(f"{name} {list(block)} does not divide {list(outer)}")
            outer = block
        return self

    def places(self) -> IntArray:
        """Return the place of every chip, in the order of racks, hosts and chips, as positions in the flat grid."""
        grid = np.arange(math.prod(self.shape), dtype=np.int32).reshape(self.shape)
        order = [grid]
        for block in (self.rack_shape, self.host_shape):
            if block is not None:
                order = [piece for whole in order for piece in _blocks(whole, block)]
        return np.concatenate([piece.ravel() for piece in order])

    def build(self, draft: Draft, ports: Ports) -> None:
        if self.of == "chips":
            self._join_chips(draft, ports)
        else:
            self._join_hosts(draft, ports)
        draft.facts["torus_shape"] = "x".join(map(str, self.shape))
        if self.optical_switches:
            draft.add_switches(
                numbered("ocs", self.optical_switches),
                draft.catalog.switch(self.optical_switch),
                level=2,
                kind=DeviceKind.OCS,
                site=ports.site,
            )
            draft.facts["reconfiguration_s"] = self.reconfiguration

    def _join_chips(self, draft: Draft, ports: Ports) -> None:
        chips = np.concatenate([block.gpus.ravel() for block in ports.blocks])
        model = ports.blocks[0].template.model
        gpu = draft.catalog.gpu(model.gpu)
        if gpu.scale_up is None:
            raise FabricError(f"{gpu.name} has no torus links.", hint="Write `of: hosts`.")
        self._check_count(len(chips), "chips")
        link = draft.catalog.scale_up(gpu.scale_up)
        placed = np.empty(len(chips), np.int32)
        placed[self.places()] = chips
        for a, b in self.neighbours(placed):
            draft.join(a, b, medium=link.name, tier=Tier.SCALE_UP, rate_Bps=link.link_Bps, latency_s=link.latency_s)
        self._check_host(model.num_gpus)
        rack = math.prod(self.rack_shape or (min(4, n) for n in self.shape))
        racks = np.arange(ports.num_hosts) * model.num_gpus // rack
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

    def _check_host(self, num_chips: int) -> None:
        if self.host_shape is not None and math.prod(self.host_shape) != num_chips:
            raise FabricError(
                f"a host has {num_chips} chips but host_shape {list(self.host_shape)} holds "
                f"{math.prod(self.host_shape)}.",
                hint="Choose a host_shape whose product is the number of chips.",
            )

    def _check_count(self, count: int, what: str) -> None:
        if math.prod(self.shape) != count:
            text = " x ".join(map(str, self.shape))
            raise FabricError(
                f"a torus of {text} has {math.prod(self.shape)} places but there are {count} {what}.",
                hint=f"Choose a shape whose product is {count}.",
            )


def _blocks(grid: IntArray, shape: tuple[int, ...]) -> list[IntArray]:
    """Cut a grid into blocks of a shape, in row-major order of the blocks."""
    starts = np.ndindex(*(n // b for n, b in zip(grid.shape, shape, strict=True)))
    return [grid[tuple(slice(i * b, (i + 1) * b) for i, b in zip(start, shape, strict=True))] for start in starts]
