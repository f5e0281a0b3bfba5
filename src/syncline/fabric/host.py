"""One host: GPUs, NICs, PCIe switches, sockets and the scale-up links between its GPUs.

`host_template` turns a host description into columns that `Draft.add_hosts` repeats. The scale-up network is one of
nvswitch (every GPU to a crossbar), mesh (every pair), ring, cube_mesh (DGX-1), pcie or none. An NVSwitch complex of
several chips is one crossbar device: GPUs stripe every transfer over all its chips, so no chip is ever the limit alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from syncline.errors import FabricError
from syncline.fabric.catalog import Catalog, HostModel
from syncline.fabric.wiring import DeviceKind, FloatArray, IntArray, Tier

CUBE_MESH = ((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2), (2, 6, 1),
             (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2))  # fmt: skip
"""NVLink pairs and link counts of the DGX-1 V100 hybrid cube mesh (NVIDIA DGX-1 with Tesla V100 white paper)."""

QPI_BPS = 16e9
"""Between two sockets where the catalogue does not say: one QPI link of 8 GT/s and 2 bytes, the slowest in use."""


@dataclass(frozen=True, eq=False)
class HostTemplate:
    """Columns of one host; ids are positions inside the host."""

    model: HostModel
    kind: NDArray[np.uint8]
    local: NDArray[np.int16]
    rail: NDArray[np.int16]
    part: tuple[str, ...]
    src: IntArray
    dst: IntArray
    rate_Bps: FloatArray
    latency_s: FloatArray
    tier: NDArray[np.uint8]
    medium: tuple[str, ...]

    @property
    def gpu_slots(self) -> IntArray:
        return np.flatnonzero(self.kind == DeviceKind.GPU).astype(np.int32)

    @property
    def nic_slots(self) -> IntArray:
        return np.flatnonzero(self.kind == DeviceKind.NIC).astype(np.int32)


@dataclass
class _Sketch:
    kind: list[int] = field(default_factory=list)
    local: list[int] = field(default_factory=list)
    rail: list[int] = field(default_factory=list)
    part: list[str] = field(default_factory=list)
    links: list[tuple[int, int, float, float, int, str]] = field(default_factory=list)

    def add(self, kind: DeviceKind, part: str, count: int = 1, rails: bool = False) -> list[int]:
        first = len(self.kind)
        self.kind += [kind] * count
        self.local += list(range(count))
        self.rail += list(range(count)) if rails else [-1] * count
        self.part += [part] * count
        return list(range(first, first + count))

    def join(self, a: int, b: int, rate_Bps: float, latency_s: float, tier: Tier, medium: str) -> None:
        self.links.append((a, b, rate_Bps, latency_s, tier, medium))


def host_template(model: HostModel, catalog: Catalog) -> HostTemplate:
    """Return the columns of one host of that model."""
    sketch = _Sketch()
    gpus = sketch.add(DeviceKind.GPU, model.gpu, model.num_gpus)
    nics = sketch.add(DeviceKind.NIC, model.nic or "", model.num_nics, rails=True)
    cpus = sketch.add(DeviceKind.CPU, model.cpu.model, model.num_sockets)
    _join_scale_up(sketch, model, gpus, catalog)
    _join_pcie(sketch, model, gpus, nics, cpus, catalog)
    _join_sockets(sketch, model, cpus)
    columns = list(zip(*sketch.links, strict=True)) or [(), (), (), (), (), ()]
    return HostTemplate(
        model=model,
        kind=np.array(sketch.kind, np.uint8),
        local=np.array(sketch.local, np.int16),
        rail=np.array(sketch.rail, np.int16),
        part=tuple(sketch.part),
        src=np.array(columns[0], np.int32),
        dst=np.array(columns[1], np.int32),
        rate_Bps=np.array(columns[2], np.float64),
        latency_s=np.array(columns[3], np.float64),
        tier=np.array(columns[4], np.uint8),
        medium=tuple(str(m) for m in columns[5]),
    )


def _join_scale_up(sketch: _Sketch, model: HostModel, gpus: list[int], catalog: Catalog) -> None:
    gpu = catalog.gpu(model.gpu)
    if model.scale_up_topology in ("pcie", "none", "torus") or len(gpus) == 1:
        return  # a torus joins chips of many hosts: its builder lays the links
    if gpu.scale_up is None:
        raise FabricError(
            f'{model.gpu} has no scale-up links, so a host of them cannot be a "{model.scale_up_topology}".',
            hint='Write "scale_up: pcie".',
        )
    link = catalog.scale_up(gpu.scale_up)
    if model.scale_up_topology == "nvswitch":
        if spans_hosts(model):
            return  # the domain builder joins the hosts' GPUs
        (switch,) = sketch.add(DeviceKind.NVSWITCH, model.scale_up_switch or "NVSwitch")
        latency_s = link.latency_s + switch_latency_s(model, catalog) / 2
        for device in gpus:
            sketch.join(device, switch, catalog.scale_up_Bps(gpu), latency_s, Tier.SCALE_UP, link.name)
        return
    for a, b, links in scale_up_pairs(model, gpu.num_scale_up_links):
        sketch.join(gpus[a], gpus[b], links * link.link_Bps, link.latency_s, Tier.SCALE_UP, link.name)


def scale_up_pairs(model: HostModel, num_links: int) -> list[tuple[int, int, float]]:
    """Return (gpu, gpu, links between them) for a host whose GPUs are joined directly."""
    count = model.num_gpus
    if model.scale_up_topology == "cube_mesh":
        if count != 8:
            raise FabricError(f"a cube mesh joins 8 GPUs, not {count}.", hint='Use "scale_up: mesh" or 8 GPUs.')
        return [(a, b, float(n)) for a, b, n in CUBE_MESH]
    if model.scale_up_topology == "ring":
        pairs = {(min(i, (i + 1) % count), max(i, (i + 1) % count)) for i in range(count)}
        return [(a, b, num_links / (1 if count == 2 else 2)) for a, b in sorted(pairs)]
    return [(a, b, num_links / (count - 1)) for a in range(count) for b in range(a + 1, count)]


def spans_hosts(model: HostModel) -> bool:
    """Say whether a crossbar joins GPUs of several hosts (NVL72); the chips of a torus pod have none."""
    return model.scale_up_topology == "nvswitch" and model.scale_up_domain_gpus > model.num_gpus


def switch_latency_s(model: HostModel, catalog: Catalog) -> float:
    """Return the time to cross the scale-up switch."""
    return catalog.scale_up_switch(model.scale_up_switch).latency_s if model.scale_up_switch else 0.0


def port_Bps(catalog: Catalog, model: HostModel) -> float:
    """Return what one port can do: its link's rate, or its share of what the NIC can."""
    if model.link is None or model.nic is None:
        return 0.0
    return min(catalog.link(model.link).rate_Bps, catalog.nic(model.nic).max_Bps / model.ports_per_nic)


def nic_latency_s(catalog: Catalog, model: HostModel) -> float:
    """Return the time to cross one of the host's NICs."""
    return catalog.nic(model.nic).latency_s if model.nic else 0.0


def _join_pcie(
    sketch: _Sketch, model: HostModel, gpus: list[int], nics: list[int], cpus: list[int], catalog: Catalog
) -> None:
    """Hang GPUs and NICs below PCIe switches, or below their socket where the model has none."""
    gpu_parents = _parents(sketch, model.gpus_per_pcie_switch, gpus, cpus, model, catalog)
    if model.nic is None:
        nic_parents = []
    elif model.nics_per_pcie_switch and gpu_parents and model.gpus_per_pcie_switch:
        switches = list(dict.fromkeys(gpu_parents))
        nic_parents = [switches[i * len(switches) // len(nics)] for i in range(len(nics))]
    else:
        nic_parents = _parents(sketch, model.nics_per_pcie_switch, nics, cpus, model, catalog)
    gpu_pcie = catalog.pcie(model.gpu_pcie)
    direct = model.nic_path == "C2C"
    for gpu, parent in zip(gpus, gpu_parents, strict=True):
        if direct:
            c2c = catalog.scale_up("NVLink-C2C")
            sketch.join(gpu, parent, c2c.link_Bps, c2c.latency_s, Tier.PCIE, c2c.name)
        else:
            sketch.join(gpu, parent, gpu_pcie.usable_Bps, gpu_pcie.latency_s, Tier.PCIE, gpu_pcie.name)
    if model.nic is None:
        return
    nic_pcie = catalog.pcie(catalog.nic(model.nic).pcie)
    rate_Bps = min(nic_pcie.usable_Bps, model.nic_path_cap_Bps or nic_pcie.usable_Bps)
    for nic, parent in zip(nics, nic_parents, strict=True):
        sketch.join(
            nic, parent, rate_Bps, nic_pcie.latency_s + nic_latency_s(catalog, model) / 2, Tier.PCIE, nic_pcie.name
        )


def _parents(
    sketch: _Sketch, per_switch: int, devices: list[int], cpus: list[int], model: HostModel, catalog: Catalog
) -> list[int]:
    def socket(index: int, total: int) -> int:
        return cpus[index * len(cpus) // total]

    if not per_switch:
        return [socket(i, len(devices)) for i in range(len(devices))]
    pcie = catalog.pcie(model.gpu_pcie)
    count = -(-len(devices) // per_switch)
    switches = sketch.add(DeviceKind.PCIE, "PCIe switch", count)
    for i, switch in enumerate(switches):
        sketch.join(switch, socket(i, count), pcie.usable_Bps, pcie.latency_s, Tier.PCIE, pcie.name)
    return [switches[i // per_switch] for i in range(len(devices))]


def _join_sockets(sketch: _Sketch, model: HostModel, cpus: list[int]) -> None:
    rate_Bps = model.cpu.socket_Bps or QPI_BPS
    for i, a in enumerate(cpus):
        for b in cpus[i + 1 :]:
            sketch.join(a, b, rate_Bps, model.cpu.socket_latency_s, Tier.SOCKET, "socket link")
