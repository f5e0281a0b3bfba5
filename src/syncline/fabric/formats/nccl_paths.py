"""How far apart NCCL thinks two devices of a host are: LOC, NVL, NVB, C2C, PIX, PXB, P2C, PHB, SYS.

`NcclGraph` is the graph NCCL makes of a topology (bridges, processors, GPUs, NICs, one NVSwitch for all), with its
bandwidths in GB/s; `NcclGraph.paths(device)` searches it as NCCL does: breadth first, a longer way only where no
shorter one exists, and a way through a processor or between processors named after its worst step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from syncline.fabric.formats.nccl_check import CLASSES, LANE_SPEEDS, prefix_value, strtol

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

ORDER = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
LOCAL_GBps = 5000.0
# One direction of one NVLink, by compute capability from this one on (NCCL src/graph/topo.h, 2.30).
_NVLINK_GBps = ((107, 31.2), (100, 40.1), (90, 20.6), (87, 20.0), (86, 12.0), (70, 20.0), (60, 18.0), (0, 20.0))
_SOCKET_GBps = {"x86_64": 6.0, "arm64": 6.0, "ppc64": 32.0}


@dataclass
class TopologyVertex:
    """One vertex: its kind (GPU, PCI, NVS, CPU, NIC), the element it stands for, and its links by neighbour.

    `functions` are the other PCI functions of the same card: a card with two ports shows two.
    """

    kind: str
    element: Element | None
    name: str
    links: list[tuple[int, str, float]] = field(default_factory=list)
    functions: list[Element] = field(default_factory=list)


@dataclass(frozen=True)
class NcclPath:
    """A way from one device to another: NCCL's name for its kind, its bandwidth and its number of links."""

    kind: str
    rate_GBps: float
    num_links: int


class NcclGraph:
    """The graph of one topology; a GPU is a `pci` of class 0x03 whether or not a `gpu` element describes it."""

    def __init__(self, root: Element) -> None:
        self.places: list[TopologyVertex] = []
        self._by_bus_id: dict[str, int] = {}
        self._nvswitch: int | None = None
        for cpu in root.iterchildren("cpu"):
            self._add_cpu(cpu)
        self._add_gpu_links()
        self._flatten_switches()
        self._join_cpus()

    @property
    def gpus(self) -> list[int]:
        """Ids of the GPUs, in document order."""
        return [i for i, place in enumerate(self.places) if place.kind == "GPU"]

    @property
    def nics(self) -> list[int]:
        """Ids of the NICs, in document order; the functions of one card are several."""
        return [i for i, place in enumerate(self.places) if place.kind == "NIC"]

    def paths(self, start: int) -> dict[int, NcclPath]:
        """Return the path from every reachable device to this one."""
        found = {start: NcclPath("LOC", LOCAL_GBps, 0)}
        here = [start]
        while here:
            here = self._step(start, here, found)
        return found

    def path(self, gpu: int, nic: int) -> NcclPath:
        """Return the path between a GPU and a NIC (or two GPUs), with C2C and a root port merged into P2C."""
        found = self.paths(nic).get(gpu)
        if found is None:
            return NcclPath("DIS", 0.0, 0)
        if found.kind == "PHB" and self.places[nic].kind == "NIC" and self._has_c2c(gpu):
            return NcclPath("P2C", found.rate_GBps, found.num_links)
        return found

    def _step(self, start: int, here: list[int], found: dict[int, NcclPath]) -> list[int]:
        after: list[int] = []
        for at in here:
            path = found[at]
            for to, link, rate in self.places[at].links:
                if at != start and self.places[at].kind == "GPU" and not self._may_relay(to, link, path):
                    continue
                width = min(path.rate_GBps, rate)
                old = found.get(to)
                if old is not None and not (old.num_links > path.num_links and old.rate_GBps < width):
                    continue
                found[to] = NcclPath(self._kind(at, to, link, path), width, path.num_links + 1)
                if to not in after:
                    after.append(to)
        return after

    def _may_relay(self, to: int, link: str, path: NcclPath) -> bool:
        """A GPU passes traffic on only over NVLink, to a GPU, and only once."""
        return link == "NVL" and self.places[to].kind == "GPU" and path.num_links <= 1

    def _kind(self, at: int, to: int, link: str, path: NcclPath) -> str:
        ends = (self.places[at].kind, self.places[to].kind)
        kind = {"NVL": "NVL", "C2C": "C2C", "PCI": "PIX", "LOC": "LOC", "SYS": "SYS"}[link]
        if ends == ("PCI", "PCI"):
            kind = "PXB"
        if link == "PCI" and "CPU" in ends:
            kind = "PHB"
        if ends[0] == "GPU" and path.kind == kind == "NVL":
            kind = "NVB"
        return max(path.kind, kind, key=ORDER.index)

    def _has_c2c(self, gpu: int) -> bool:
        return any(link == "C2C" for _, link, _ in self.places[gpu].links)

    def _add(self, kind: str, element: Element | None, name: str) -> int:
        self.places.append(TopologyVertex(kind, element, name))
        return len(self.places) - 1

    def _join(self, a: int, b: int, link: str, rate: float) -> None:
        self._link(a, b, link, rate)
        self._link(b, a, link, rate)

    def _link(self, a: int, b: int, link: str, rate: float) -> None:
        links = self.places[a].links
        for i, (to, kind, old) in enumerate(links):
            if to == b and kind == link:
                links[i] = (to, kind, old + rate)
                break
        else:
            links.append((b, link, rate))
        links.sort(key=lambda entry: -entry[2])

    def _add_cpu(self, element: Element) -> None:
        cpu = self._add("CPU", element, f"cpu {element.get('numaid')}")
        for child in element.iterchildren("pci", "nic"):
            if child.tag == "pci":
                self._add_pci(child, cpu)
            else:
                self._join(self._add("NIC", child, "nic"), cpu, "PCI", LOCAL_GBps)

    def _add_pci(self, element: Element, parent: int) -> None:
        kind = pci_kind(element)
        if kind in ("NVS", "CPU"):
            return
        bus_id = element.get("busid", "").lower()
        if kind == "NIC" and (other := self._same_card(bus_id)) is not None:
            self._by_bus_id[bus_id] = other
            self.places[other].functions.append(element)
            return
        place = self._add(kind, element, bus_id)
        self._by_bus_id[bus_id] = place
        self._join(place, parent, "PCI", link_GBps(element))
        if kind == "PCI":
            for child in element.iterchildren("pci"):
                self._add_pci(child, place)

    def _same_card(self, bus_id: str) -> int | None:
        card = bus_id[:-1]
        return next((p for b, p in self._by_bus_id.items() if b[:-1] == card and self.places[p].kind == "NIC"), None)

    def _add_gpu_links(self) -> None:
        for gpu in self.gpus:
            for inner in _children(self.places[gpu].element, "gpu"):
                sm = integer(inner.get("sm"), 80)
                for link in inner.iterchildren("nvlink", "xgmi"):
                    self._add_nvlink(gpu, link, sm)
                for link in inner.iterchildren("c2c"):
                    rate = integer(link.get("bw")) * integer(link.get("count")) / 1000
                    self._join(gpu, self._cpu_of(gpu), "C2C", rate)
        for place in list(self._by_bus_id.values()):
            for child in _children(self.places[place].element, "pcilink"):
                target = self._by_bus_id.get(child.get("target", "").lower())
                if target is not None:
                    self._link(place, target, "LOC", LOCAL_GBps)

    def _add_nvlink(self, gpu: int, link: Element, sm: int) -> None:
        rate = integer(link.get("count"), 1) * next(r for least, r in _NVLINK_GBps if sm >= least)
        target_kind = prefix_value(CLASSES, link.get("tclass", "0x068000"))
        if target_kind == "GPU" or link.get("tclass", "").startswith("0x12"):
            target = self._by_bus_id.get(link.get("target", "").lower())
            if target is not None and target != gpu:
                self._link(gpu, target, "NVL", rate)
        elif target_kind == "CPU":
            self._join(gpu, self._cpu_of(gpu), "NVL", rate)
        else:
            if self._nvswitch is None:
                self._nvswitch = self._add("NVS", None, "nvswitch")
            self._join(gpu, self._nvswitch, "NVL", rate)

    def _cpu_of(self, place: int) -> int:
        seen = {place}
        here = place
        while self.places[here].kind != "CPU":
            up = next(
                to
                for to, link, _ in self.places[here].links
                if link == "PCI" and to not in seen and self.places[to].kind in ("PCI", "CPU") and to < here
            )
            seen.add(up)
            here = up
        return here

    def _flatten_switches(self) -> None:
        """Broadcom PEX switches show two levels but switch as one; NCCL joins them, and so PXB becomes PIX."""
        for outer, place in enumerate(self.places):
            generation = _broadcom(place.element, 0) if place.kind == "PCI" else 0
            if not generation:
                continue
            inner = [
                to
                for to, link, _ in place.links
                if link == "PCI"
                and to > outer
                and self.places[to].kind == "PCI"
                and _broadcom(self.places[to].element, 1) == generation
            ]
            for switch in inner:
                self._merge(switch, outer)

    def _merge(self, switch: int, into: int) -> None:
        target = self.places[into].links
        target[:] = [entry for entry in target if entry[0] != switch]
        for to, link, rate in self.places[switch].links:
            if to == into:
                continue
            target.append((to, link, rate))
            back = self.places[to].links
            back[:] = [(into if there == switch else there, kind, r) for there, kind, r in back]
        self.places[switch].links.clear()
        self.places[switch].kind = "merged"

    def _join_cpus(self) -> None:
        cpus = [i for i, place in enumerate(self.places) if place.kind == "CPU"]
        for a in cpus:
            for b in cpus:
                if a != b and self._system(a) == self._system(b):
                    self._link(a, b, "SYS", socket_GBps(self.places[a].element))

    def _system(self, cpu: int) -> str:
        element = self.places[cpu].element
        return "" if element is None else element.get("host_hash", "")


def pci_kind(element: Element) -> str:
    """Return what NCCL takes a `pci` element for: PCI, NVS, CPU, GPU or NIC; elements inside settle it."""
    inner = next(element.iterchildren("gpu"), None)
    inner = next(element.iterchildren("nic"), None) if inner is None else inner
    if inner is not None:
        return str(inner.tag).upper()
    return str(prefix_value(CLASSES, element.get("class", "")) or "PCI")


def link_GBps(element: Element) -> float:
    """Return the bandwidth NCCL gives a PCIe link: lanes times a figure per generation; 16 lanes if it has none."""
    lanes = integer(element.get("link_width")) or 16
    return lanes * int(prefix_value(LANE_SPEEDS, element.get("link_speed", "")) or 60) / 80


def socket_GBps(cpu: Element | None) -> float:
    """Return the bandwidth NCCL gives the way between two processors."""
    if cpu is None:
        return _SOCKET_GBps["x86_64"]
    family, model = integer(cpu.get("familyid")), integer(cpu.get("modelid"))
    if cpu.get("arch") == "x86_64" and cpu.get("vendor", "").startswith("AuthenticAMD"):
        return 32.0 if family in (0xBF, 26) else 24.0 if family in (0xAF, 25) else 16.0
    if cpu.get("arch") == "x86_64" and cpu.get("vendor", "").startswith("GenuineIntel") and family == 6:
        newest = model >= 0xCF or model in (0xAD, 0xAE, 0xAF)
        return 40.0 if newest else 22.0 if model >= 0x8F else 10.0 if model >= 0x55 else 6.0
    return _SOCKET_GBps.get(cpu.get("arch", ""), LOCAL_GBps)


def integer(text: str | None, default: int = 0) -> int:
    """Read a number as NCCL does, or return the default where there is none."""
    number = strtol(text or "")
    return default if number is None else number


def _children(element: Element | None, tag: str) -> list[Element]:
    return [] if element is None else list(element.iterchildren(tag))


def _broadcom(pci: Element | None, level: int) -> int:
    """Return the generation (4 or 5) of a Broadcom PEX switch in base mode, or 0."""
    if pci is None:
        return 0
    ids = [integer(pci.get(name)) for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
    if ids[:3] == [0x1000, 0xC010, 0x1000] and ids[3] & 0xF000 == 0xA000:
        return 4
    if ids[:3] == [0x1000, 0xC030, 0x1000] and ids[3] & 0xF000 == level * 0x1000:
        return 5
    return 0
