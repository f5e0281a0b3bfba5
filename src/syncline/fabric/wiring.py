"""Devices and links as columns: the part of a fabric that builders know, without the description it came from."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.describe.frozen import FrozenColumns
from syncline.errors import FabricError

IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
_NUMBER = re.compile(r"\d+")
_PADDING = re.compile(r"(?<!\d)0+(?=\d)")
_FEW = 20_000  # among more devices a misspelt name is looked for among the switches alone


def _unpadded(name: str) -> str:
    return _PADDING.sub("", name)


def _numbers(name: str) -> list[str]:
    return _NUMBER.findall(_unpadded(name))


class DeviceKind(IntEnum):
    """What a device is."""

    GPU = 0
    NIC = 1
    SWITCH = 2
    NVSWITCH = 3
    PCIE = 4
    CPU = 5
    OCS = 6


class Tier(IntEnum):
    """Which layer of the machine a link belongs to."""

    SCALE_UP = 0
    PCIE = 1
    SOCKET = 2
    ACCESS = 3
    LEAF_SPINE = 4
    SPINE_CORE = 5
    GROUP_LOCAL = 6
    GROUP_GLOBAL = 7
    WAN = 8
    OPTICAL = 9

    @property
    def label(self) -> str:
        """The name shown to people and used in JSON."""
        return self.name.lower().replace("_", "-")


NETWORK_TIERS = frozenset(
    {Tier.ACCESS, Tier.LEAF_SPINE, Tier.SPINE_CORE, Tier.GROUP_LOCAL, Tier.GROUP_GLOBAL, Tier.WAN, Tier.OPTICAL}
)
_HOST_PART_NAMES = {
    DeviceKind.GPU: "gpu",
    DeviceKind.NIC: "nic",
    DeviceKind.NVSWITCH: "nvswitch",
    DeviceKind.PCIE: "pcie",
    DeviceKind.CPU: "cpu",
}


@dataclass(frozen=True, eq=False)
class Devices(FrozenColumns):
    """Columns of devices; row i is device i.

    `local` counts devices of one kind inside their host. `level` is 0 for endpoints, 1 for leaf switches, 2 for
    spines, 3 for cores. `group` is the pod, scalable unit or dragonfly group of a switch and the rack (hosts behind
    the same leaf switches) of a host's devices. `rail` is the rail a NIC or leaf serves, or -1.
    """

    kind: NDArray[np.uint8]
    host: IntArray
    local: NDArray[np.int16]
    part: NDArray[np.int16]
    level: NDArray[np.int8]
    group: IntArray
    rail: NDArray[np.int16]
    site: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, eq=False)
class Links(FrozenColumns):
    """Columns of directed links; links 2k and 2k+1 are one cable's two directions.

    `latency_s` covers the cable and half the crossing of the device at either end, so that a path adds up. `medium`
    indexes `Fabric.media`, `cable` indexes `Fabric.cables` (-1: on a board). A bond of several cables between two
    devices is one link of their summed rate with `num_cables` > 1. A link that is not `up` carries nothing but is
    still counted and drawn.
    """

    src: IntArray
    dst: IntArray
    rate_Bps: FloatArray
    latency_s: FloatArray
    tier: NDArray[np.uint8]
    medium: NDArray[np.int16]
    cable: NDArray[np.int16]
    length_m: NDArray[np.float32]
    num_cables: NDArray[np.int16]
    up: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.src)

    @staticmethod
    def reverse(link: int) -> int:
        """Return the other direction of the same cable."""
        return link ^ 1


@dataclass(frozen=True, eq=False)
class Wiring(FrozenColumns):
    """Devices and links with their names: what builders draft, before the description is put beside it."""

    name: str
    devices: Devices
    links: Links
    parts: tuple[str, ...]
    media: tuple[str, ...]
    cables: tuple[str, ...]
    host_names: tuple[str, ...]
    switch_names: tuple[str, ...]
    facts: Mapping[str, float | int | str] = field(default_factory=dict)
    """What the builder knows and a count of cables does not show, such as `max_endpoints`."""

    @property
    def num_hosts(self) -> int:
        return len(self.host_names)

    @property
    def num_gpus(self) -> int:
        return len(self.gpus)

    @cached_property
    def gpus(self) -> IntArray:
        """Device ids of all GPUs, by host and then by local index."""
        return self._of_kind(DeviceKind.GPU)

    @cached_property
    def nics(self) -> IntArray:
        """Device ids of all NICs."""
        return self._of_kind(DeviceKind.NIC)

    @cached_property
    def switches(self) -> IntArray:
        """Device ids of all network switches (NVSwitches and optical switches are not among them)."""
        return self._of_kind(DeviceKind.SWITCH)

    @cached_property
    def gpu_host(self) -> IntArray:
        """The host of each GPU, in the order of `gpus`."""
        return self.devices.host[self.gpus]

    @cached_property
    def rack_of_host(self) -> IntArray:
        """The rack of each host: hosts with the same number sit behind the same leaf switches."""
        return self._of_hosts(self.devices.group)

    @cached_property
    def site_of_host(self) -> NDArray[np.int16]:
        """The site of each host."""
        return self._of_hosts(self.devices.site)

    def _of_hosts(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return what a column holds for the devices of each host, which all have the same."""
        result = np.zeros(self.num_hosts, dtype=column.dtype)
        inside = self.devices.host >= 0
        result[self.devices.host[inside]] = column[inside]
        return result

    def gpu(self, host: int, local: int = 0) -> int:
        """Return the device id of one GPU of one host."""
        mine = self.gpus[self.gpu_host == host]
        if not 0 <= local < len(mine):
            raise FabricError(f"host {host} of {self.name} has {len(mine)} GPUs; there is no GPU {local}.")
        return int(mine[local])

    def device_name(self, device: int) -> str:
        """Return the name of a device: `host-03/gpu-1`, `leaf-07`."""
        host = int(self.devices.host[device])
        if host < 0:
            return self.switch_names[self._switch_rank[device]]
        kind = DeviceKind(int(self.devices.kind[device]))
        return f"{self.host_names[host]}/{_HOST_PART_NAMES[kind]}-{self.devices.local[device]}"

    def device(self, name: str) -> int:
        """Return the id of the device of that name."""
        try:
            return self._by_name[name]
        except KeyError:
            near = self._named_like(name)
            raise FabricError(
                f'{self.name} has no device "{name}".',
                hint=(f'Did you mean "{near[0]}"? ' if near else "")
                + f'Names look like "{self.device_name(int(self.gpus[0]))}"'
                + (f' and "{self.switch_names[0]}".' if self.switch_names else "."),
            ) from None

    def _named_like(self, name: str) -> list[str]:
        """Return the device of the same numbers whose name is nearest: "spine-00" for "spine-0" or "spline-00"."""
        known = list(self._by_name) if len(self._by_name) < _FEW else list(self.switch_names)
        same = {_unpadded(one): one for one in known if _numbers(one) == _numbers(name)}
        return [same[one] for one in difflib.get_close_matches(_unpadded(name), same, n=1, cutoff=0.7)]

    def link_name(self, link: int) -> str:
        """Return the name of a directed link: `leaf-03 -> spine-01`."""
        return f"{self.device_name(int(self.links.src[link]))} -> {self.device_name(int(self.links.dst[link]))}"

    def out_links(self, device: int) -> IntArray:
        """Return the ids of the links that leave a device."""
        start, order = self.adjacency
        return order[start[device] : start[device + 1]]

    @cached_property
    def adjacency(self) -> tuple[NDArray[np.int64], IntArray]:
        """Out-links of every device as compressed rows: `order[start[d]:start[d + 1]]`."""
        order = np.argsort(self.links.src, kind="stable").astype(np.int32)
        counts = np.bincount(self.links.src, minlength=len(self.devices))
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), order

    def _of_kind(self, kind: DeviceKind) -> IntArray:
        return np.flatnonzero(self.devices.kind == kind).astype(np.int32)

    @cached_property
    def _switch_rank(self) -> dict[int, int]:
        named = np.flatnonzero(self.devices.host < 0)
        return {int(device): rank for rank, device in enumerate(named)}

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {self.device_name(i): i for i in range(len(self.devices))}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}, hosts={self.num_hosts}, gpus={self.num_gpus}, "
            f"switches={len(self.switches)}, links={len(self.links)})"
        )
