"""GPUs: the PCI devices, and what `nvidia-smi -q` says of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from syncline.host.pci import PciDevice, PciTree, normal_address
from syncline.host.root import Root

NVIDIA_SMI = ("nvidia-smi", "-q")
NVLINK = ("nvidia-smi", "nvlink", "-s")


@dataclass(frozen=True)
class HostGpu:
    """One GPU. `smi` holds nvidia-smi's lines by path: "Fabric/State" -> "Completed"; empty without nvidia-smi."""

    index: int
    pci: PciDevice
    smi: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"gpu{self.index}"

    @property
    def label(self) -> str:
        return f"gpu{self.index} ({self.pci.address})"

    @property
    def is_coherent(self) -> bool:
        """Say whether NVLink-C2C joins it to its processor (Grace): then cards reach its memory through that."""
        return self.value("GPU C2C Mode") == "Enabled"

    def value(self, path: str) -> str:
        """Return what nvidia-smi says there; "" where it says nothing or N/A."""
        text = self.smi.get(path, "")
        return "" if text in ("N/A", "[N/A]", "Requested functionality has been deprecated") else text

    def number(self, path: str) -> float | None:
        """Return the leading number of a value: 1980 of "1980 MHz"."""
        match = re.match(r"-?\d+(\.\d+)?", self.value(path))
        return float(match.group()) if match else None


@dataclass(frozen=True)
class SmiReport:
    """`nvidia-smi -q`: what stands above the GPUs, and each GPU by PCI address."""

    head: Mapping[str, str]
    gpus: Mapping[str, Mapping[str, str]]


def read_gpus(root: Root, pci: PciTree) -> tuple[HostGpu, ...]:
    """Return the GPUs on the bus in bus order, with nvidia-smi's word on each where there is one."""
    devices = sorted((device for device in pci if device.is_gpu), key=lambda device: device.address)
    if not devices:
        return ()
    nvidia = any(device.vendor == 0x10DE for device in devices)
    report = parse_smi(root.command("nvidia-smi-q", NVIDIA_SMI, quiet=True) or "") if nvidia else SmiReport({}, {})
    return tuple(HostGpu(i, device, report.gpus.get(device.address, {})) for i, device in enumerate(devices))


def parse_smi(text: str) -> SmiReport:
    """Read the indented text of `nvidia-smi -q`."""
    head: dict[str, str] = {}
    gpus: dict[str, dict[str, str]] = {}
    here = head
    stack: list[tuple[int, str]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        if match := re.match(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)", line):
            here = gpus.setdefault(normal_address(match.group(1)), {})
            stack = []
            continue
        indent = len(line) - len(line.lstrip())
        key, colon, value = line.partition(" : ")
        while stack and stack[-1][0] >= indent:
            stack.pop()
        path = "/".join((*(name for _, name in stack), key.strip()))
        if colon:
            here[path] = value.strip()
        stack.append((indent, key.strip()))
    return SmiReport(head, gpus)


def nvlink_domains(gpus: Sequence[HostGpu]) -> tuple[tuple[str, str], ...]:
    """Return (cluster UUID, clique) of the GPUs that are in an NVLink domain of several hosts, each once."""
    pairs = ((gpu.value("Fabric/ClusterUUID"), gpu.value("Fabric/CliqueId")) for gpu in gpus)
    return tuple(sorted({pair for pair in pairs if pair[0].strip("0-")}))


def parse_nvlink(text: str) -> dict[int, tuple[int, list[int]]]:
    """Read `nvidia-smi nvlink -s`: GPU -> number of links, and those that are inactive."""
    found: dict[int, tuple[int, list[int]]] = {}
    gpu = -1
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+):", line):
            gpu = int(match.group(1))
            found[gpu] = (0, [])
        elif (match := re.match(r"\s*Link (\d+): (.*)", line)) and gpu >= 0:
            count, inactive = found[gpu]
            state = match.group(2).lower()
            found[gpu] = (count + 1, [*inactive, int(match.group(1))] if "inactive" in state else inactive)
    return found
