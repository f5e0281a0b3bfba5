"""Network interfaces: what sysfs and `ip` say of each, and which of them training traffic would use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.host.root import Root

IP_ADDRESS = ("ip", "-j", "-d", "-s", "address", "show")
_BRIDGE_NAMES = re.compile(
    r"(docker|virbr|cni|flannel|cali|cilium|lxc|kube|weave|tunl|vxlan|dummy|br-|podman|ifb|nodelocaldns)"
)
_VIRTUAL_KINDS = {"bridge", "dummy", "ifb", "tun", "vxlan", "sit", "ipip", "gre", "wireguard", "ip6tnl", "nlmon"}


@dataclass(frozen=True)
class Interface:
    """One interface. `speed_Mbps` is 0 where the driver does not say."""

    name: str
    mtu: int
    state: str
    speed_Mbps: int
    duplex: str
    kind: str
    """veth, bond, vlan ... from `ip -d`; "" for a plain device."""
    pci: str
    driver: str
    is_physical: bool
    addresses: tuple[str, ...] = ()
    """As "10.0.0.1/24"."""
    master: str = ""
    num_carrier_changes: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    folder: str = ""

    @property
    def rate_Bps(self) -> float:
        return self.speed_Mbps * 1e6 / 8

    @property
    def is_up(self) -> bool:
        return self.state in ("up", "unknown")

    @property
    def is_loopback(self) -> bool:
        return self.name == "lo"

    @property
    def is_virtual_plumbing(self) -> bool:
        """Say whether it is a bridge or a container's end, which collectives must not use."""
        return bool(_BRIDGE_NAMES.match(self.name)) or self.kind in _VIRTUAL_KINDS

    @property
    def ipv4(self) -> tuple[str, ...]:
        return tuple(address for address in self.addresses if "." in address)


def read_interfaces(root: Root) -> tuple[Interface, ...]:
    """Read the interfaces of this network namespace.

    A sysfs that was mounted in another namespace shows other interfaces, perhaps of the same names; /proc/net/dev and
    `ip` show ours. Where the two differ, sysfs is not asked about interfaces at all.
    """
    told = _from_ip(root.command("ip-address", IP_ADDRESS, quiet=True))
    listed = frozenset(root.names("sys/class/net")) - {"bonding_masters"}
    names = _proc_names(root) or tuple(told) or tuple(listed)
    ours = listed == frozenset(names) and all(_same_index(root, name, told.get(name, {})) for name in names)
    return tuple(
        _interface(root, name, told.get(name, {}), "sys/class/net" if ours else "none") for name in sorted(names)
    )


def _same_index(root: Root, name: str, told: Mapping[str, Any]) -> bool:
    index = root.number(f"sys/class/net/{name}/ifindex")
    return index is None or told.get("ifindex") in (None, index)


def _proc_names(root: Root) -> tuple[str, ...]:
    lines = (root.text("proc/net/dev") or "").splitlines()[2:]
    return tuple(line.split(":", 1)[0].strip() for line in lines if ":" in line)


def _from_ip(text: str | None) -> dict[str, dict[str, Any]]:
    try:
        rows = json.loads(text) if text else []
    except (ValueError, RecursionError):
        rows = []
    found = [row for row in rows if isinstance(row, dict) and row.get("ifname")] if isinstance(rows, list) else []
    return {str(row["ifname"]): row for row in found}


def _interface(root: Root, name: str, told: Mapping[str, Any], base: str) -> Interface:
    folder = f"{base}/{name}"
    device = root.real(f"{folder}/device") or ""
    parts = [part for part in device.split("/") if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", part)]
    info = told.get("linkinfo")
    kind = str(info.get("info_kind", "")) if isinstance(info, dict) else ""
    state = (root.text(f"{folder}/operstate") or str(told.get("operstate", "")) or "unknown").lower()
    return Interface(
        name=name,
        mtu=root.number(f"{folder}/mtu") or _whole(told.get("mtu")),
        state=state,
        speed_Mbps=max(0, root.number(f"{folder}/speed") or 0) if state == "up" else 0,
        duplex=(root.text(f"{folder}/duplex") or "") if state == "up" else "",
        kind=kind,
        pci=parts[-1] if parts else "",
        driver=(root.real(f"{folder}/device/driver") or "").rpartition("/")[2],
        is_physical=bool(device),
        addresses=_addresses(told),
        master=str(told.get("master", "")) or (root.real(f"{folder}/master") or "").rpartition("/")[2],
        num_carrier_changes=root.number(f"{folder}/carrier_changes") or 0,
        counters=_counters(root, folder, told),
        folder=folder if base != "none" else f"ip address show {name}:",
    )


def _addresses(told: Mapping[str, Any]) -> tuple[str, ...]:
    rows = told.get("addr_info")
    found = [row for row in rows if isinstance(row, dict) and row.get("local")] if isinstance(rows, list) else []
    return tuple(f"{row['local']}/{row.get('prefixlen', '')}" for row in found if row.get("scope") != "link")


_COUNTERS = (
    "rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_crc_errors", "rx_dropped",
    "tx_dropped",
    "rx_missed_errors", "rx_fifo_errors", "tx_carrier_errors",
)  # fmt: skip
_IP_COUNTERS = {"packets": "packets", "bytes": "bytes", "errors": "errors", "dropped": "dropped"}


def _counters(root: Root, folder: str, told: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    stats = told.get("stats64")
    for side in ("rx", "tx"):
        row = stats.get(side) if isinstance(stats, dict) else None
        for theirs, ours in _IP_COUNTERS.items():
            if isinstance(row, dict) and isinstance(row.get(theirs), int):
                found[f"{side}_{ours}"] = row[theirs]
    for name in _COUNTERS:
        value = root.number(f"{folder}/statistics/{name}")
        if value is not None:
            found[name] = value
    return found


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
