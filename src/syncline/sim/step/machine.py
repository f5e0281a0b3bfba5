"""What a rank can do: sustained arithmetic, memory, scale-up and network rates, from a Fabric or a catalogue host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from syncline.describe.own_data import own_data
from syncline.errors import DescriptionError, SimulationError
from syncline.fabric.catalog import Catalog, Gpu, HostModel, LinkType, load_catalog
from syncline.fabric.fabric import Fabric
from syncline.fabric.spec import ClusterSpec
from syncline.sim.collective.columns import Library
from syncline.sim.nccl.describe import from_fabric, host_system
from syncline.sim.nccl.system import NcclSystem
from syncline.sim.reach import fabric_reach
from syncline.sim.step.reach import Reach, layout_reach
from syncline.workload.parallel import Parallel

#: Latency of one exchange beyond a scale-up domain, by transport: a round of NCCL, or of kernel TCP.
HOP_S = {
    "infiniband": 5e-6,
    "roce": 6e-6,
    "efa": 15e-6,
    "cxi": 8e-6,
    "psm": 8e-6,
    "tcp": 40e-6,
    "tcpx": 25e-6,
    "tcpxo": 20e-6,
}


@dataclass(frozen=True)
class Machine:
    """One rank's share of a cluster. Rates are one direction, before the fitted efficiencies."""

    gpu: Gpu
    sustained: dict[str, float]  # operations per second by precision
    num_sms: int
    hbm_Bps: float
    attention: dict[str, float]
    nvlink_Bps: float
    nic_Bps: float
    domain: int  # ranks of one scale-up domain
    gpus_per_host: int
    hop_s: float
    num_gpus: int
    upper_Bps: float  # network share of a rank beyond its leaf switch, where oversubscribed
    power_scale: float = 1.0
    matures: int = 9999  # year from which NVIDIA's own recipes had kernels tuned to this part
    head64: dict[str, float] = field(default_factory=dict)  # speed of attention kernels at head size 64, 128 = 1
    host_Bps: float = 25e9  # to the memory of the host, one way
    mesh_peers: int = 0  # GPUs that each has a link of its own to, where no switch joins them; 0: one does
    derate: float = 1.0  # of this part against others of its architecture, because of a lower power limit
    reach: Reach = field(default_factory=lambda: Reach(1.0, 0.0, 1))  # what ranks get beyond their ports
    library: Library | None = None  # what its collectives are calls of; None: a compiler lays them out

    def rate(self, precision: str) -> float:
        """Return the sustained rate of matrix products in a precision, or raise where the part has no such unit."""
        name = {"fp16": "fp16", "fp32": "fp32", "tf32": "tf32", "fp8": "fp8", "fp4": "fp4"}.get(precision, "bf16")
        if name == "bf16" and "bf16" not in self.sustained:
            name = "fp16"
        if name not in self.sustained:
            known = ", ".join(self.sustained)
            raise SimulationError(
                f"{self.gpu.name} has no {precision} matrix units.",
                detail=f"It has {known}.",
                hint="Pick one of those.",
            )
        return self.sustained[name] * self.power_scale

    def capped(self, power_w: float) -> Machine:
        """Return the machine with its parts held to a power: the rate falls with its square root."""
        return replace(self, power_scale=min(1.0, (power_w / self.gpu.power_w) ** 0.5)) if power_w else self


def facts_of(gpu: Gpu) -> Any:
    """Return the sustained figures of a part: its own over its architecture's."""
    data = own_data("sim", "data/gpu_sustained.yaml")
    base = data["architectures"].get(gpu.architecture, data["architectures"]["default"])
    return {**base, "base_power": base["power"], **data["parts"].get(gpu.name, {})}


def machine_of(
    model: HostModel,
    link: LinkType | None,
    num_gpus: int,
    *,
    catalog: Catalog | None = None,
    oversubscription: float = 1.0,
) -> Machine:
    """Return one rank's share of a cluster of alike hosts."""
    catalog = catalog or load_catalog()
    gpu = catalog.gpu(model.gpu)
    facts = facts_of(gpu)
    dies = max(gpu.num_dies, 1)
    shares: dict[str, float] = facts["share"]
    peaks = {name: gpu.flops_at(name) for name in ("fp16", "bf16", "tf32", "fp32", "fp8", "fp4")}
    sustained = {n: p * shares.get(n, 0.7) * facts["power"] / dies for n, p in peaks.items() if p is not None}
    nic_Bps = network_Bps(model, link) / model.num_gpus / dies
    up_Bps, domain = scale_up(model, gpu, catalog)
    hop_s = HOP_S.get(link.transport, 10e-6) if link else 10e-6
    hosts = max(1, -(-num_gpus // model.num_gpus))
    system = _library(lambda: host_system(model, link, catalog, hosts))
    return Machine(
        gpu=gpu, sustained=sustained, num_sms=int(facts["sms"]) // dies,
        hbm_Bps=gpu.memory_Bps * own_data("sim", "data/gpu_sustained.yaml")["hbm_share"] / dies,
        attention=facts["attention"], nvlink_Bps=up_Bps / dies, nic_Bps=nic_Bps, domain=domain * dies,
        gpus_per_host=model.num_gpus * dies, hop_s=hop_s, num_gpus=num_gpus, upper_Bps=nic_Bps / oversubscription,
        host_Bps=_host_Bps(gpu, catalog) / dies,
        mesh_peers=model.num_gpus - 1 if model.scale_up_topology == "mesh" and dies == 1 else 0,
        derate=min(facts["power"] / facts["base_power"], 1.0), head64=facts.get("head64", {}),
        matures=int(facts.get("matures", 9999)), reach=Reach(nic_Bps, hop_s, domain * dies),
        library=Library(system, model.num_gpus * dies, nic_Bps, up_Bps / dies) if system else None,
    )  # fmt: skip


def _library(describe: Callable[[], NcclSystem]) -> NcclSystem | None:
    """Return a machine as NCCL meets it; None where NCCL does not run."""
    try:
        return describe()
    except (DescriptionError, SimulationError):
        return None


#: Grace and its GPUs share NVLink-C2C, 450 GB/s each way for one or two of them; copies reach about nine tenths.
C2C_Bps = {"GH": 400e9, "GB": 200e9}


def _host_Bps(gpu: Gpu, catalog: Catalog) -> float:
    """Return the rate between a GPU and the memory of its host, one way."""
    return C2C_Bps.get(gpu.name[:2], catalog.pcie(gpu.pcie).usable_Bps)


def network_Bps(model: HostModel, link: LinkType | None) -> float:
    """Return what a host sends into the network, one direction; a kernel TCP stream does not fill a fast port."""
    if link is None:
        return 0.0
    port = min(link.rate_Bps, model.nic_path_cap_Bps or link.rate_Bps)
    return port * model.num_ports


def scale_up(model: HostModel, gpu: Gpu, catalog: Catalog) -> tuple[float, int]:
    """Return the rate of one GPU to its scale-up domain, and how many GPUs that has."""
    domain = model.scale_up_domain_gpus or model.num_gpus
    nvlink = catalog.scale_up_Bps(gpu)
    if model.scale_up_topology == "none" and model.num_gpus == 1:
        return max(nvlink, 1.0), 1
    if model.scale_up_topology in ("pcie", "none") or nvlink == 0:
        # A ring over PCIe crosses each root or switch twice; half of a slot is what copies between cards reach.
        return catalog.pcie(gpu.pcie).usable_Bps / 2, model.num_gpus
    return nvlink, domain


def machine_from_spec(spec: ClusterSpec, num_gpus: int = 0) -> Machine:
    """Return one rank's share of a described cluster, without building it."""
    catalog = load_catalog().with_parts(spec.parts) if spec.parts else load_catalog()
    sites = [(spec.hosts, spec.network)] if spec.hosts else [(site.hosts, site.network) for site in spec.sites]
    found = []
    for hosts, network in sites:
        over = float(getattr(network, "oversubscription", 1.0) or 1.0)
        for group in hosts:
            model = group.host.resolve(catalog)
            name = getattr(network, "link", None) or model.link
            link = catalog.link(name) if name else None
            found.append(machine_of(model, link, num_gpus, catalog=catalog, oversubscription=over))
    # Ranks work in step, so the slowest kind of host sets the pace.
    return min(found, key=lambda machine: max(machine.sustained.values(), default=0.0))


def machine_from_fabric(fabric: Fabric) -> Machine:
    """Return one rank's share of a built cluster: rates of its own links, the slowest host where they differ."""
    machine = machine_from_spec(fabric.spec, fabric.num_gpus)
    dies = max(machine.gpu.num_dies, 1)
    found = fabric_reach(fabric)
    nic = machine.nic_Bps
    if found.hosts.num > 1 and found.hosts.exit_Bps.any():
        found.even_hosts_Bps()  # says so where a host is cut off
        nic = min(nic, float((found.hosts.even_Bps / np.maximum(found.hosts.gpus, 1)).min()) / dies)
    reach = layout_reach(fabric, nic, machine.hop_s, machine.domain, dies)
    system = _library(lambda: from_fabric(fabric)) if machine.library else None
    library = Library(system, machine.gpus_per_host, nic, machine.nvlink_Bps) if system else None
    return replace(machine, nic_Bps=nic, upper_Bps=nic, reach=reach, library=library)


def reached(machine: Machine, fabric: Fabric, split: Parallel) -> Machine:
    """Return the machine with ranks placed as a split says."""
    return replace(machine, reach=reach_of(fabric, machine, split.placement))


def reach_of(fabric: Fabric, machine: Machine | None = None, placement: str = "packed") -> Reach:
    """Return the reach of a fabric: its racks, pods and sites, and what leads out of them."""
    machine = machine or machine_from_fabric(fabric)
    return replace(machine.reach, placement=placement)
