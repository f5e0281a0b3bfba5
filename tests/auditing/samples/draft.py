"""A captured tree under construction: files named, laid out and worded as the kernel and the tools do.

    draft = Draft("dgx-01")
    draft.pci("0000:1b:00.0", above=("0000:15", "0000:15:01.0"), id="10de:2330", kind=0x030200, driver="nvidia")
    Root.of(draft.tree())

The texts follow Linux 5.15 to 6.8, DOCA OFED 24.10 and driver 550/580; `nvidia-smi -q` follows one of an H200.
"""

from __future__ import annotations

import json
import os.path
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from tests.auditing.samples.commands import outputs

from syncline.describe.plain import JsonObject
from syncline.host.tree import Entry, MemoryTree, SymbolicLink

KINDS = {"gpu": 0x030200, "bridge": 0x060400, "nvswitch": 0x068000, "ethernet": 0x020000, "infiniband": 0x020700}
HARDWARE = (
    "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "roce_adp_retrans",
    "np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets", "out_of_buffer", "implied_nak_seq_err",
)  # fmt: skip
PORT = (
    "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards", "port_xmit_wait",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_rcv_remote_physical_errors",
)  # fmt: skip


@dataclass
class HostDraft:
    """Files, and the parts of command outputs that are put together at the end."""

    host: str
    files: dict[str, Entry] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    interfaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rows of `ip -j -d address`, by name, in the kernel's order."""
    qdiscs: list[JsonObject] = field(default_factory=list)
    smi: dict[str, dict[str, str]] = field(default_factory=dict)
    """By PCI address: changes to what `nvidia-smi -q` says."""
    nvlinks: dict[str, list[str]] = field(default_factory=dict)
    qos: dict[str, JsonObject] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    driver_version: str = "550.127.05"

    def copy(self) -> HostDraft:
        """Return a draft that can be changed on its own."""
        parts = {name: deepcopy(getattr(self, name)) for name in _PARTS}
        return HostDraft(self.host, dict(self.files), **parts, driver_version=self.driver_version)

    def put(self, path: str, text: str | int) -> None:
        """Write a file, following the folder links that were laid."""
        self.files[self.real(path)] = f"{text}\n".encode()

    def text(self, path: str) -> str:
        """Return a file's text."""
        entry = self.files[self.real(path)]
        return entry.decode() if isinstance(entry, bytes) else ""

    def sub(self, path: str, old: str, new: str) -> None:
        """Change part of a file; it has to be there."""
        text = self.text(path)
        if old not in text:
            raise KeyError(f"{path} holds no {old!r}")
        self.files[self.real(path)] = text.replace(old, new).encode()

    def link(self, path: str, to: str) -> None:
        """Lay a relative link, as sysfs does."""
        self.files[path] = SymbolicLink(os.path.relpath(to, os.path.dirname(path)))

    def drop(self, path: str) -> None:
        """Take a file, a link or a whole folder away."""
        real = self.real(path)
        for name in [n for n in self.files if n in (path, real) or n.startswith((f"{path}/", f"{real}/"))]:
            del self.files[name]

    def real(self, path: str) -> str:
        """Return where a path leads when links on the way are followed."""
        parts, here = path.split("/"), ""
        for at, part in enumerate(parts):
            here = f"{here}/{part}" if here else part
            entry = self.files.get(here)
            if isinstance(entry, SymbolicLink) and at < len(parts) - 1:
                here = self.real(os.path.normpath(os.path.join(os.path.dirname(here), entry.target)))
        return here

    def pci(
        self,
        address: str,
        *,
        above: tuple[str, ...],
        id: str,
        kind: str,
        numa: int = 0,
        speed: float = 32.0,
        width: int = 16,
        driver: str = "",
        subsystem: str = "0x10de:0x16c1",
        acs: int | None = None,
        ats: bool | None = None,
        group: str = "identity",
    ) -> None:
        """Add a function below a host bridge and the bridges `above`."""
        folder = "/".join((f"sys/devices/pci{above[0]}", *above[1:], address))
        vendor, device = id.split(":")
        self.link(f"sys/bus/pci/devices/{address}", folder)
        rows: dict[str, str | int] = {
            "vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{KINDS[kind]:06x}", "numa_node": numa,
            "subsystem_vendor": subsystem.split(":")[0], "subsystem_device": subsystem.split(":")[1],
        }  # fmt: skip
        if speed:
            text = f"{speed:.1f} GT/s PCIe"
            rows |= {
                "current_link_speed": text,
                "max_link_speed": text,
                "current_link_width": width,
                "max_link_width": width,
            }
        for name, value in rows.items():
            self.put(f"{folder}/{name}", value)
        if driver:
            self.put(f"sys/bus/pci/drivers/{driver}/module", "")
            self.link(f"{folder}/driver", f"sys/bus/pci/drivers/{driver}")
        if kind != "bridge":
            for error in ("fatal", "nonfatal"):
                self.put(f"{folder}/aer_dev_{error}", f"Undefined 0\nDLP 0\nTLP 0\nTOTAL_ERR_{error.upper()} 0")
            if group:
                self.put(f"sys/kernel/iommu_groups/{crc32(address.encode()) % 997}/type", group)
                self.link(f"{folder}/iommu_group", f"sys/kernel/iommu_groups/{crc32(address.encode()) % 997}")
        self.files[f"{folder}/config"] = config_space(vendor, device, acs=acs, ats=ats)

    def rdma(
        self, name: str, pci: str, *, rate: str, layer: str = "InfiniBand", gids: tuple[tuple[str, str, str], ...] = (),
        firmware: str = "28.42.1000", board: str = "MT_0000000838", uverbs: int = 0, packets: int = 4_000_000_000,
    ) -> None:  # fmt: skip
        """Add an RDMA device with one port, as mlx5_ib shows it."""
        base = f"{self.real(f'sys/bus/pci/devices/{pci}/x').removesuffix('/x')}/infiniband/{name}"
        self.link(f"sys/class/infiniband/{name}", base)
        self.link(f"{base}/device", base.rsplit("/", 2)[0])
        port = f"{base}/ports/1"
        rows = {
            "fw_ver": firmware, "board_id": board, "hca_type": "MT4129", "ports/1/state": "4: ACTIVE",
            "ports/1/phys_state": "5: LinkUp", "ports/1/rate": rate, "ports/1/link_layer": layer,
        }  # fmt: skip
        for key, value in rows.items():
            self.put(f"{base}/{key}", value)
        for at, (gid, kind, interface) in enumerate(
            gids or (("fe80:0000:0000:0000:a088:c203:00aa:1000", "IB/RoCE v1", ""),)
        ):
            self.put(f"{port}/gids/{at}", gid)
            self.put(f"{port}/gid_attrs/types/{at}", kind)
            if interface:
                self.put(f"{port}/gid_attrs/ndevs/{at}", interface)
        self.put(f"{port}/gids/{len(gids) + 2}", "0000:0000:0000:0000:0000:0000:0000:0000")
        for counter in PORT:
            self.put(f"{port}/counters/{counter}", 0)
        for counter in ("port_rcv_packets", "port_xmit_packets", "port_rcv_data", "port_xmit_data"):
            self.put(f"{port}/counters/{counter}", packets)
        for counter in HARDWARE:
            self.put(f"{port}/hw_counters/{counter}", 0)
        self.put(f"sys/class/infiniband_verbs/uverbs{uverbs}/ibdev", name)
        self.put(f"dev/infiniband/uverbs{uverbs}", "")

    def interface(
        self, name: str, *, pci: str = "", speed: int = 0, mtu: int = 1500, address: str = "", kind: str = "",
        driver: str = "", up: bool = True, master: str = "",
    ) -> None:  # fmt: skip
        """Add a network interface; the driver is that of its card."""
        card = self.real(f"sys/bus/pci/devices/{pci}/x").removesuffix("/x") if pci else ""
        if driver.startswith("virtio"):
            card_folder = f"{card}/virtio0"
            self.put(f"{card_folder}/features", "0")
            self.put("sys/bus/virtio/drivers/virtio_net/module", "")
            self.link(f"{card_folder}/driver", "sys/bus/virtio/drivers/virtio_net")
        else:
            card_folder = card
        base = f"{card_folder}/net/{name}" if card else f"sys/devices/virtual/net/{name}"
        self.link(f"sys/class/net/{name}", base)
        rows: dict[str, str | int] = {"mtu": mtu, "operstate": "up" if up else "down", "carrier_changes": 2}
        if name == "lo":
            rows["operstate"] = "unknown"
        if up and name != "lo":
            rows |= {"speed": speed or -1, "duplex": "full" if speed else "unknown"}
        for key, value in rows.items():
            self.put(f"{base}/{key}", value)
        if card:
            self.link(f"{base}/device", card_folder)
        for counter in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_crc_errors", "rx_missed_errors"):
            self.put(f"{base}/statistics/{counter}", 0)
        for counter in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes"):
            self.put(f"{base}/statistics/{counter}", 50_000_000)
        row: JsonObject = {
            "ifindex": len(self.interfaces) + 1,
            "ifname": name,
            "mtu": mtu,
            "operstate": "UP" if up else "DOWN",
        }
        if kind:
            row["linkinfo"] = {"info_kind": kind}
        if master:
            row["master"] = master
        local, _, prefix = address.partition("/")
        row["addr_info"] = (
            [{"family": "inet", "local": local, "prefixlen": int(prefix), "scope": "global"}] if address else []
        )
        self.interfaces[name] = row
        self.put(f"proc/sys/net/ipv4/conf/{name}/rp_filter", 0)

    def set_mtu(self, name: str, mtu: int) -> None:
        """Change an interface's MTU everywhere it is told."""
        self.put(f"sys/class/net/{name}/mtu", mtu)
        self.interfaces[name]["mtu"] = mtu

    def tree(self) -> MemoryTree:
        """Return the finished tree."""
        files = dict(self.files)
        header = "Inter-|   Receive  |  Transmit\n face |bytes    packets|bytes    packets\n"
        rows = "".join(f"{name:>6}: 50000 50000 50000 50000\n" for name in self.interfaces)
        files["proc/net/dev"] = (header + rows).encode()
        files["syncline/environment"] = "".join(f"{k}={v}\n" for k, v in sorted(self.environment.items())).encode()
        files["syncline/commands/ip-address"] = json.dumps(list(self.interfaces.values())).encode()
        files["syncline/commands/tc-qdisc"] = json.dumps(self.qdiscs).encode()
        for name, text in (outputs(self) | self.commands).items():
            files[f"syncline/commands/{name}"] = text.encode()
        return MemoryTree(files)


_PARTS = ("environment", "interfaces", "qdiscs", "smi", "nvlinks", "qos", "commands")


def config_space(vendor: str, device: str, *, acs: int | None = None, ats: bool | None = None) -> bytes:
    """Return 4,096 bytes of configuration space: PCI Express at 0x60, then ACS and ATS where asked for."""
    data = bytearray(4096)
    data[0:4] = int(vendor, 16).to_bytes(2, "little") + int(device, 16).to_bytes(2, "little")
    data[6] = 0x10  # has a list of capabilities
    data[0x34] = 0x60
    data[0x60], data[0x61] = 0x10, 0x00
    data[0x68:0x6A] = (1 << 4 | 5 << 12).to_bytes(2, "little")  # relaxed ordering, reads of 4,096 bytes
    chain = [(0x000D, acs)] if acs is not None else []
    chain += [(0x000F, (1 << 15) if ats else 0)] if ats is not None else []
    at = 0x100
    data[at : at + 4] = (0x0001 | 1 << 16 | (0x140 if chain else 0) << 20).to_bytes(4, "little")  # AER comes first
    for number, (capability, control) in enumerate(chain):
        at = 0x140 + 0x40 * number
        after = at + 0x40 if number + 1 < len(chain) else 0
        data[at : at + 4] = (capability | 1 << 16 | after << 20).to_bytes(4, "little")
        data[at + 6 : at + 8] = control.to_bytes(2, "little")
    return bytes(data)
