"""From a cluster description to an `NcclSystem`: what NCCL would find on those hosts, with every assumption said.

    fabric = load("h100-64-rail")
    system = from_fabric(fabric, num_hosts=8, software={"nccl": "2.27", "env": {"NCCL_ALGO": "Ring"}})

`software` says what runs on the hosts: `library` (nccl, gloo, mpi), `nccl` (release), `plugin` ("none" for kernel TCP),
`env`, `network` (a kind of
`nccl_networks.yaml`, where the link type does not tell), `tuner`, `sharp`, `ranks_per_process`, `timing` ("nccl-tests",
or "torch" where each call is timed with its Python overhead).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypedDict, cast

import numpy as np

from syncline.describe import units
from syncline.errors import DescriptionError
from syncline.fabric.bill import group_of_host
from syncline.fabric.catalog import Catalog, Gpu, HostModel, LinkType
from syncline.fabric.fabric import Fabric
from syncline.fabric.spec import ClusterSpec
from syncline.program import Placement
from syncline.sim.nccl.constants import default_constants, gpu_facts, known_gpus
from syncline.sim.nccl.fabric import on_fabric
from syncline.sim.nccl.system import DEFAULT_NCCL, PATHS, NcclSystem

HostKind = tuple[HostModel, LinkType | None]
"""A model of host, and the link type that its ports run."""

_KIND_OF_TRANSPORT = {
    "infiniband": "infiniband",
    "roce": "roce",
    "cxi": "slingshot",
    "tcpx": "tcpx",
    "tcpxo": "tcpxo",
    "tcp": "tcp",
}
_KIN = ((100, "b200"), (90, "h100"), (80, "a10g"), (0, "v100"))
_KIND_OF_EFA = {"EFAv1": "efa-v1", "EFAv2": "efa-v2"}
_TUNER_OF = {
    ("EFAv2", 90): "aws-p5",
    ("EFAv3", 90): "aws-p5en",
    ("EFAv4", 100): "aws-p6",
    ("EFAv4", 103): "aws-p6-b300",
}
# What the vendor's guide tells every user to set; without it NCCL would choose what the plugin cannot do well.
_VENDOR_ENV = {
    "tcpx": {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"},
    "tcpxo": {"NCCL_ALGO": "Ring,Tree", "NCCL_PROTO": "Simple,LL128"},
}


class NcclSoftware(TypedDict, total=False):
    """What runs on the hosts; YAML's own types are read by whoever needs the value."""

    library: str
    nccl: str | float | None
    plugin: str
    env: Mapping[str, str] | None
    network: str
    tuner: str | None
    sharp: bool
    ranks_per_process: int
    timing: str
    plugin_latency: str | float
    nic_path_cap: str | float


def from_fabric(fabric: Fabric, *, num_hosts: int = 0, software: NcclSoftware | None = None) -> NcclSystem:
    """Return what NCCL would find on `num_hosts` hosts of a fabric (all of them unless said)."""
    hosts = np.arange(min(num_hosts, fabric.num_hosts) or fabric.num_hosts)
    kinds = _kinds(fabric.spec, np.unique(group_of_host(fabric)[hosts]).tolist())
    system = _described(fabric.spec, kinds, num_hosts or fabric.num_hosts, 0, software)
    return on_fabric(system, fabric, fabric.gpus[fabric.gpu_host < system.num_hosts])


def from_placement(placed: Placement, software: NcclSoftware | None = None) -> NcclSystem:
    """Return what NCCL would find where ranks stand: their hosts, their GPUs and the NICs of those.

    Where hosts have different numbers of them, all go by the fullest host's NVLink and the emptiest one's NICs.

    Raises:
        DescriptionError: a GPU has several ranks, which NCCL refuses.
    """
    fabric = placed.fabric
    hosts, ranks = np.unique(placed.host, return_counts=True)
    gpus = np.unique(placed.device)
    if len(gpus) < placed.num_ranks:
        raise DescriptionError("NCCL takes one rank a GPU; here some have several.")
    kinds = _kinds(fabric.spec, np.unique(group_of_host(fabric)[hosts]).tolist())
    system = _described(fabric.spec, kinds, len(ranks), int(ranks.max()), software)
    return on_fabric(replace(system, ranks=placed.num_ranks if np.ptp(ranks) else 0), fabric, gpus)


def from_spec(
    spec: ClusterSpec, num_hosts: int, gpus_per_host: int = 0, software: NcclSoftware | None = None
) -> NcclSystem:
    """Return what NCCL would find on a described cluster; `software` is laid over the description's own."""
    return _described(spec, _kinds(spec, range(len(spec.groups()))), num_hosts, gpus_per_host, software)


def host_system(model: HostModel, link: LinkType | None, catalog: Catalog, num_hosts: int) -> NcclSystem:
    """Return what NCCL would find on alike hosts of a model, with nothing stated of their software."""
    return _system(model, link, catalog, NcclSoftware(), num_hosts if link is not None else 1, model.num_gpus)


def _kinds(spec: ClusterSpec, groups: Iterable[int]) -> list[HostKind]:
    """Return the kinds of hosts of these groups, each once."""
    catalog = spec.catalog
    sites = [(spec.hosts, spec.network)] if spec.hosts else [(site.hosts, site.network) for site in spec.sites]
    every = [(group.host, network) for hosts, network in sites for group in hosts]
    kinds = []
    for number in groups:
        host, network = every[number]
        model = host.resolve(catalog)
        name = (network.link if network is not None else None) or model.link
        kinds.append((model, catalog.link(name) if name else None))
    return [kind for at, kind in enumerate(kinds) if kind not in kinds[:at]]


def _described(
    spec: ClusterSpec, kinds: list[HostKind], num_hosts: int, gpus_per_host: int, software: NcclSoftware | None
) -> NcclSystem:
    catalog = spec.catalog
    for model, _ in kinds:
        gpu_name(catalog.gpu(model.gpu), [])  # what does not run NCCL is said before anything else
    stack = cast("NcclSoftware", {**spec.software, **(software or {})})
    known = NcclSoftware.__annotations__
    if unknown := set(stack) - set(known):
        raise DescriptionError(
            f'software has an unknown key "{min(unknown)}".', hint=f"Known: {', '.join(sorted(known))}."
        )
    gpus = gpus_per_host or min(model.num_gpus for model, _ in kinds)
    return _weakest([_system(model, link, catalog, stack, num_hosts, gpus) for model, link in kinds])


def _weakest(systems: list[NcclSystem]) -> NcclSystem:
    """Return what NCCL goes by where hosts differ: the least of what any of them has, whatever their order.

    Ranks agree on the slowest graph and the lowest compute capability before they choose, and switches reduce (NVLS)
    only where every GPU and every domain can.
    """
    first = min(systems, key=lambda s: (s.facts.sm, s.nvlink_GBps, s.num_nics * s.nic_rate_Bps, s.pcie_GBps, repr(s)))
    if len(systems) == 1:
        return first
    caps = [system.path_cap_Bps for system in systems if system.path_cap_Bps]
    tuners = {system.tuner for system in systems}
    slowest = min(systems, key=lambda s: (s.nic_rate_Bps, s.num_nics, s.network))
    assumed = dict.fromkeys(line for system in sorted(systems, key=repr) for line in system.assumed)
    return replace(
        first,
        num_nics=min(system.num_nics for system in systems),
        nic_rate_Bps=slowest.nic_rate_Bps,
        network=slowest.network,
        nvlink_Bps=min(system.nvlink_GBps for system in systems) * 1e9,
        nvswitch=all(system.has_nvswitch for system in systems),
        nvlink_domain=min(system.nvlink_domain for system in systems),
        pcie_Bps=min(system.pcie_GBps for system in systems) * 1e9,
        path=max((system.path for system in systems), key=PATHS.index),
        path_cap_Bps=min(caps) if caps else None,
        cpu="amd" if any(system.cpu == "amd" for system in systems) else first.cpu,
        env={name: value for system in sorted(systems, key=repr) for name, value in system.env.items()},
        tuner=first.tuner if len(tuners) == 1 else "",
        assumed=(*assumed, f"hosts differ: NCCL goes by the least that any of them has (GPU: {first.gpu})"),
    )


def usual_release(system: NcclSystem, stated: bool) -> NcclSystem:
    """Return a published system with the release that was usual for its GPU when such rows were published."""
    if stated:
        return system
    usual = system.facts.usual_nccl
    kept = tuple(a for a in system.assumed if not a.startswith("NCCL release not said"))
    numbers = tuple(int(x) for x in usual.split("."))
    return replace(system, nccl=(numbers[0], numbers[1]), assumed=(*kept, f"NCCL release not said: {usual}"))


def _system(
    model: HostModel, link: LinkType | None, catalog: Catalog, stack: NcclSoftware, num_hosts: int, gpus: int
) -> NcclSystem:
    assumed: list[str] = []
    gpu = gpu_name(catalog.gpu(model.gpu), assumed)
    env = _environment(stack)
    kind = _network_kind(link, stack, env, assumed) if num_hosts > 1 or link else "infiniband"
    if kind in _VENDOR_ENV and num_hosts > 1 and not env.keys() & {"NCCL_ALGO", "NCCL_PROTO"}:
        env |= _VENDOR_ENV[kind]
        settings = " ".join(f"{name}={value}" for name, value in _VENDOR_ENV[kind].items())
        assumed.append(f"environment of the vendor's guide ({settings})")
    peers = env.get("NCCL_P2P_DISABLE") != "1"
    num_nics, rate_Bps, grouped = _nics(model, link, catalog, gpus, env)
    cap = stack.get("nic_path_cap")
    return NcclSystem(
        gpu=gpu,
        num_hosts=num_hosts,
        gpus_per_host=gpus,
        num_nics=num_nics,
        nic_rate_Bps=rate_Bps,
        network=kind,
        # Without peer access neighbours meet in host memory, whatever links they have.
        nvlink_Bps=_nvlink_Bps(model, catalog, gpus) if peers else 0.0,
        nvswitch=peers and model.scale_up_topology == "nvswitch",
        nvlink_domain=_domain(model, gpus, env),
        pcie_Bps=_pcie_Bps(model, catalog, grouped),
        path="P2C" if model.nic_path == "C2C" else model.nic_path,
        path_cap_Bps=units.rate(cap) if cap is not None else model.nic_path_cap_Bps,
        reported_latency_s=units.time(stack["plugin_latency"]) if "plugin_latency" in stack else None,
        cpu={"amd": "amd", "nvidia": "arm"}.get(model.cpu.vendor, "intel"),
        nccl=_release(stack, assumed),
        env=env,
        tuner=_tuner(link, gpu, kind, stack, assumed),
        gpus_per_process=_ranks_per_process(stack, gpus),
        collnet=bool(stack.get("sharp", False)) and env.get("NCCL_COLLNET_ENABLE") != "0",
        call_us=default_constants().machine.torch_call_us if stack.get("timing") == "torch" else 0.0,
        peer_access=peers,
        assumed=tuple(assumed),
    )


def _environment(stack: NcclSoftware) -> dict[str, str]:
    env = stack.get("env") or {}
    if not isinstance(env, Mapping):
        raise DescriptionError("software.env is a mapping of variables.", hint="Write env: {NCCL_ALGO: Ring}.")
    return {str(k): str(v) for k, v in env.items()}


def _ranks_per_process(stack: NcclSoftware, gpus: int) -> int:
    given: object = stack.get("ranks_per_process") or 1
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 1024:
        raise DescriptionError(f'ranks_per_process is a number of GPUs, not "{given}".')
    return min(given, gpus)


def gpu_name(gpu: Gpu, assumed: list[str]) -> str:
    """Return the model's short name of a GPU ("H100-SXM5-80GB" is "h100"); an unknown one is its nearest kin."""
    word = re.split(r"[-\s]", gpu.name.lower())[0]
    if word in known_gpus():
        return word
    if gpu.vendor == "google":
        raise DescriptionError(f"{gpu.name} does not run NCCL.", hint="Simulate its collectives at flow level.")
    kin = next(name for sm, name in _KIN if gpu.sm >= sm) if gpu.vendor == "nvidia" else "mi300x"
    assumed.append(f"{gpu.name} is modelled like {kin}")
    return kin


# Links that each of the first n GPUs of a hybrid cube mesh (DGX-1) has to the others of them.
_CUBE_LINKS = {2: 1, 3: 2, 4: 4, 5: 4, 6: 4, 7: 4}


def _nvlink_Bps(model: HostModel, catalog: Catalog, gpus: int) -> float:
    """NVLink of one GPU towards the GPUs of the job: all its links at a switch, those to its peers in a mesh."""
    gpu = catalog.gpu(model.gpu)
    if gpu.scale_up is None or model.scale_up_topology in ("pcie", "none"):
        return 0.0
    part = catalog.scale_up(gpu.scale_up)
    links: float = gpu.num_scale_up_links
    if model.scale_up_topology == "cube_mesh":
        links = min(links, _CUBE_LINKS.get(gpus, links))
    elif model.scale_up_topology == "mesh" and 1 < gpus < model.num_gpus:
        links = links * (gpus - 1) / (model.num_gpus - 1)
    return links * (part.nccl_link_Bps or 0.8 * part.link_Bps)


def _pcie_Bps(model: HostModel, catalog: Catalog, grouped: int) -> float:
    """NCCL counts PCIe at 0.75 of its raw rate (Gen4 x16: 24 GB/s); a NIC has the narrower of two slots."""
    raw = catalog.pcie(model.gpu_pcie).raw_Bps
    if model.nic is not None:
        raw = min(raw, catalog.pcie(catalog.nic(model.nic).pcie).raw_Bps * grouped)
    return 0.75 * raw


def _domain(model: HostModel, gpus: int, env: Mapping[str, str]) -> int:
    if env.get("NCCL_MNNVL_ENABLE") == "0":
        return gpus
    # Of each host of a rack as many GPUs as of the others, so that a rack has as many hosts as ever.
    return model.scale_up_domain_gpus * gpus // model.num_gpus if model.scale_up_domain_gpus else gpus


def _nics(
    model: HostModel, link: LinkType | None, catalog: Catalog, gpus: int, env: Mapping[str, str]
) -> tuple[int, float, int]:
    """Count NICs as NCCL sees them (ports of one card are one, several EFA devices of one GPU are grouped into one).

    Returns how many, the rate of each, and how many devices are in a group.
    """
    if link is None or model.num_nics == 0:
        return 0, 0.0, 1
    count, rate = model.num_nics, link.rate_Bps * model.ports_per_nic
    if model.nic is not None:  # a port runs at what its card knows
        rate = min(rate, catalog.nic(model.nic).max_Bps)
    chosen = env.get("NCCL_IB_HCA", "")
    if chosen and not chosen.startswith("^"):
        count = min(count, len(chosen.lstrip("=").split(",")))
    group = max(1, count // model.num_gpus) if link.family == "efa" else 1
    count, rate = count // group, rate * group
    if gpus < model.num_gpus and count > gpus:
        count = max(1, count * gpus // model.num_gpus)
    return count, rate, group


def _network_kind(link: LinkType | None, stack: NcclSoftware, env: Mapping[str, str], assumed: list[str]) -> str:
    known = default_constants().networks
    if stack.get("network"):
        if stack["network"] in known:
            return str(stack["network"])
        assumed.append(f'network kind "{stack["network"]}" is not known: constants of an unknown network')
        return "unknown"
    if link is None:
        return "unknown"
    if stack.get("plugin") == "none" and link.transport in ("efa", "cxi", "tcpx", "tcpxo"):
        return "tcp"
    if env.get("NCCL_IB_DISABLE") == "1" or env.get("NCCL_NET", "").lower() == "socket":
        return "tcp"
    if link.family == "efa":
        return _KIND_OF_EFA.get(link.name, "efa-v3")
    kind = _KIND_OF_TRANSPORT.get(link.transport)
    if kind == "slingshot" and env.get("FI_CXI_RDZV_PROTO") == "alt_read":
        # Every message asks before it is read. Matching in software alone costs a tree's words nothing (Alps).
        return "slingshot-rendezvous"
    if kind is None:
        assumed.append(f"no constants for {link.name}: those of an unknown network")
    return kind or "unknown"


def _release(stack: NcclSoftware, assumed: list[str]) -> tuple[int, int]:
    """Read a release however it is written: "2.27.5", 2.3 (YAML's way with 2.30), or NCCL's own code 22705."""
    if stack.get("nccl") is None:
        assumed.append(f"NCCL release not said: {DEFAULT_NCCL[0]}.{DEFAULT_NCCL[1]}")
        return DEFAULT_NCCL
    given = stack["nccl"]
    if isinstance(given, int) and not isinstance(given, bool) and given > 2000:
        return (given // 10000, given // 100 % 100) if given >= 10000 else (given // 1000, given // 100 % 10)
    numbers = re.findall(r"\d+", str(given))
    if len(numbers) < 2:
        raise DescriptionError(f'cannot read NCCL release "{given}".', hint='Write it as nccl: "2.27".')
    if isinstance(given, float) and len(numbers[1]) == 1:
        assumed.append(f"NCCL {given} is read as 2.{numbers[1]}0")
        return int(numbers[0]), 10 * int(numbers[1])
    return int(numbers[0]), int(numbers[1])


def _tuner(link: LinkType | None, gpu: str, kind: str, stack: NcclSoftware, assumed: list[str]) -> str:
    if "tuner" in stack:
        return "" if stack["tuner"] in (None, "none") else str(stack["tuner"])
    if kind == "tcpxo":
        assumed.append("tuner of GPUDirect-TCPXO (gcp-a3-mega, inferred)")
        return "gcp-a3-mega"
    if link is None or not kind.startswith("efa"):
        return ""
    tuner = _TUNER_OF.get((link.name, gpu_facts(gpu).sm), "")
    if tuner:
        assumed.append(f"tuner of aws-ofi-nccl for this instance ({tuner})")
    return tuner
