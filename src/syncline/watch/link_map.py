"""What devices are in the fabric: names, capacities and rails for interfaces, from a file or from a Fabric."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.describe import units
from syncline.describe.document import Document, read_document, read_text
from syncline.errors import UnitError, WatchError
from syncline.fabric import Fabric
from syncline.watch.links import KnownLink

_KEYS = {"tx", "rx", "capacity", "rail"}


@dataclass(frozen=True)
class LinkMap:
    """Names and capacities for devices; devices it does not know keep their own names and the rate they negotiated."""

    wires: Mapping[tuple[str, str], KnownLink] = field(default_factory=dict)
    source: str = ""

    def wire(self, host: str, device: str, direction: str) -> KnownLink:
        """Return what is known of a device's direction ("tx" or "rx")."""
        known = self.wires.get((device, direction))
        if known is not None:
            return known
        here = f"{host}/{device}"
        src, dst = (here, "") if direction == "tx" else ("", here)
        return KnownLink(f"{here} {direction}", src=src, dst=dst)


def read_link_map(path: str | os.PathLike[str]) -> LinkMap:
    """Read `links:` with a line `DEVICE: {tx: a -> b, rx: b -> a, capacity: 100Gbps, rail: 0}` for each device."""
    document = read_document(read_text(Path(path)), os.fspath(path))
    rows = document.data.get("links") if isinstance(document.data, dict) else None
    if not isinstance(rows, dict) or not rows:
        hint = "Write `links:` and under it `eth0: {tx: a -> b, capacity: 100Gbps}`."
        raise WatchError("no links are given.", where=document.source, hint=hint)
    wires: dict[tuple[str, str], KnownLink] = {}
    for device, row in rows.items():
        wires.update(_wires(str(device), row, document))
    return LinkMap(wires, document.source)


def map_of_fabric(fabric: Fabric, host: str, devices: Sequence[str]) -> LinkMap:
    """Return the map of a host's devices to its NICs in a fabric, in order: the first device is `host/nic-0`."""
    if host not in fabric.host_names:
        some = ", ".join(fabric.host_names[:4])
        hint = "Name one of them with --host."
        raise WatchError(f'"{fabric.name}" has no host "{host}".', detail=f"Its hosts: {some} ...", hint=hint)
    nics = [nic for nic in fabric.nics.tolist() if fabric.host_names[fabric.devices.host[nic]] == host]
    if len(devices) != len(nics):
        problem = f'"{host}" has {len(nics)} NICs in "{fabric.name}", and {len(devices)} interfaces are named here.'
        raise WatchError(problem, hint="Name them in the NICs' order: --nics eth0,eth1.")
    wires: dict[tuple[str, str], KnownLink] = {}
    for device, nic in zip(devices, nics, strict=True):
        out = [link for link in fabric.out_links(nic).tolist() if fabric.devices.host[fabric.links.dst[link]] < 0]
        for link in out[:1]:
            wires[device, "tx"] = _wire_of(fabric, link, nic)
            wires[device, "rx"] = _wire_of(fabric, fabric.links.reverse(link), nic)
    return LinkMap(wires, fabric.name)


def _wire_of(fabric: Fabric, link: int, nic: int) -> KnownLink:
    src, dst = (fabric.device_name(int(end)) for end in (fabric.links.src[link], fabric.links.dst[link]))
    return KnownLink(f"{src} -> {dst}", float(fabric.links.rate_Bps[link]), int(fabric.devices.rail[nic]), src, dst)


def _wires(device: str, row: Any, document: Document) -> dict[tuple[str, str], KnownLink]:
    where = document.where(("links", device))
    if not isinstance(row, dict) or (unknown := set(row) - _KEYS):
        detail = f"Unknown key: {min(map(str, unknown))}." if isinstance(row, dict) else ""
        raise WatchError(f'device "{device}" takes the keys {", ".join(sorted(_KEYS))}.', where=where, detail=detail)
    try:
        capacity_Bps = units.rate(row["capacity"]) if "capacity" in row else float("nan")
        rail = int(row.get("rail", -1))
    except UnitError as error:
        raise WatchError(error.message, where=where, hint=error.hint) from None
    except (TypeError, ValueError):
        raise WatchError(f"rail {row['rail']!r} is not a number.", where=where) from None
    found = {}
    for direction in ("tx", "rx"):
        name = str(row.get(direction) or f"{device} {direction}")
        src, arrow, dst = name.partition(" -> ")
        ends = (src, dst) if arrow else ((device, "") if direction == "tx" else ("", device))
        found[device, direction] = KnownLink(name, capacity_Bps, rail, *ends)
    return found
