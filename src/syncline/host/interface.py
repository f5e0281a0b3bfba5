"""Network interfaces: what sysfs and `ip` say of each, and which of them training traffic would use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import BaseModel, Field, ValidationError

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


class _Address(BaseModel):
    local: str = ""
    prefixlen: int | str = ""
    scope: str = ""


class _Kind(BaseModel):
    info_kind: str = ""


class _IpLink(BaseModel):
    """One interface as `ip -j -d -s address` prints it."""

    ifname: str = Field(min_length=1)
    ifindex: int | None = None
    mtu: int = 0
    operstate: str = ""
    master: str = ""
    linkinfo: _Kind = _Kind()
    addr_info: tuple[_Address, ...] = ()
    stats64: Mapping[str, Mapping[str, int]] = {}


def read_interfaces(root: Root) -> tuple[Interface, ...]:
    """Read the interfaces of this network namespace.

    A sysfs that was mounted in another namespace shows other interfaces, perhaps of the same names; /proc/net/dev and
    `ip` show ours. Where the two differ, sysfs is not asked about interfaces at all.
    """
    links = _from_ip(root.command("ip-address", IP_ADDRESS, quiet=True))
    listed = frozenset(root.names("sys/class/net")) - {"bonding_masters"}
    lines = (root.text("proc/net/dev") or "").splitlines()[2:]
    names = [line.split(":", 1)[0].strip() for line in lines if ":" in line] or list(links) or list(listed)
    by_name = {name: links.get(name) or _IpLink(ifname=name) for name in sorted(names)}
    ours = listed == frozenset(names) and all(_same_index(root, link) for link in by_name.values())
    return tuple(_interface(root, link, "sys/class/net" if ours else "none") for link in by_name.values())


def _same_index(root: Root, link: _IpLink) -> bool:
    index = root.number(f"sys/class/net/{link.ifname}/ifindex")
    return index is None or link.ifindex in (None, index)


def _from_ip(text: str | None) -> dict[str, _IpLink]:
    """Return the interfaces that `ip` prints; rows that are not as it writes them are left out."""
    try:
        rows = json.loads(text) if text else []
    except (ValueError, RecursionError):
        rows = []
    links = {}
    for row in rows if isinstance(rows, list) else ():
        with suppress(ValidationError):
            link = _IpLink.model_validate(row)
            links[link.ifname] = link
    return links


def _interface(root: Root, link: _IpLink, base: str) -> Interface:
    folder = f"{base}/{link.ifname}"
    device = root.real(f"{folder}/device") or ""
    parts = [part for part in device.split("/") if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", part)]
    state = (root.text(f"{folder}/operstate") or link.operstate or "unknown").lower()
    counters = {f"{side}_{name}": value for side, row in link.stats64.items() for name, value in row.items()}
    read = {name: root.number(f"{folder}/statistics/{name}") for name in _COUNTERS}
    return Interface(
        name=link.ifname,
        mtu=root.number(f"{folder}/mtu") or link.mtu,
        state=state,
        speed_Mbps=max(0, root.number(f"{folder}/speed") or 0) if state == "up" else 0,
        duplex=(root.text(f"{folder}/duplex") or "") if state == "up" else "",
        kind=link.linkinfo.info_kind,
        pci=parts[-1] if parts else "",
        driver=(root.real(f"{folder}/device/driver") or "").rpartition("/")[2],
        is_physical=bool(device),
        addresses=tuple(f"{a.local}/{a.prefixlen}" for a in link.addr_info if a.local and a.scope != "link"),
        master=link.master or (root.real(f"{folder}/master") or "").rpartition("/")[2],
        num_carrier_changes=root.number(f"{folder}/carrier_changes") or 0,
        counters=counters | {name: value for name, value in read.items() if value is not None},
        folder=folder if base != "none" else f"ip address show {link.ifname}:",
    )


_COUNTERS = (
    "rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_crc_errors", "rx_dropped",
    "tx_dropped", "rx_missed_errors", "rx_fifo_errors", "tx_carrier_errors",
)  # fmt: skip
