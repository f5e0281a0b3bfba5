"""What a lab is made of, as plain values: boxes (hosts and switches) and the cables between them.

A blueprint knows nothing of Linux: `lab show` prints it, the process inside the lab builds it. This module imports
nothing heavy, since that process starts with every lab.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from syncline.describe.plain import JsonObject
from syncline.errors import LabError
from syncline.lab.profile import Profile

BoxKind = Literal["host", "bridge", "router"]


@dataclass(frozen=True)
class LabBox:
    """One network namespace: a host, or a switch that bridges or routes. `num_devices` counts a host's GPUs."""

    name: str
    kind: BoxKind
    num_devices: int = 0
    site: int = 0


@dataclass(frozen=True)
class End:
    """One end of a cable: the interface `interface` in box `box`; ports of bridges have no address."""

    box: int
    interface: str
    address: str = ""
    prefix: int = 0


@dataclass(frozen=True)
class LabCable:
    """A cable between two boxes, both directions: `rate_Bps` from a to b and `back_Bps` from b to a, as emulated.

    `link` is the fabric's link from a to b; `link ^ 1` is the way back. `delay_s` is the latency that a relay adds.
    """

    link: int
    a: End
    b: End
    rate_Bps: float
    back_Bps: float
    delay_s: float = 0.0
    weight: int = 1
    up: bool = True

    def ends(self) -> tuple[tuple[End, End, int, float], tuple[End, End, int, float]]:
        """Return both directions as (from, to, link, rate)."""
        return (self.a, self.b, self.link, self.rate_Bps), (self.b, self.a, self.link ^ 1, self.back_Bps)


@dataclass(frozen=True)
class Blueprint:
    """Everything that will be built, with the factor by which rates are scaled."""

    name: str
    boxes: tuple[LabBox, ...]
    cables: tuple[LabCable, ...]
    scale: float
    profile: Profile
    link_names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    """Names of the directed links, by link id."""

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """Indices of the boxes that are hosts."""
        return tuple(i for i, box in enumerate(self.boxes) if box.kind == "host")

    @cached_property
    def switches(self) -> tuple[int, ...]:
        """Indices of the boxes that are switches."""
        return tuple(i for i, box in enumerate(self.boxes) if box.kind != "host")

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Box index by name."""
        return {box.name: i for i, box in enumerate(self.boxes)}

    @cached_property
    def _ports(self) -> tuple[tuple[tuple[int, End, End], ...], ...]:
        ports: list[list[tuple[int, End, End]]] = [[] for _ in self.boxes]
        for i, cable in enumerate(self.cables):
            ports[cable.a.box].append((i, cable.a, cable.b))
            ports[cable.b.box].append((i, cable.b, cable.a))
        return tuple(tuple(each) for each in ports)

    def ports(self, box: int) -> tuple[tuple[int, End, End], ...]:
        """Return the cables of a box as (cable, this end, far end), in the order of its interfaces."""
        return self._ports[box]

    def box(self, name: str) -> int:
        """Return the index of a host or switch by name."""
        if name not in self.by_name:
            some = ", ".join(list(self.by_name)[:6])
            raise LabError(f'the lab has no host or switch "{name}".', hint=f"There are: {some} ...")
        return self.by_name[name]

    def host(self, name: str) -> int:
        """Return the index of a host by name."""
        index = self.box(name)
        if self.boxes[index].kind != "host":
            raise LabError(f'"{name}" is a switch, not a host.', hint=f"Hosts: {self.boxes[self.hosts[0]].name} ...")
        return index

    def addresses(self, host: int) -> dict[str, str]:
        """Return the addresses of a host by interface."""
        return {end.interface: end.address for _, end, _ in self.ports(host)}

    def to_json(self) -> JsonObject:
        """Return the blueprint as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Blueprint:
        """Return the blueprint that `to_json` wrote."""
        return cls(
            name=data["name"],
            scale=data["scale"],
            profile=Profile(**data["profile"]),
            boxes=tuple(LabBox(**box) for box in data["boxes"]),
            cables=tuple(
                LabCable(**{**cable, "a": End(**cable["a"]), "b": End(**cable["b"])}) for cable in data["cables"]
            ),
            link_names={int(link): name for link, name in data["link_names"].items()},
        )
