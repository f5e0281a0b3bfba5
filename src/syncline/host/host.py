"""One host as the rules see it: every part is read on first use, and a read that failed is noted on every use.

host = Host(Root.live())
host.gpus, host.ports, host.interfaces, host.environment
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from syncline.host.gpu import NVIDIA_SMI, HostGpu, SmiReport, parse_smi, read_gpus
from syncline.host.huge_pages import HugePages, read_huge_pages
from syncline.host.interface import Interface, read_interfaces
from syncline.host.lookup import Lookup, read_lookup
from syncline.host.pci import PciTree, read_pci
from syncline.host.rdma import IBV_DEVINFO, RdmaPort, active_mtu_bytes, read_rdma
from syncline.host.root import Root

T = TypeVar("T")
NEAR = ("PIX", "PXB")
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/lib", "usr/local/nccl/lib",
    "usr/local/cuda/lib64", "opt/nccl/build/lib", "usr/lib",
)  # fmt: skip
_PLUGIN_FOLDERS = (
    "opt/amazon/ofi-nccl/lib", "opt/amazon/ofi-nccl/lib64", "opt/aws-ofi-nccl/lib",
    "opt/hpcx/nccl_rdma_sharp_plugin/lib",
)  # fmt: skip


class Fact(Generic[T]):
    """A property that is worked out once; what could not be read meanwhile is noted whenever it is used."""

    def __init__(self, make: Callable[[Host], T]) -> None:
        self.make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, host: None, kind: type[Host]) -> Fact[T]: ...
    @overload
    def __get__(self, host: Host, kind: type[Host]) -> T: ...
    def __get__(self, host: Host | None, kind: type[Host]) -> Fact[T] | T:
        if host is None:
            return self
        name = self.make.__name__
        if name not in host.made:
            with host.root.noting() as met:
                value = self.make(host)
            host.made[name] = value, dict(met)
        found, problems = host.made[name]
        if problems:
            host.root.note(problems)
        kept: T = found
        return kept


@dataclass(frozen=True)
class Host:
    """Everything the rules ask about."""

    root: Root
    made: dict[str, tuple[Any, dict[str, str]]] = field(default_factory=dict, repr=False)

    @Fact
    def name(self) -> str:
        """The host's own name, or "host" where it cannot be read."""
        return self.root.text("proc/sys/kernel/hostname") or self.root.text("etc/hostname") or "host"

    @Fact
    def lookup(self) -> Lookup:
        return read_lookup(self.root)

    @Fact
    def own_addresses(self) -> frozenset[str]:
        """Addresses at which other hosts can reach this one; those of bridges for containers are on every host."""
        kept = (i for i in self.interfaces if not i.is_loopback and not i.is_virtual_plumbing)
        found = (address.split("/")[0] for interface in kept for address in interface.addresses)
        return frozenset(address for address in found if not address.startswith("169.254."))

    @Fact
    def pci(self) -> PciTree:
        return read_pci(self.root)

    @Fact
    def gpus(self) -> tuple[HostGpu, ...]:
        return read_gpus(self.root, self.pci)

    @Fact
    def ports(self) -> tuple[RdmaPort, ...]:
        return read_rdma(self.root)

    @Fact
    def interfaces(self) -> tuple[Interface, ...]:
        return read_interfaces(self.root)

    @Fact
    def smi(self) -> SmiReport:
        """What nvidia-smi says; asking where it cannot be run is noted."""
        return parse_smi(self.root.command("nvidia-smi-q", NVIDIA_SMI) or "")

    @Fact
    def active_mtu(self) -> Mapping[str, tuple[int, int]]:
        """By port: active and largest MTU, in bytes."""
        return active_mtu_bytes(self.root.command("ibv-devinfo", IBV_DEVINFO))

    @Fact
    def environment(self) -> Mapping[str, str]:
        """NCCL's configuration files below the variables of the environment, as NCCL reads them."""
        variables = self.root.environment()
        found: dict[str, str] = {}
        paths = [path for path in ("etc/nccl.conf", variables.get("NCCL_CONF_FILE", "")) if path.endswith("nccl.conf")]
        for line in "\n".join(self.root.text(path) or "" for path in paths).splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith("#"):
                found[name.strip()] = value.strip()
        return found | variables

    @Fact
    def modules(self) -> frozenset[str]:
        """Loaded kernel modules; those built in are in sys/module."""
        lines = (self.root.text("proc/modules") or "").splitlines()
        return frozenset(line.split()[0] for line in lines if line.split()) | frozenset(self.root.names("sys/module"))

    @Fact
    def virtual_by(self) -> str:
        """What shows that this is a virtual machine, or ""."""
        vendor, model = (self.root.text(f"sys/class/dmi/id/{name}") or "" for name in ("sys_vendor", "product_name"))
        product = f"{vendor} {model}".strip()
        if re.search(
            r"KVM|QEMU|VMware|VirtualBox|Virtual Machine|Google Compute|Amazon EC2|Bochs|Xen|OpenStack", product
        ):
            # Bare-metal instances carry the cloud's name too.
            return "" if "metal" in product.lower() else f"DMI says {product.strip()}"
        flags = next(
            (row for row in (self.root.text("proc/cpuinfo") or "").splitlines() if row.startswith("flags")), ""
        )
        return "the processor has the hypervisor flag" if " hypervisor" in flags else ""

    @Fact
    def num_numa(self) -> int:
        nodes = [n for n in self.root.names("sys/devices/system/node") if re.fullmatch(r"node\d+", n)]
        return len(nodes) or 1

    @Fact
    def default_routes(self) -> tuple[str, ...]:
        """Interfaces that carry the default route."""
        rows = [line.split() for line in (self.root.text("proc/net/route") or "").splitlines()[1:]]
        return tuple(
            dict.fromkeys(row[0] for row in rows if len(row) > 7 and row[1] == "00000000" and row[7] == "00000000")
        )

    @Fact
    def fabric_ports(self) -> tuple[RdmaPort, ...]:
        """RDMA ports that training would use: those NCCL_IB_HCA names, else cards of the kind beside GPUs, else all.

        Other kinds of card on the same board (storage, management) are left out, as NCCL prefers the nearest. A card
        of the right kind counts even where its GPU is gone.
        """
        chosen = self.environment.get("NCCL_IB_HCA", "")
        if chosen:
            named = tuple(port for port in self.ports if hca_matches(chosen, port))
            if named:
                return named
        return self.training_ports

    @Fact
    def training_ports(self) -> tuple[RdmaPort, ...]:
        """RDMA ports of the kind beside GPUs, else all, whatever NCCL_IB_HCA says."""
        near = {self._kind(port) for port in self.ports if self.nearest_gpu_path(port.pci) in NEAR}
        return tuple(port for port in self.ports if self._kind(port) in near) or self.ports

    @Fact
    def fabric_interfaces(self) -> tuple[Interface, ...]:
        """Interfaces that training traffic crosses: those of RoCE ports, else those for sockets."""
        names = {name for port in self.fabric_ports if port.is_roce for name in port.interfaces}
        pcis = {port.pci for port in self.fabric_ports if port.is_roce}
        roce = tuple(i for i in self.interfaces if i.name in names or (i.pci and i.pci in pcis and i.is_physical))
        if roce or any(not port.is_roce for port in self.fabric_ports):
            return roce
        return self.socket_interfaces

    @Fact
    def socket_interfaces(self) -> tuple[Interface, ...]:
        """Interfaces that NCCL or Gloo would use for sockets: those named, else with a card, else with an address."""
        chosen = self.environment.get("NCCL_SOCKET_IFNAME") or self.environment.get("GLOO_SOCKET_IFNAME") or ""
        usable = [i for i in self.interfaces if not i.is_loopback and not i.is_virtual_plumbing]
        named = tuple(i for i in usable if chosen and interface_matches(chosen, i.name))
        if named:
            return named
        up = [i for i in usable if i.is_up and not i.master]
        cards = tuple(i for i in up if i.is_physical or i.kind in ("bond", "vlan"))
        return cards or tuple(i for i in up if i.addresses)

    @Fact
    def nccl_versions(self) -> tuple[str, ...]:
        """Versions of libnccl in the usual folders, by file name."""
        found = set()
        for folder in _LIBRARY_FOLDERS:
            for name in self.root.names(folder):
                if match := re.fullmatch(r"libnccl\.so\.(\d+\.\d+\.\d+)", name):
                    found.add(match.group(1))
        return tuple(sorted(found, key=version))

    @Fact
    def nccl_plugins(self) -> tuple[str, ...]:
        """Network and tuner plugins of NCCL in the usual folders, by file name."""
        names = (name for folder in (*_LIBRARY_FOLDERS, *_PLUGIN_FOLDERS) for name in self.root.names(folder))
        return tuple(sorted({name for name in names if re.fullmatch(r"libnccl-(net|tuner)[\w.-]*\.so[\d.]*", name)}))

    @Fact
    def huge_pages(self) -> tuple[HugePages, ...]:
        return read_huge_pages(self.root)

    @Fact
    def kernel_log(self) -> tuple[str, ...]:
        """Kernel log lines about network, GPUs and PCIe."""
        text = self.root.command("dmesg", ("dmesg", "--ctime", "--nopager"), quiet=True)
        if text is None:
            text = self.root.command("dmesg", ("dmesg",))
        return tuple((text or "").splitlines())

    def _kind(self, port: RdmaPort) -> tuple[str, str, str]:
        """Return what tells cards of the fabric from others: PCI ids and link layer."""
        device = self.pci.devices.get(port.pci)
        return (device.id, device.subsystem, port.layer) if device else ("", "", port.layer)

    def nearest_gpu_path(self, address: str) -> str:
        """Return the kind of path from a device to its nearest GPU, "" without GPUs."""
        if address not in self.pci.devices or not self.gpus:
            return ""
        kinds = [self.pci.path_kind(gpu.pci.address, address) for gpu in self.gpus]
        return min(kinds, key=("PIX", "PXB", "PHB", "NODE", "SYS").index)

    def sysctl(self, name: str) -> str | None:
        """Return a kernel setting: `net.ipv4.tcp_rmem`."""
        return self.root.text(f"proc/sys/{name.replace('.', '/')}")

    def service(self, name: str) -> str | None:
        """Return "active", "inactive" or "failed", or None where systemd cannot be asked."""
        text = self.root.command(f"systemctl-{name}", ("systemctl", "is-active", name), quiet=True)
        word = (text or "").strip()
        return word if word in ("active", "inactive", "failed", "activating", "deactivating") else None

    def interface(self, name: str) -> Interface | None:
        return next((interface for interface in self.interfaces if interface.name == name), None)


def version(text: str) -> tuple[int, ...]:
    """Return a version as numbers that compare: "2.21.5" before "2.100"."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def hca_matches(choice: str, port: RdmaPort) -> bool:
    """Say whether NCCL_IB_HCA picks a port: `mlx5` by prefix, `=mlx5_0:1` exactly, `^mlx5_bond` all but these."""
    body = choice.lstrip("^=")
    exact = "=" in choice[: len(choice) - len(body)]
    hit = any(_hca(word, port, exact) for word in body.split(",") if word)
    return hit != choice.startswith("^")


def interface_matches(choice: str, name: str) -> bool:
    """Say whether NCCL_SOCKET_IFNAME picks an interface: by prefix, `=eth0` exactly, `^docker,lo` all but these."""
    body = choice.lstrip("^=")
    exact = "=" in choice[: len(choice) - len(body)]
    words = [word for word in body.split(",") if word]
    hit = any(name == word if exact else name.startswith(word) for word in words)
    return hit != choice.startswith("^")


def _hca(word: str, port: RdmaPort, exact: bool) -> bool:
    device, _, number = word.partition(":")
    same = port.device == device if exact else port.device.startswith(device)
    return same and (not number or number == str(port.port))
