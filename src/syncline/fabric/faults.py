"""Failed and degraded links and devices, as part of the description."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from syncline.describe import units
from syncline.describe.hostlist import expand
from syncline.describe.quantity import Rate, Seconds, Strict
from syncline.errors import FabricError
from syncline.fabric.wiring import DeviceKind, Wiring

W = TypeVar("W", bound=Wiring)
_MANY = re.compile(r"[\[*?,]")
_WORDS = {
    DeviceKind.GPU: "GPU", DeviceKind.NIC: "NIC", DeviceKind.SWITCH: "switch", DeviceKind.NVSWITCH: "NVSwitch",
    DeviceKind.PCIE: "PCIe switch", DeviceKind.CPU: "CPU", DeviceKind.OCS: "optical switch",
}  # fmt: skip


class FailedPart(Strict):
    """A cable ("leaf-03 <-> spine-01") or every cable of a device ("host-02/nic-0") that is down, slow or late.

    A name may stand for many: "host-[00-63]/nic-0", "host-*/nic-0" (a star does not cross a slash).
    Without `rate` or `latency` it is down. `which` picks one of several parallel cables, counted from 0.
    """

    link: str | None = None
    device: str | None = None
    rate: Rate | None = None
    latency: Seconds | None = None
    which: int | None = Field(default=None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _a_mapping(cls, given: object) -> object:
        if isinstance(given, str):
            raise ValueError(
                "a fault names what it hits, `{device: spine-07}` or `{link: leaf-03 <-> spine-01, rate: 100Gbps}`; "
                f"{given!r} does not"
            )
        return given

    @model_validator(mode="after")
    def _one_place(self) -> FailedPart:
        if (self.link is None) == (self.device is None):
            raise ValueError("a fault names either a `link` or a `device`")
        return self


def apply_faults(fabric: W, faults: tuple[FailedPart, ...]) -> W:
    """Return the fabric with those links down or degraded."""
    if not faults:
        return fabric
    links = fabric.links
    rate, latency, up = links.rate_Bps.copy(), links.latency_s.copy(), links.up.copy()
    for fault in faults:
        hit = links_of_fault(fabric, fault)
        if fault.rate is None and fault.latency is None:
            up[hit] = False
        if fault.rate is not None:
            if fault.rate > rate[hit].max():
                raise FabricError(
                    f'fault on "{fault.link or fault.device}": {units.show_rate(fault.rate)} is faster than the link.',
                    hint="A fault lowers a rate; change the link's kind to raise it.",
                )
            rate[hit] = np.minimum(rate[hit], fault.rate)  # a device has slower links beside the one meant
            up[hit] &= fault.rate > 0
        if fault.latency is not None:
            latency[hit] = fault.latency
    for column in (rate, latency, up):
        column.flags.writeable = False
    return replace(fabric, links=replace(links, rate_Bps=rate, latency_s=latency, up=up))


def links_of_fault(fabric: Wiring, fault: FailedPart) -> NDArray[np.int64]:
    """Return the ids of the links, both directions, that a fault hits."""
    links = fabric.links
    if fault.device is not None:
        hit = np.asarray(devices_named(fabric, fault.device))
        return np.flatnonzero(np.isin(links.src, hit) | np.isin(links.dst, hit))
    names = [part.strip() for part in (fault.link or "").replace("<->", "->").split("->")]
    if len(names) != 2:
        raise FabricError(f'fault "{fault.link}" does not name a link.', hint='Write "leaf-03 <-> spine-01".')
    a, b = (np.asarray(devices_named(fabric, name)) for name in names)
    one_way = np.flatnonzero(np.isin(links.src, a) & np.isin(links.dst, b))
    if len(one_way) == 0:
        hint = f"List a device's links with `syncline fabric links CLUSTER --device {names[0]}`."
        raise FabricError(f'fault "{fault.link}": no link joins {names[0]} and {names[1]}.', hint=hint)
    if fault.which is not None:
        if len(a) > 1 or len(b) > 1:
            raise FabricError(
                f'fault "{fault.link}": `which` picks one of the cables between two devices; these names match more.',
                hint="Leave `which` out, or name the two devices.",
            )
        if fault.which >= len(one_way):
            raise FabricError(
                f'fault "{fault.link}": {len(one_way)} cables join the two; there is no cable {fault.which}.',
                hint=f"Count from 0 to {len(one_way) - 1}, or leave `which` out for all.",
            )
        one_way = one_way[fault.which : fault.which + 1]
    return np.concatenate((one_way, one_way ^ 1))


def devices_named(fabric: Wiring, name: str) -> list[int]:
    """Return the devices that a name stands for: one, a host list, or all that fit its `*` and `?`."""
    if not _MANY.search(name):
        return [fabric.device(name)]
    devices: list[int] = []
    for one in expand(name, "a fault's name"):
        if "*" not in one and "?" not in one:
            devices.append(fabric.device(one))
            continue
        words = {"*": "[^/]*", "?": "[^/]"}
        pattern = re.compile("".join(words.get(char, re.escape(char)) for char in one))
        fits = [device for device in range(len(fabric.devices)) if pattern.fullmatch(fabric.device_name(device))]
        if not fits:
            raise FabricError(
                f'{fabric.name} has no device like "{one}".',
                hint='Names look like "host-00/nic-0" and "leaf-00"; a star does not cross a slash: "host-*/nic-*".',
            )
        devices += fits
    return sorted(set(devices))


def fault_words(fabric: Wiring, faults: Sequence[FailedPart]) -> str:
    """Return what a cluster file says is broken, counted: "64 NICs down, 1 cable slow"."""
    counted: dict[tuple[str, str], set[int]] = {}
    for fault in faults:
        down = fault.rate == 0 or (fault.rate is None and fault.latency is None)
        how = "down" if down else "slow" if fault.rate is not None else "late"
        if fault.device is None:
            counted.setdefault(("cable", how), set()).update((links_of_fault(fabric, fault) // 2).tolist())
            continue
        for device in devices_named(fabric, fault.device):
            kind = _WORDS[DeviceKind(int(fabric.devices.kind[device]))]
            counted.setdefault((kind, how), set()).add(device)
    return ", ".join(f"{units.counted(len(hit), kind)} {how}" for (kind, how), hit in counted.items())
