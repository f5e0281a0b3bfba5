"""An NCCL topology file for any host of a fabric.

    write_text(path, write_nccl(nccl_topology(fabric, host=3)))

Bus ids of a machine that is only planned are made up the way cloud providers do it: one PCI domain per device. Pass
`bus_ids={"gpu-0": "0000:1a:00.0", ...}` to write a file for a real machine. CPU affinity is left out unless given:
NCCL then asks the machine, which knows its cores better than a plan does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from syncline.errors import FabricError
from syncline.fabric.bill import model_of_host
from syncline.fabric.catalog import Nic
from syncline.fabric.fabric import NETWORK_TIERS, DeviceKind, Fabric, Tier
from syncline.fabric.formats.nccl_check import check_nccl_topology
from syncline.fabric.formats.nccl_host import pci_ids
from syncline.fabric.formats.nccl_xml import NcclTopology, laid_out

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

Attributes = dict[str, str]
NVSWITCH = "fffffff:ff:ff.0"
"""What NVML reports as the far end of a link whose NVSwitch the machine cannot see."""
_SPEEDS = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe",
           6: "64.0 GT/s PCIe"}  # fmt: skip


def nccl_topology(
    fabric: Fabric,
    host: int = 0,
    *,
    bus_ids: Mapping[str, str] | None = None,
    net_names: Sequence[str] | None = None,
    affinity: Sequence[str] | None = None,
) -> NcclTopology:
    """Return the topology of one host, checked against the rules of NCCL's own parser."""
    if not 0 <= host < fabric.num_hosts:
        raise FabricError(
            f"{fabric.name} has no host {host}.", hint=f"Hosts are numbered from 0 to {fabric.num_hosts - 1}."
        )
    writer = _Writer(fabric, host, dict(bus_ids or {}), net_names, affinity)
    topology = laid_out(writer.system(), fabric.host_names[host])
    check_nccl_topology(topology.text, topology.source)
    return topology


class _Writer:
    """Walks one host's devices and links."""

    def __init__(
        self,
        fabric: Fabric,
        host: int,
        bus_ids: dict[str, str],
        net_names: Sequence[str] | None,
        affinity: Sequence[str] | None,
    ) -> None:
        self.fabric = fabric
        self.catalog = fabric.spec.catalog
        self.model = model_of_host(fabric, host, self.catalog)
        self.gpu = self.catalog.gpu(self.model.gpu)
        if self.gpu.vendor != "nvidia":
            raise FabricError(
                f"{fabric.host_names[host]} has {self.gpu.name} accelerators; NCCL runs on NVIDIA GPUs only.",
                hint="Export as GraphML, which takes any fabric.",
            )
        self.devices = [int(i) for i in np.flatnonzero(fabric.devices.host == host)]
        self.bus_ids, self.affinity = bus_ids, affinity
        self.net_names = list(net_names) if net_names is not None else None
        self.num_nets = 0
        self._check_names()

    def system(self) -> Element:
        cpus = [d for d in self.devices if self._kind(d) is DeviceKind.CPU]
        return _element("system", {"version": "1"}, [self.cpu(i, d) for i, d in enumerate(cpus)])

    def cpu(self, number: int, device: int) -> Element:
        cpu = self.model.cpu
        pairs = {"numaid": str(number)}
        if self.affinity is not None and number < len(self.affinity):
            pairs["affinity"] = self.affinity[number]
        pairs["arch"] = cpu.nccl_arch
        if cpu.nccl_arch == "x86_64":
            pairs["vendor"] = cpu.nccl_vendor or ("AuthenticAMD" if cpu.vendor == "amd" else "GenuineIntel")
        pairs |= {"familyid": str(cpu.nccl_family), "modelid": str(cpu.nccl_model)}
        return _element("cpu", pairs, self.below(device))

    def below(self, parent: int) -> list[Element]:
        """Return the PCIe devices under a processor or switch, GPUs before NICs before further switches."""
        children = []
        for link in self.fabric.out_links(parent):
            child = int(self.fabric.links.dst[link])
            if self.fabric.links.tier[link] != Tier.PCIE or self._kind(child) is DeviceKind.CPU:
                continue
            if self._kind(parent) is DeviceKind.PCIE and self._kind(child) is DeviceKind.PCIE:
                continue
            children.append((int(self._kind(child)), child, int(link)))
        return [self.pci(child, link) for _, child, link in sorted(children)]

    def pci(self, device: int, link: int) -> Element:
        kind = self._kind(device)
        medium = self.fabric.media[self.fabric.links.medium[link]]
        if kind is DeviceKind.PCIE:
            pairs = self._pci_pairs(device, "0x060400", "0000:0000", medium)
            return _element("pci", pairs, self.below(device))
        if kind is DeviceKind.GPU:
            direct = self.catalog.scale_up(medium) if medium not in self.catalog.names("pcie") else None
            pairs = self._pci_pairs(
                device, "0x030200", self._number("gpu", self.gpu.name), self.gpu.pcie if direct else medium
            )
            gpu = _element("pci", pairs, [self.gpu_element(device, link if direct else None)])
            return self._behind_bridge(device, gpu, medium) if self._deep(link) else gpu
        nic = self.catalog.nic(self.fabric.parts[self.fabric.devices.part[device]])
        class_ = "0x020700" if self._infiniband(device) else "0x020000"
        pairs = self._pci_pairs(device, class_, self._number("nic", nic.name), medium)
        return _element("pci", pairs, [self.nic(device, nic)])

    def _deep(self, link: int) -> bool:
        """Where GPUs are PXB from their NICs, each has a second bridge above it, which the fabric leaves out."""
        return self.model.nic_path == "PXB" and self._kind(int(self.fabric.links.src[link])) is DeviceKind.PCIE

    def _behind_bridge(self, device: int, gpu: Element, medium: str) -> Element:
        number = int(self.fabric.devices.local[device]) + 1
        pairs = self._pci_pairs(device, "0x060400", "0000:0000", medium) | {"busid": f"ffff:fe:{number:02x}.0"}
        return _element("pci", pairs, [gpu])

    def gpu_element(self, device: int, c2c_link: int | None) -> Element:
        local = str(self.fabric.devices.local[device])
        children = []
        for target, (count, class_) in self._nvlinks(device).items():
            children.append(_element("nvlink", {"target": target, "count": str(count), "tclass": class_}))
        if c2c_link is not None:
            rate_MBps = round(self.fabric.links.rate_Bps[c2c_link] / 1e6)
            children.append(_element("c2c", {"bw": str(rate_MBps), "count": "1"}))
        pairs = {"dev": local, "sm": str(self.gpu.sm), "rank": local, "gdr": str(int(self._gdr()))}
        return _element("gpu", pairs, children)

    def nic(self, device: int, nic: Nic) -> Element:
        links = self._network_links(device)
        rates = [float(self.fabric.links.rate_Bps[link]) for link in links] or [nic.max_Bps]
        return _element("nic", {}, [self.net(rate, port) for port, rate in enumerate(rates, start=1)])

    def net(self, rate_Bps: float, port: int) -> Element:
        number = self.num_nets
        self.num_nets += 1
        pairs = {"name": self._net_name(number), "dev": str(number), "speed": str(round(rate_Bps * 8 / 1e6))}
        pairs |= {"port": str(port), "latency": "0.000000", "guid": f"{number + 1:#x}", "maxconn": "131072"}
        return _element("net", pairs | {"gdr": str(int(self._gdr()))})

    def _nvlinks(self, device: int) -> dict[str, tuple[int, str]]:
        fabric, targets = self.fabric, dict[str, tuple[int, str]]()
        if self.gpu.scale_up is None:
            return targets
        per_link = self.catalog.scale_up(self.gpu.scale_up).link_Bps
        for link in fabric.out_links(device):
            peer = int(fabric.links.dst[link])
            if fabric.links.tier[link] != Tier.SCALE_UP or not fabric.links.up[link]:
                continue
            count = max(1, round(float(fabric.links.rate_Bps[link]) / per_link))
            switched = self._kind(peer) is DeviceKind.NVSWITCH
            target = NVSWITCH if switched else self._bus_id(peer)
            old = targets.get(target, (0, ""))[0]
            targets[target] = (old + count, "0x068000" if switched else "0x030200")
        return targets

    def _pci_pairs(self, device: int, class_: str, number: str, medium: str) -> Attributes:
        vendor, _, part = number.partition(":")
        pcie = self.catalog.pcie(medium)
        pairs = {"busid": self._bus_id(device), "class": class_, "vendor": f"0x{vendor}", "device": f"0x{part}"}
        pairs |= {"subsystem_vendor": "0x0000", "subsystem_device": "0x0000"}
        speed = _SPEEDS.get(pcie.generation, _SPEEDS[6])
        return pairs | {"link_speed": speed, "link_width": str(pcie.num_lanes)}

    def _bus_id(self, device: int) -> str:
        local, kind = int(self.fabric.devices.local[device]), self._kind(device)
        name = self._short(device)
        if name in self.bus_ids:
            return self.bus_ids[name].lower()
        if kind is DeviceKind.PCIE:
            return f"ffff:ff:{local + 1:02x}.0"
        return f"{local + (1 if kind is DeviceKind.GPU else 0x101):04x}:00:00.0"

    def _short(self, device: int) -> str:
        return self.fabric.device_name(device).rpartition("/")[2]

    def _number(self, kind: str, part: str) -> str:
        return next((number for number, name in pci_ids()[kind].items() if name == part), "0000:0000")

    def _net_name(self, number: int) -> str:
        if self.net_names is not None:
            if number >= len(self.net_names):
                raise FabricError(f"the host has more than {len(self.net_names)} network ports.", hint="Name them all.")
            return self.net_names[number]
        return f"mlx5_{number}" if self._vendor() == "nvidia" else f"net_{number}"

    def _vendor(self) -> str:
        return self.catalog.nic(self.model.nic).vendor if self.model.nic else ""

    def _gdr(self) -> bool:
        return self.model.link is not None and self.catalog.link(self.model.link).rdma

    def _network_links(self, device: int) -> list[int]:
        tiers = self.fabric.links.tier
        return [int(link) for link in self.fabric.out_links(device) if Tier(int(tiers[link])) in NETWORK_TIERS]

    def _infiniband(self, device: int) -> bool:
        media = [self.fabric.media[self.fabric.links.medium[link]] for link in self._network_links(device)]
        names = media or ([self.model.link] if self.model.link else [])
        known = set(self.catalog.names("link"))
        return any(name in known and self.catalog.link(name).family == "infiniband" for name in names)

    def _kind(self, device: int) -> DeviceKind:
        return DeviceKind(int(self.fabric.devices.kind[device]))

    def _check_names(self) -> None:
        known = {self._short(d) for d in self.devices}
        if unknown := sorted(set(self.bus_ids) - known):
            raise FabricError(
                f'bus_ids names "{unknown[0]}", which the host does not have.',
                hint=f"Names are such as {', '.join(sorted(known)[:3])}.",
            )


def _element(tag: str, pairs: Attributes, children: Iterable[Element] = ()) -> Element:
    from lxml import etree

    element = etree.Element(tag, pairs)
    element.extend(children)
    return element
