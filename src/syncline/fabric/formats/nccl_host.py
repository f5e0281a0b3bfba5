"""What an NCCL topology says about a host, and the host as a cluster description.

    host = describe(read_nccl("dump.xml"))
    host.gpus[0].sm, host.nics[0].speed_Mbps, host.path(0, 3)      # 90, 400000, "PXB"
    build(to_host(read_nccl("ndv5-topo.xml"), gpu="H100"))         # files for virtual machines do not name the GPU

Paths are named as NCCL names them (`nccl_paths`); parts are known by their PCI numbers, or else by `sm`.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline.describe.own_data import own_data
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError
from syncline.fabric.catalog import Catalog, HostModel, LinkType, load_catalog
from syncline.fabric.formats.nccl_paths import ORDER, PciNode, integer, path_kind, pci_devices
from syncline.fabric.formats.nccl_xml import NcclTopology
from syncline.fabric.spec import ClusterSpec

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

DEFAULT_SPEED_MBPS = 10_000
"""What NCCL assumes of a network card that reports no speed."""
_USUAL_SOCKET_BPS = 96e9
"""Between two sockets where the nearest host of the catalogue has one: three xGMI or UPI links, as its others have."""


@dataclass(frozen=True)
class NcclGpu:
    """One GPU: `sm`, `dev` and `rank` are -1 where the file leaves them to NCCL."""

    bus_id: str
    numa: int
    dev: int
    rank: int
    sm: int
    part: str
    pci: str
    """Vendor and device, "1002:74a1"; "" where the file leaves them out."""
    num_nvlinks: int
    nvlinks: tuple[tuple[str, int], ...]
    """Target and number of links: another GPU's bus id, or an NVSwitch's."""
    c2c_Bps: float
    pcie: str


@dataclass(frozen=True)
class NcclNic:
    """One network card with the nets NCCL sees on it; speed 0 where the file leaves it to NCCL."""

    bus_id: str
    numa: int
    part: str
    nets: tuple[str, ...]
    speed_Mbps: int
    infiniband: bool
    pcie: str


@dataclass(frozen=True)
class NcclHost:
    """GPUs, NICs, processors and the ways between them, as NCCL would work them out."""

    gpus: tuple[NcclGpu, ...]
    nics: tuple[NcclNic, ...]
    num_numa: int
    cpu: Mapping[str, str]
    """Attributes of the first processor."""
    num_nvswitches: int
    paths: tuple[tuple[str, ...], ...]
    """`paths[g][n]`: kind of the path between GPU g and NIC n."""
    gpus_per_switch: int
    nics_per_switch: int

    def path(self, gpu: int, nic: int) -> str:
        """Return PIX, PXB, P2C, PHB, SYS or DIS."""
        return self.paths[gpu][nic]

    @property
    def nic_path(self) -> str:
        """The kind of path from the worst-placed GPU to its nearest NIC."""
        if not self.nics:
            return "SYS"
        return max((min(row, key=ORDER.index) for row in self.paths), key=ORDER.index)


def describe(topology: NcclTopology) -> NcclHost:
    """Return what the topology says about its (first) host."""
    root = topology.root
    devices = pci_devices(root)
    gpus, nics = ([device for device in devices if device.kind == kind] for kind in ("GPU", "NIC"))
    if not gpus:
        raise DescriptionError(
            "the topology names no GPU: it has neither <gpu> elements nor <pci> of class 0x03.",
            where=topology.source,
            hint="Dump one on the machine itself: NCCL_TOPO_DUMP_FILE=dump.xml with any NCCL job.",
        )
    cpus = list(root.iterchildren("cpu"))
    switches = {link.get("target") for link in root.iter("nvlink", "xgmi") if link.get("tclass") == "0x068000"}
    per_gpu, per_nic = _per_switch(gpus, nics)
    return NcclHost(
        gpus=tuple(_gpu(gpu) for gpu in gpus),
        nics=tuple(_nic(nic) for nic in nics),
        num_numa=len(cpus),
        cpu=_pairs(cpus[0]),
        num_nvswitches=len(switches),
        paths=tuple(tuple(path_kind(gpu, nic) for nic in nics) for gpu in gpus),
        gpus_per_switch=per_gpu,
        nics_per_switch=per_nic,
    )


def to_host(
    topology: NcclTopology,
    *,
    name: str = "nccl-host",
    gpu: str | None = None,
    nic: str | None = None,
    link: str | None = None,
    catalog: Catalog | None = None,
) -> ClusterSpec:
    """Return a one-host cluster like the topology; `gpu`, `nic` and `link` say what the file does not.

    The host is a part of its own (`parts:`), made like the catalogue's nearest host of that GPU, so its PCIe tree,
    sockets, scale-up links and NICs follow the file and only prices and power are the catalogue's.
    """
    catalog = catalog or load_catalog()
    host = describe(topology)
    part = catalog.gpu(gpu or _known_gpu(host, topology)).name
    base = _nearest_host(part, len(host.gpus), catalog)
    row: JsonObject = {
        "name": name,
        "like": base.name,
        "source": f"NCCL topology {topology.source}",
        "gpu": part,
        "num_gpus": len(host.gpus),
        "num_sockets": min(8, host.num_numa),
        "cpu": {"socket_Bps": _USUAL_SOCKET_BPS} | base.cpu.model_dump(exclude_defaults=True) | _cpu(host.cpu),
        "gpus_per_pcie_switch": host.gpus_per_switch,
        "nics_per_pcie_switch": host.nics_per_switch,
        "nic_path": _nic_path(host),
        "nic_path_cap_Bps": None,
        "nic_path_cap_source": "",
        "notes": _notes(host),
    }
    row |= _scale_up(host, base.scale_up_switch, base.num_scale_up_switches, base.scale_up_topology, catalog, part)
    row |= _network(host, nic or base.nic, link or base.link, catalog, forced=(nic, link))
    if host.gpus[0].pcie:
        row["gpu_pcie"] = host.gpus[0].pcie
    cluster = {"name": name, "hosts": [{"count": 1, "host": {"model": name}}], "parts": {"host": [row]}}
    return ClusterSpec.model_validate(cluster | {"source": f"NCCL topology {topology.source}"})


def _nearest_host(gpu: str, num_gpus: int, catalog: Catalog) -> HostModel:
    """Return the catalogue's host that is most like it: the same GPU, as many, or else PCIe cards of any kind."""

    def distance(model: HostModel) -> tuple[bool, bool, int]:
        other = catalog.gpu(model.gpu).name != gpu
        return other, other and model.scale_up_topology != "pcie", abs(model.num_gpus - num_gpus)

    return min((part for part in catalog.parts("host") if isinstance(part, HostModel)), key=distance)


def _gpu(device: PciNode) -> NcclGpu:
    pci = device.element
    inner = next(pci.iterchildren("gpu"), None)
    about = {} if inner is None else _pairs(inner)
    links = [] if inner is None else list(inner.iterchildren("nvlink", "xgmi"))
    c2c = [] if inner is None else list(inner.iterchildren("c2c"))
    return NcclGpu(
        bus_id=pci.get("busid", ""),
        numa=integer(device.cpu.get("numaid")),
        dev=integer(about.get("dev"), -1),
        rank=integer(about.get("rank"), -1),
        # RCCL's files have an sm too, of AMD's own counting: 90 is no H100 there.
        sm=-1 if about.get("gcn") else integer(about.get("sm"), -1),
        part=_part("gpu", pci),
        pci=_pci_number(pci),
        num_nvlinks=sum(integer(e.get("count"), 1) for e in links),
        nvlinks=tuple((e.get("target", ""), integer(e.get("count"), 1)) for e in links),
        c2c_Bps=sum(integer(e.get("bw")) * integer(e.get("count")) for e in c2c) * 1e6,
        pcie=_pcie(pci),
    )


def _nic(device: PciNode) -> NcclNic:
    pci = device.element
    nets = [net for top in (pci, *device.functions) for net in top.iter("net")]
    speeds = [integer(net.get("speed")) for net in nets if net.get("speed")]
    known = [speed if speed > 0 else DEFAULT_SPEED_MBPS for speed in speeds]
    return NcclNic(
        bus_id=pci.get("busid", ""),
        numa=integer(device.cpu.get("numaid")),
        part=_part("nic", pci),
        nets=tuple(net.get("name", "") for net in nets),
        speed_Mbps=max(known, default=0),
        infiniband=pci.get("class", "").startswith("0x0207"),
        pcie=_pcie(pci),
    )


def _pairs(element: Element) -> dict[str, str]:
    return {str(key): str(value) for key, value in element.items()}


@functools.cache
def pci_ids() -> dict[str, dict[Any, str]]:
    """Return the table of PCI numbers: kind -> "vendor:device" -> part of the catalogue."""
    table: dict[str, dict[Any, str]] = own_data("fabric", "formats/data/pci_ids.yaml")
    return table


def _part(kind: str, pci: Element) -> str:
    return pci_ids()[kind].get(_pci_number(pci), "")


def _pci_number(pci: Element) -> str:
    numbers = [pci.get(name, "").removeprefix("0x").lower() for name in ("vendor", "device")]
    return ":".join(numbers) if all(number.strip("0") for number in numbers) else ""


def _pcie(pci: Element) -> str:
    """Return the catalogue's name of a PCIe link, or "" where the file does not say."""
    speeds = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
    generation = speeds.get(pci.get("link_speed", "").split(" ")[0].removesuffix(".0"), 0)
    lanes = integer(pci.get("link_width"))
    return f"PCIe{generation} x{lanes}" if generation >= 3 and lanes in (4, 8, 16) else ""


def _per_switch(gpus: list[PciNode], nics: list[PciNode]) -> tuple[int, int]:
    """Return how many GPUs and NICs share one PCIe switch: those below the same bridge under the processor."""
    tops = Counter(gpu.bridges[-1] if gpu.bridges else None for gpu in gpus)
    if None in tops:
        return 0, 0
    shared = Counter(nic.bridges[-1] for nic in nics if nic.bridges and nic.bridges[-1] in tops)
    return max(tops.values()), max(shared.values(), default=0)


def _known_gpu(host: NcclHost, topology: NcclTopology) -> str:
    parts = {gpu.part or pci_ids()["sm"].get(gpu.sm, "") for gpu in host.gpus} - {""}
    if parts:
        return min(parts)
    numbers = sorted({gpu.pci for gpu in host.gpus} - {""})
    if numbers:
        text = f"its GPUs are PCI devices {', '.join(numbers)}, which are no parts of the catalogue."
        hint = "Name the most similar part: --gpu MI300X, say (`syncline fabric parts gpu`)."
    else:
        text = f"the topology has {len(host.gpus)} GPUs but does not say which."
        hint = "Name the GPU: --gpu H100, say. Files for virtual machines leave it to NCCL."
    raise DescriptionError(text, where=topology.source, hint=hint)


def _cpu(cpu: Mapping[str, str]) -> JsonObject:
    arch, vendor = cpu.get("arch"), cpu.get("vendor")
    row: JsonObject = {}
    if arch in ("x86_64", "arm64", "ppc64"):
        row["nccl_arch"] = arch
    if vendor in ("GenuineIntel", "AuthenticAMD"):
        row |= {"vendor": "intel" if vendor == "GenuineIntel" else "amd", "nccl_vendor": vendor}
    for ours, theirs in (("nccl_family", "familyid"), ("nccl_model", "modelid")):
        if cpu.get(theirs):
            row[ours] = integer(cpu.get(theirs))
    return row


def _nic_path(host: NcclHost) -> str:
    return {"P2C": "C2C", "PIX": "PIX", "PXB": "PXB", "PHB": "PHB"}.get(host.nic_path, "SYS")


def _scale_up(
    host: NcclHost, switch: str | None, num_switches: int, topology: str, catalog: Catalog, part: str
) -> JsonObject:
    """Say how GPUs are joined; a file without any <gpu> leaves that to NCCL, and then the catalogue's host stands."""
    if all(gpu.sm < 0 for gpu in host.gpus):
        return {}
    peers = {bus for gpu in host.gpus for bus, _ in gpu.nvlinks} & {gpu.bus_id for gpu in host.gpus}
    if host.num_nvswitches and catalog.gpu(part).scale_up:
        count = max(1, host.num_nvswitches if host.num_nvswitches > 1 else num_switches)
        return {
            "scale_up_topology": "nvswitch",
            "scale_up_switch": switch or "NVSwitch3",
            "num_scale_up_switches": count,
        }
    alone: JsonObject = {"scale_up_switch": None, "num_scale_up_switches": 0, "scale_up_domain_gpus": 0}
    if not peers:
        return alone | {"scale_up_topology": "pcie"}
    pairs = sum(len({bus for bus, _ in gpu.nvlinks} & peers) for gpu in host.gpus)
    if pairs == len(host.gpus) * (len(host.gpus) - 1):
        return alone | {"scale_up_topology": "mesh"}
    return alone | {"scale_up_topology": "cube_mesh" if topology == "cube_mesh" else "ring"}


def _network(
    host: NcclHost, nic: str | None, link: str | None, catalog: Catalog, forced: tuple[str | None, str | None]
) -> JsonObject:
    if not host.nics:
        return {"nic": None, "link": None, "num_nics": 0}
    first = host.nics[0]
    speed = max(card.speed_Mbps for card in host.nics)
    part = forced[0] or next((card.part for card in host.nics if card.part), None) or nic
    if part is None:
        part = next(p.name for p in catalog.parts("nic"))
    known = catalog.nic(part)
    name = forced[1] or (_link(known.links, speed, first.infiniband, catalog) if speed else None)
    if name is None:
        name = link if link in known.links else known.links[0]
    ports = max(1, max(len(card.nets) for card in host.nics))
    return {"nic": known.name, "link": name, "num_nics": len(host.nics), "ports_per_nic": min(ports, 8)}


def _link(names: tuple[str, ...], speed_Mbps: int, infiniband: bool, catalog: Catalog) -> str | None:
    """Return the card's link type of that speed, of the family that the PCI class says."""
    types: list[LinkType] = [catalog.link(name) for name in names]
    right = [t for t in types if round(t.rate_Bps * 8 / 1e6) == speed_Mbps]
    same = [t for t in right if (t.family == "infiniband") == infiniband]
    return next((t.name for t in (*same, *right)), None)


def _notes(host: NcclHost) -> str:
    links = sorted({gpu.num_nvlinks for gpu in host.gpus})
    return (
        f"{len(host.gpus)} GPUs with {'/'.join(map(str, links))} scale-up links, {host.num_nvswitches} NVSwitch targets"
        f", {len(host.nics)} NICs, {host.num_numa} NUMA domains, NIC path {host.nic_path}"
    )
