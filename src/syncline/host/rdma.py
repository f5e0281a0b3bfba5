"""RDMA devices and their ports as `class/infiniband` of sysfs shows them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from syncline.describe.names import natural
from syncline.host.root import Root

IBV_DEVINFO = ("ibv_devinfo", "-v")


@dataclass(frozen=True)
class Gid:
    """One entry of a port's GID table."""

    index: int
    address: str
    type: str
    """"IB/RoCE v1" or "RoCE v2"."""
    interface: str

    @property
    def is_ipv4(self) -> bool:
        return ipaddress.IPv6Address(self.address).ipv4_mapped is not None

    @property
    def is_link_local(self) -> bool:
        return ipaddress.IPv6Address(self.address).is_link_local

    @property
    def family(self) -> str:
        """Return what both ends of a connection must share: RoCE's version and the kind of address."""
        local = "link-local " if self.is_link_local else ""
        return f"RoCE v{2 if 'v2' in self.type else 1} {local}{'IPv4' if self.is_ipv4 else 'IPv6'}"


@dataclass(frozen=True)
class RdmaPort:
    """One port of an RDMA device; rate in bytes per second, 0 where sysfs does not say."""

    device: str
    port: int
    state: str
    physical: str
    rate_Bps: float
    rate_text: str
    layer: str
    gids: tuple[Gid, ...]
    counters: Mapping[str, int]
    hardware: Mapping[str, int]
    firmware: str
    board: str
    pci: str
    driver: str
    netdevs: tuple[str, ...] = ()
    """Interfaces of the same PCI function and port."""

    @property
    def name(self) -> str:
        return f"{self.device}:{self.port}"

    @property
    def folder(self) -> str:
        return f"sys/class/infiniband/{self.device}/ports/{self.port}"

    @property
    def is_active(self) -> bool:
        return self.state.startswith("4")

    @property
    def is_roce(self) -> bool:
        return self.layer.lower() == "ethernet"

    @property
    def is_infiniband(self) -> bool:
        return not self.is_roce and self.driver != "efa"

    @property
    def is_connectx(self) -> bool:
        return self.device.startswith("mlx") or self.driver.startswith("mlx")

    @property
    def interfaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(gid.interface for gid in self.gids if gid.interface)) or self.netdevs

    @property
    def num_packets(self) -> int:
        return self.counters.get("port_rcv_packets", 0) + self.counters.get("port_xmit_packets", 0)


def read_rdma(root: Root) -> tuple[RdmaPort, ...]:
    """Read every port of every RDMA device, in the order of their names."""
    found = []
    for device in sorted(root.names("sys/class/infiniband"), key=natural):
        folder = f"sys/class/infiniband/{device}"
        ports = [int(name) for name in root.names(f"{folder}/ports") if name.isdecimal()]
        found += [_port(root, device, port) for port in sorted(ports)]
    return tuple(found)


def chosen_gid(port: RdmaPort, environment: Mapping[str, str]) -> Gid | None:
    """Return the entry NCCL takes on a RoCE port: as NCCL_IB_GID_INDEX says, else a routable one of the wanted kind."""
    forced = environment.get("NCCL_IB_GID_INDEX", "")
    if forced.isdecimal():
        return next((gid for gid in port.gids if gid.index == int(forced)), None)
    version = environment.get("NCCL_IB_ROCE_VERSION_NUM", "2")
    family = "IPv6" if environment.get("NCCL_IB_ADDR_FAMILY") == "AF_INET6" else "IPv4"
    routable = [gid for gid in port.gids if not gid.is_link_local]
    wanted = [gid for gid in routable if gid.family == f"RoCE v{version} {family}"]
    return next(iter(wanted or [gid for gid in routable if "v2" in gid.type] or routable), None)


def active_mtu_bytes(text: str | None) -> dict[str, tuple[int, int]]:
    """Read `ibv_devinfo -v`: "mlx5_0:1" -> active and largest MTU."""
    found: dict[str, tuple[int, int]] = {}
    device = port = ""
    largest = 0
    for line in (text or "").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        number = re.match(r"(\d+)", value)
        if key == "hca_id":
            device = value
        elif key == "port" and number:
            port = number.group(1)
        elif key == "max_mtu" and number:
            largest = int(number.group(1))
        elif key == "active_mtu" and number and device and port:
            found[f"{device}:{port}"] = int(number.group(1)), largest
    return found


def _port(root: Root, device: str, port: int) -> RdmaPort:
    folder = f"sys/class/infiniband/{device}/ports/{port}"
    base = f"sys/class/infiniband/{device}"
    rate_text = root.text(f"{folder}/rate") or ""
    rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", rate_text)
    pci = [
        p
        for p in (root.real(f"{base}/device") or "").split("/")
        if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f:]{5}\.[0-7]", p)
    ]
    return RdmaPort(
        device=device,
        port=port,
        state=root.text(f"{folder}/state") or "",
        physical=root.text(f"{folder}/phys_state") or "",
        rate_Bps=float(rate.group(1)) * 1e9 / 8 if rate else 0.0,
        rate_text=rate_text,
        layer=root.text(f"{folder}/link_layer") or "",
        gids=_gids(root, folder),
        counters=_numbers(root, f"{folder}/counters"),
        hardware=_numbers(root, f"{folder}/hw_counters"),
        firmware=root.text(f"{base}/fw_ver") or "",
        board=root.text(f"{base}/board_id") or "",
        pci=pci[-1] if pci else "",
        driver=(root.real(f"{base}/device/driver") or "").rpartition("/")[2],
        netdevs=_netdevs(root, f"{base}/device/net", port),
    )


def _netdevs(root: Root, folder: str, port: int) -> tuple[str, ...]:
    """Return the interfaces of a port: a card with several ports on one function counts them from 0 in `dev_port`."""
    names = root.names(folder)
    return tuple(name for name in names if root.number(f"{folder}/{name}/dev_port") in (None, port - 1))


def _gids(root: Root, folder: str) -> tuple[Gid, ...]:
    found = []
    for name in sorted(root.names(f"{folder}/gids"), key=natural):
        text = root.text(f"{folder}/gids/{name}") or ""
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            continue
        if not name.isdecimal() or int(address) == 0:
            continue
        kind = root.text(f"{folder}/gid_attrs/types/{name}") or ""
        interface = root.text(f"{folder}/gid_attrs/ndevs/{name}") or ""
        found.append(Gid(int(name), str(address), kind, interface))
    return tuple(found)


def _numbers(root: Root, folder: str) -> dict[str, int]:
    found = {}
    for name in root.names(folder):
        if name in _WANTED and (value := root.number(f"{folder}/{name}")) is not None:
            found[name] = value
    return found


_WANTED = frozenset((
    "port_rcv_packets", "port_xmit_packets", "port_rcv_data", "port_xmit_data", "symbol_error", "link_downed",
    "link_error_recovery", "port_rcv_errors", "port_xmit_discards", "port_xmit_wait", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "port_rcv_remote_physical_errors", "out_of_sequence", "packet_seq_err",
    "local_ack_timeout_err", "rnr_nak_retry_err", "roce_adp_retrans", "roce_adp_retrans_to", "np_cnp_sent",
    "rp_cnp_handled", "np_ecn_marked_roce_packets", "out_of_buffer", "rx_write_requests", "retrans_timeout_events",
    "retrans_pkts", "rx_drops", "implied_nak_seq_err", "req_transport_retries_exceeded",
))  # fmt: skip
