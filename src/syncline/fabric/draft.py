"""The Draft: a fabric being built, in bulk.

Builders add thousands of devices and cables per call; `freeze` hands out the immutable `Wiring`, which `build` then
checks as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog, LinkType, Switch
from syncline.fabric.wiring import DeviceKind, Devices, IntArray, Links, Tier, Wiring

if TYPE_CHECKING:
    from syncline.fabric.host import HostTemplate

UNKNOWN_CABLE = "cable"
"""The medium and cable of a link of which only the rate is known."""
MAX_DEVICES = 8_000_000
"""Building takes about 500 bytes a device, its links included: this many stay under 4 GiB."""


@dataclass
class HostBlock:
    """Hosts that were added together: their devices are one template repeated.

    `nics[h, i]` is the device id of NIC i of the block's host h, `gpus` likewise.
    """

    first_host: int
    num_hosts: int
    gpus: IntArray
    nics: IntArray
    template: HostTemplate
    site: int


@dataclass
class Draft:
    """Columns under construction."""

    catalog: Catalog
    host_names: list[str] = field(default_factory=list)
    switch_names: list[str] = field(default_factory=list)
    facts: dict[str, float | int | str] = field(default_factory=dict)
    _devices: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    _links: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    num_devices: int = 0
    _parts: dict[str, int] = field(default_factory=dict)
    _media: dict[str, int] = field(default_factory=dict)
    _cables: dict[str, int] = field(default_factory=dict)
    switch_parts: dict[str, Switch] = field(default_factory=dict)
    """The switch models in use, by name."""
    _co_packaged: set[int] = field(default_factory=set)
    _racks: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def add_hosts(self, template: HostTemplate, names: Sequence[str], site: int = 0) -> HostBlock:
        """Add one host per name, all alike, with their inner links."""
        num_hosts, width = len(names), len(template.kind)
        self._check_room(num_hosts * width)
        first_host, first = len(self.host_names), self.num_devices
        self.host_names.extend(names)
        hosts = np.arange(first_host, first_host + num_hosts, dtype=np.int32)
        part_ids = np.array([self._part(p) for p in template.part], dtype=np.int16)
        self._append_devices(
            kind=np.tile(template.kind, num_hosts),
            host=np.repeat(hosts, width),
            local=np.tile(template.local, num_hosts),
            part=np.tile(part_ids, num_hosts),
            level=0,
            group=0,
            rail=np.tile(template.rail, num_hosts),
            site=site,
        )
        base = first + width * np.arange(num_hosts, dtype=np.int64)
        if len(template.src):
            self._append_cables(
                (base[:, None] + template.src).ravel(),
                (base[:, None] + template.dst).ravel(),
                rate=np.tile(template.rate_Bps, num_hosts),
                latency=np.tile(template.latency_s, num_hosts),
                tier=np.tile(template.tier, num_hosts),
                medium=np.tile(np.array([self._medium(m) for m in template.medium], dtype=np.int16), num_hosts),
            )
        return HostBlock(
            first_host,
            num_hosts,
            (base[:, None] + template.gpu_slots).astype(np.int32),
            (base[:, None] + template.nic_slots).astype(np.int32),
            template,
            site,
        )

    def add_switches(
        self,
        names: Sequence[str],
        switch: Switch | str,
        *,
        level: int,
        group: ArrayLike = 0,
        rail: ArrayLike = -1,
        site: int = 0,
        kind: DeviceKind = DeviceKind.SWITCH,
    ) -> IntArray:
        """Add switches of one model; returns their device ids."""
        self._check_room(len(names))
        part = switch if isinstance(switch, str) else switch.name
        if isinstance(switch, Switch):
            self.switch_parts[part] = switch
        first = self.num_devices
        if isinstance(switch, Switch) and switch.co_packaged:
            self._co_packaged |= set(range(first, first + len(names)))
        self.switch_names.extend(names)
        count = len(names)
        self._append_devices(
            kind=np.full(count, kind, np.uint8),
            host=-1,
            local=np.zeros(count, np.int16),
            part=self._part(part),
            level=level,
            group=group,
            rail=rail,
            site=site,
        )
        return np.arange(first, first + count, dtype=np.int32)

    def cable(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        link: LinkType,
        tier: Tier,
        length_m: float,
        rate_Bps: ArrayLike | None = None,
        end_latency_s: ArrayLike = 0.0,
        kind: str | None = None,
        num_cables: ArrayLike = 1,
    ) -> None:
        """Lay one cable (or a bond of `num_cables`) per pair of devices, equally fast in both directions.

        `rate_Bps` and `end_latency_s` (half the crossing of both ends) are one for all or one each. `kind` names the
        cable; default: the cheapest that reaches.
        """
        ends = [np.atleast_1d(np.asarray(side)) for side in (a, b)]
        lit = sum(bool(side.size) and int(side[0]) in self._co_packaged for side in ends)
        part = self.catalog.cable(kind) if kind else self.catalog.cable_for(link, length_m, lit)
        self._append_cables(
            *ends,
            rate=link.rate_Bps if rate_Bps is None else rate_Bps,
            latency=part.delay_s(length_m) + np.asarray(end_latency_s),
            tier=tier,
            medium=self._medium(link.name),
            cable=self._cable(part.name),
            length=length_m,
            num_cables=num_cables,
        )

    def join(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        medium: str,
        tier: Tier,
        rate_Bps: ArrayLike,
        latency_s: float,
        cable: str | None = None,
    ) -> None:
        """Join pairs of devices by something the catalogue has no cable for (NVLink backplane, a leased line).

        `cable` names it where it is a cable all the same, so that it is counted.
        """
        self._append_cables(
            np.atleast_1d(np.asarray(a)),
            np.atleast_1d(np.asarray(b)),
            rate=rate_Bps,
            latency=latency_s,
            tier=tier,
            medium=self._medium(medium),
            cable=self._cable(cable) if cable else -1,
        )

    def set_racks(self, block: HostBlock, racks: ArrayLike, *, domains: bool = False) -> None:
        """Say which rack (hosts behind the same leaf switches, or in one NVLink domain) each host of a block is in.

        Racks of different sites are different ones whatever their numbers, and so are domains and leaf racks.
        """
        values = np.broadcast_to(np.asarray(racks, dtype=np.int64), (block.num_hosts,))
        self._racks[block.first_host] = values + ((block.site * 2 + domains) << 40)

    def freeze(self, name: str) -> Wiring:
        """Return the finished, immutable devices and links."""
        devices = self._frozen_devices()
        links = self._frozen_links()
        return Wiring(
            name=name,
            devices=devices,
            links=links,
            parts=tuple(self._parts),
            media=tuple(self._media),
            cables=tuple(self._cables),
            host_names=tuple(self.host_names),
            switch_names=tuple(self.switch_names),
            facts=dict(self.facts),
        )

    def top_switches(self, first: int) -> IntArray:
        """Return the switches of the highest level among the devices added since `first`."""
        best, ids, start = 0, np.zeros(0, np.int64), 0
        for block in self._devices:
            kind, level, stop = block["kind"], block["level"], start + len(block["kind"])
            if start >= first and (kind == DeviceKind.SWITCH).any():
                highest = int(level.max())
                mine = np.arange(start, stop)
                ids = mine if highest > best else np.concatenate((ids, mine)) if highest == best else ids
                best = max(best, highest)
            start = stop
        return ids.astype(np.int32)

    def _check_room(self, count: int) -> None:
        if self.num_devices + count > MAX_DEVICES:
            raise FabricError(
                f"the fabric would have {self.num_devices + count:,} devices; the limit is {MAX_DEVICES:,}.",
                hint="Describe fewer hosts.",
            )

    def _part(self, name: str) -> int:
        return self._parts.setdefault(name, len(self._parts))

    def _cable(self, name: str) -> int:
        return self._cables.setdefault(name, len(self._cables))

    def _medium(self, name: str) -> int:
        return self._media.setdefault(name, len(self._media))

    def _append_devices(self, kind: NDArray[np.uint8], **columns: ArrayLike) -> None:
        count = len(kind)
        block = {key: np.broadcast_to(np.asarray(v, dtype=_DEVICE[key]), (count,)) for key, v in columns.items()}
        self._devices.append({"kind": kind.astype(np.uint8), **block})
        self.num_devices += count

    def _append_cables(
        self,
        a: NDArray[Any],
        b: NDArray[Any],
        *,
        rate: ArrayLike,
        latency: ArrayLike,
        tier: ArrayLike,
        medium: ArrayLike,
        cable: int = -1,
        length: float = 0.0,
        num_cables: ArrayLike = 1,
    ) -> None:
        count = len(a)
        if count == 0:
            return
        ends = np.empty((2, count, 2), dtype=np.int32)
        ends[0, :, 0] = ends[1, :, 1] = a
        ends[0, :, 1] = ends[1, :, 0] = b
        values = {
            "rate_Bps": rate,
            "latency_s": latency,
            "tier": tier,
            "medium": medium,
            "cable": cable,
            "length_m": length,
            "num_cables": num_cables,
        }
        columns = {k: np.repeat(np.broadcast_to(np.asarray(v, _LINK[k]), (count,)), 2) for k, v in values.items()}
        self._links.append({"src": ends[0].ravel(), "dst": ends[1].ravel(), **columns})

    def _frozen_devices(self) -> Devices:
        keys = ("kind", *_DEVICE)
        columns = {key: np.concatenate([block[key] for block in self._devices]) for key in keys}
        racks = np.zeros(len(self.host_names), np.int64)
        for first_host, values in self._racks.items():
            racks[first_host : first_host + len(values)] = values
        inside = columns["host"] >= 0
        columns["group"][inside] = np.unique(racks, return_inverse=True)[1][columns["host"][inside]]
        return Devices(**{key: _locked(column) for key, column in columns.items()})

    def _frozen_links(self) -> Links:
        keys = ("src", "dst", *_LINK)
        if not self._links:
            empty = {key: np.zeros(0, _LINK.get(key, np.int32)) for key in keys}
            return Links(**empty, up=np.zeros(0, np.bool_))
        columns = {key: np.concatenate([block[key] for block in self._links]) for key in keys}
        up = columns["rate_Bps"] > 0
        return Links(**{key: _locked(column) for key, column in columns.items()}, up=_locked(up))


def _locked(column: NDArray[Any]) -> NDArray[Any]:
    column.flags.writeable = False
    return column


_DEVICE: dict[str, type[np.generic]] = {
    "host": np.int32,
    "local": np.int16,
    "part": np.int16,
    "level": np.int8,
    "group": np.int32,
    "rail": np.int16,
    "site": np.int16,
}
_LINK: dict[str, type[np.generic]] = {
    "rate_Bps": np.float64,
    "latency_s": np.float64,
    "tier": np.uint8,
    "medium": np.int16,
    "cable": np.int16,
    "length_m": np.float32,
    "num_cables": np.int16,
}
