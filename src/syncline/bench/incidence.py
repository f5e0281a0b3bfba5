"""What could be to blame for each flow: the parts of the fabric it crosses, with a probability where a hash decides.

Parts are what somebody can go and look at: a host's sending or receiving side, a cable between switches in one
direction or in both, all uplinks or downlinks of a leaf, a leaf, a spine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from syncline.bench.pairing import Match
from syncline.errors import BenchError
from syncline.fabric import Fabric
from syncline.fabric.fabric import DeviceKind, Tier
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions

Floats = NDArray[np.float64]


class PartKind(StrEnum):
    """What a part is."""

    HOST_TX = "host-tx"
    HOST_RX = "host-rx"
    LINK = "link"
    CABLE = "cable"
    UPLINKS = "uplinks"
    DOWNLINKS = "downlinks"
    LEAF = "leaf"
    SPINE = "spine"


@dataclass(frozen=True)
class SuspectPart:
    """Something that can be at fault: its kind, its name, the host or switch it belongs to, and its links."""

    kind: PartKind
    name: str
    owner: str
    links: frozenset[int]
    crossed: frozenset[int]
    """Of its links, those that tell that a flow crosses it: a flow that enters a switch leaves it as well."""

    @classmethod
    def single(cls, kind: PartKind, name: str, owner: str, link: int) -> SuspectPart:
        """Return a part that is one link."""
        return cls(kind, name, owner, frozenset({link}), frozenset({link}))


@dataclass(frozen=True, eq=False)
class Incidence:
    """`chance[i, c]`: how likely flow i crosses part c; and the rate each flow's path allows on a healthy fabric."""

    parts: tuple[SuspectPart, ...]
    chance: Floats

    def of(self, rows: Sequence[int]) -> Incidence:
        """Return the incidence of some of the flows."""
        return Incidence(self.parts, self.chance[list(rows)])


KnownPaths = Mapping[tuple[int, int], Sequence[int]]
"""(source, destination) -> the links of the fabric, where somebody knows them: a lab, a static table, traceroutes."""


class Crossings:
    """The links that flows between hosts of a fabric cross. `device` is the GPU that stands for each host (or rank)."""

    def __init__(self, fabric: Fabric, device: Sequence[int], paths: KnownPaths | None = None, transport: str = "ideal"
                 ) -> None:  # fmt: skip
        self.fabric = fabric
        self.device = np.asarray(device, dtype=np.int64)
        self.paths = dict(paths or {})
        self._rows: dict[Match, dict[int, float]] = {}
        self._network = FlowNetwork(fabric, NetworkOptions(routing="spray", transport=transport))

    @property
    def known(self) -> bool:
        """Whether the path of every flow is certain: given, or the only one there is."""
        return bool(self.paths) or not self.has_choices

    @property
    def has_choices(self) -> bool:
        """Whether a hash has something to choose between."""
        levels = self.fabric.devices.level[self.fabric.switches]
        return int((levels >= 2).sum()) > 1

    @property
    def leaf(self) -> list[int]:
        """The leaf of each host, by the first switch its flows cross."""
        links = self.fabric.links
        nic_links = {int(h): int(links.dst[i]) for i, h in self._access_out()}
        host = self.fabric.devices.host[self.device]
        return [nic_links.get(int(h), -1) for h in host]

    def _access_out(self) -> list[tuple[int, int]]:
        links, devices = self.fabric.links, self.fabric.devices
        rows = np.flatnonzero((links.tier == Tier.ACCESS) & (devices.kind[links.src] == DeviceKind.NIC))
        return [(int(row), int(devices.host[links.src[row]])) for row in rows[::-1]]  # the first NIC of a host wins

    def of(self, matches: Sequence[Match]) -> list[dict[int, float]]:
        """Return for each flow its network links and how likely it crosses each."""
        for match in matches:
            if match not in self._rows and (match.src, match.dst) in self.paths:
                self._rows[match] = {int(link): 1.0 for link in self.paths[match.src, match.dst]}
        new = [match for match in dict.fromkeys(matches) if match not in self._rows]
        if new:
            src, dst = (self.device[[getattr(m, end) for m in new]] for end in ("src", "dst"))
            paths = self._network.wire(src, dst, np.zeros(len(new), dtype=np.int64)).paths
            share = paths.shares()
            for i, match in enumerate(new):
                part = slice(int(paths.start[i]), int(paths.start[i + 1]))
                crossed = zip(paths.link[part].tolist(), share[part].tolist(), strict=True)
                self._rows[match] = {a: p for a, p in crossed if a < len(self.fabric.links)}
        return [self._rows[match] for match in matches]

    def line_Bps(self, matches: Sequence[Match]) -> Floats:
        """Return the rate of each flow's slowest link, when nothing else is on its way."""
        rate = self.fabric.links.rate_Bps
        return np.array([min((rate[link] for link in row), default=np.inf) for row in self.of(matches)])

    def incidence(self, matches: Sequence[Match]) -> Incidence:
        """Return all parts that these flows could cross, and how likely each does."""
        rows = self.of(matches)
        parts = _parts(self.fabric, sorted({link for row in rows for link in row}))
        if not parts:
            raise BenchError("these flows cross no network link.", hint="Test hosts, not ranks of one host.")
        chance = np.zeros((len(rows), len(parts)))
        columns: dict[int, list[int]] = {}
        for column, part in enumerate(parts):
            for link in part.crossed:
                columns.setdefault(link, []).append(column)
        for i, row in enumerate(rows):
            for link, share in row.items():
                for column in columns.get(link, ()):
                    chance[i, column] += share
        chance[chance > 1 - 1e-9] = 1.0
        return Incidence(tuple(parts), chance)


def _parts(fabric: Fabric, links: list[int]) -> list[SuspectPart]:
    columns, devices = fabric.links, fabric.devices
    network = [link for link in links if columns.tier[link] not in (Tier.SCALE_UP, Tier.PCIE, Tier.SOCKET)]
    crossed_links = set(network)
    parts: list[SuspectPart] = []
    groups: dict[tuple[PartKind, str], set[int]] = {}
    for link in network:
        src, dst = int(columns.src[link]), int(columns.dst[link])
        ends = devices.kind[src], devices.kind[dst]
        name = fabric.link_name(link)
        if ends[0] in (DeviceKind.NIC, DeviceKind.GPU):
            host = _host(fabric, src)
            parts.append(SuspectPart.single(PartKind.HOST_TX, f"{host} TX ({name})", host, link))
        elif ends[1] in (DeviceKind.NIC, DeviceKind.GPU):
            host = _host(fabric, dst)
            parts.append(SuspectPart.single(PartKind.HOST_RX, f"{host} RX ({name})", host, link))
        else:
            parts.append(SuspectPart.single(PartKind.LINK, name, fabric.device_name(src), link))
            back = columns.reverse(link)
            if link < back and back in crossed_links:
                both = frozenset({link, back})
                parts.append(
                    SuspectPart(PartKind.CABLE, name.replace(" -> ", " <-> "), fabric.device_name(src), both, both)
                )
            if devices.level[src] == 1 and devices.level[dst] > 1:
                groups.setdefault((PartKind.UPLINKS, fabric.device_name(src)), set()).add(link)
            if devices.level[dst] == 1 and devices.level[src] > 1:
                groups.setdefault((PartKind.DOWNLINKS, fabric.device_name(dst)), set()).add(link)
        for end in (src, dst):
            if devices.kind[end] == DeviceKind.SWITCH:
                kind = PartKind.LEAF if devices.level[end] <= 1 else PartKind.SPINE
                groups.setdefault((kind, fabric.device_name(end)), set()).add(link)
    title = {PartKind.UPLINKS: "uplinks of {}", PartKind.DOWNLINKS: "downlinks to {}"}
    for (kind, owner), members in groups.items():
        if kind in (PartKind.UPLINKS, PartKind.DOWNLINKS) and len(members) < 2:
            continue  # the one link is a part already
        entering = {link for link in members if fabric.device_name(int(columns.dst[link])) == owner}
        crossed = entering if kind in (PartKind.LEAF, PartKind.SPINE) else members
        parts.append(
            SuspectPart(kind, title.get(kind, "{}").format(owner), owner, frozenset(members), frozenset(crossed))
        )
    return parts


def _host(fabric: Fabric, device: int) -> str:
    host = int(fabric.devices.host[device])
    return fabric.host_names[host] if host >= 0 else fabric.device_name(device)
