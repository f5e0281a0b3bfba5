"""How far apart NCCL considers a GPU and a NIC of one host: PIX, PXB, P2C, PHB, SYS or DIS.

PCIe below a processor is a tree, so a path climbs from one device and descends to the other. NCCL names it after its
worst step: one shared bridge (PIX), several bridges (PXB), the processor (PHB), another processor (SYS).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from syncline.fabric.formats.nccl_check import CLASSES, prefix_value, strtol

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

ORDER = ("PIX", "PXB", "P2C", "PHB", "SYS", "DIS")
"""From near to far."""


@dataclass(frozen=True, eq=False)
class PciNode:
    """A GPU or NIC: its element, the bridges above it from near to far, and its processor.

    `functions` are the other PCI functions of the same card: a card with two ports shows two.
    """

    kind: str
    element: Element
    bridges: tuple[Element, ...]
    cpu: Element
    functions: list[Element] = field(default_factory=list)

    @property
    def bus_id(self) -> str:
        return self.element.get("busid", "").lower()


def pci_devices(root: Element) -> list[PciNode]:
    """Return the GPUs and NICs of a topology in document order; the functions of one card are one NIC."""
    devices: list[PciNode] = []
    for cpu in root.iterchildren("cpu"):
        for device in _below(cpu, (), cpu):
            card = device.bus_id[:-1]
            same = (d for d in devices if card and d.kind == device.kind == "NIC" and d.bus_id[:-1] == card)
            if (other := next(same, None)) is not None:
                other.functions.append(device.element)
            else:
                devices.append(device)
    return devices


def path_kind(gpu: PciNode, nic: PciNode) -> str:
    """Return NCCL's name for the path between a GPU and a NIC."""
    shared = [bridge for bridge in gpu.bridges if bridge in nic.bridges]
    if shared:
        return "PIX" if gpu.bridges[0] is nic.bridges[0] is shared[0] else "PXB"
    targets = {link.get("target", "").lower() for bridge in gpu.bridges for link in bridge.iterchildren("pcilink")}
    if targets & {bridge.get("busid", "").lower() for bridge in nic.bridges}:
        return "PXB"  # the two switches are linked past the processor
    if gpu.cpu is not nic.cpu:
        return "SYS" if gpu.cpu.get("host_hash") == nic.cpu.get("host_hash") else "DIS"
    return "P2C" if any(True for _ in gpu.element.iter("c2c")) else "PHB"


def integer(text: str | None, default: int = 0) -> int:
    """Read a number as NCCL does, or return the default where there is none."""
    number = strtol(text or "")
    return default if number is None else number


def _below(parent: Element, bridges: tuple[Element, ...], cpu: Element) -> Iterator[PciNode]:
    for child in parent.iterchildren("pci", "nic"):
        kind = "NIC" if child.tag == "nic" else _pci_kind(child)
        if kind in ("GPU", "NIC"):
            yield PciNode(kind, child, bridges, cpu)
        elif kind == "PCI":
            # Broadcom PEX switches show two levels but switch as one; NCCL joins them, and so PXB becomes PIX.
            outer = _broadcom(bridges[0], 0) if bridges else 0
            same = outer and outer == _broadcom(child, 1)
            yield from _below(child, bridges if same else (child, *bridges), cpu)


def _pci_kind(element: Element) -> str:
    """Return what NCCL takes a `pci` element for: PCI, NVS, CPU, GPU or NIC; elements inside settle it."""
    inner = next(element.iterchildren("gpu", "nic"), None)
    if inner is not None:
        return str(inner.tag).upper()
    return str(prefix_value(CLASSES, element.get("class", "")) or "PCI")


def _broadcom(pci: Element, level: int) -> int:
    """Return the generation (4 or 5) of a Broadcom PEX switch in base mode, or 0."""
    ids = [integer(pci.get(name)) for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
    if ids[:3] == [0x1000, 0xC010, 0x1000] and ids[3] & 0xF000 == 0xA000:
        return 4
    if ids[:3] == [0x1000, 0xC030, 0x1000] and ids[3] & 0xF000 == level * 0x1000:
        return 5
    return 0
