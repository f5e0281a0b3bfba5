"""From a cluster description to an `NcclSystem`: what NCCL would find on those hosts, with every assumption said.

    fabric = load("h100-64-rail")
    system = from_fabric(fabric, num_hosts=8, software={"nccl": "2.27", "env": {"NCCL_ALGO": "Ring"}})

`software` says what runs on the hosts: `nccl` (release), `plugin` ("none" for kernel TCP), `env`, `network` (a kind of
`nccl_networks.yaml`, where the link type does not tell), `tuner`, `sharp`, `ranks_per_process`, `timing` ("nccl-tests",
or "torch" where each call is timed with its Python overhead).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from syncline import units
from syncline.errors import DescriptionError
from syncline.fabric.catalog import Catalog, Gpu, HostModel, LinkType, load_catalog
from syncline.fabric.fabric import Fabric
from syncline.fabric.spec import ClusterSpec
from syncline.sim.nccl.constants import default_constants, gpu_facts, known_gpus
from syncline.sim.nccl.system import DEFAULT_NCCL, NcclSystem

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
_KEYS = {
    "nccl",
    "plugin",
    "env",
    "network",
    "tuner",
    "sharp",
    "ranks_per_process",
    "timing",
    "plugin_latency",
    "nic_path_cap",
}


def from_fabric(
    fabric: Fabric, *, num_hosts: int = 0, gpus_per_host: int = 0, software: Mapping[str, Any] | None = None
) -> NcclSystem:
    """Return what NCCL would find on `num_hosts` hosts of a fabric (all of them unless said)."""
    return from_spec(fabric.spec, num_hosts or fabric.num_hosts, gpus_per_host, software)


def from_spec(
    spec: ClusterSpec, num_hosts: int, gpus_per_host: int = 0, software: Mapping[str, Any] | None = None
) -> NcclSystem:
    """Return what NCCL would find on a described cluster; `software` is laid over the description's own."""
    catalog = load_catalog().with_parts(spec.parts) if spec.parts else load_catalog()
    groups = spec.hosts or spec.sites[0].hosts
    network = spec.network if spec.hosts else spec.sites[0].network
    model = groups[0].host.resolve(catalog)
    link = catalog.link(network.link if network is not None else model.link or "") if network or model.link else None
    stack = {**spec.software, **(software or {})}
    unknown = set(stack) - _KEYS
    if unknown:
        raise DescriptionError(
            f'software has an unknown key "{min(unknown)}".', hint=f"Known: {', '.join(sorted(_KEYS))}."
        )
    return _system(model, link, catalog, stack, num_hosts, gpus_per_host or model.num_gpus)


def _system(
    model: HostModel, link: LinkType | None, catalog: Catalog, stack: Mapping[str, Any], num_hosts: int, gpus: int
) -> NcclSystem:
    assumed: list[str] = []
    gpu = gpu_name(catalog.gpu(model.gpu), assumed)
    env = {str(k): str(v) for k, v in (stack.get("env") or {}).items()}
    kind = _network_kind(link, stack, env, assumed) if num_hosts > 1 or link else "infiniband"
    num_nics, rate_Bps, grouped = _nics(model, link, gpus, env)
    cap = stack.get("nic_path_cap")
    return NcclSystem(
        gpu=gpu,
        num_hosts=num_hosts,
        gpus_per_host=gpus,
        num_nics=num_nics,
        nic_rate_Bps=rate_Bps,
        network=kind,
        nvlink_Bps=_nvlink_Bps(model, catalog),
        nvswitch=model.scale_up_topology == "nvswitch",
        nvlink_domain=_domain(model, gpus, env),
        pcie_Bps=_pcie_Bps(model, catalog, grouped),
        path="P2C" if model.nic_path == "C2C" else model.nic_path,
        path_cap_Bps=units.rate(cap) if cap is not None else model.nic_path_cap_Bps,
        reported_latency_s=units.time(stack["plugin_latency"]) if "plugin_latency" in stack else None,
        cpu={"amd": "amd", "nvidia": "arm"}.get(model.cpu.vendor, "intel"),
        nccl=_release(stack, assumed),
        env=env,
        tuner=_tuner(link, gpu, kind, stack, assumed),
        gpus_per_process=int(stack.get("ranks_per_process", 1)),
        collnet=bool(stack.get("sharp", False)) and env.get("NCCL_COLLNET_ENABLE") != "0",
        call_us=default_constants().machine.torch_call_us if stack.get("timing") == "torch" else 0.0,
        assumed=tuple(assumed),
    )


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


def _nvlink_Bps(model: HostModel, catalog: Catalog) -> float:
    gpu = catalog.gpu(model.gpu)
    if gpu.scale_up is None or model.scale_up_topology in ("pcie", "none"):
        return 0.0
    part = catalog.scale_up(gpu.scale_up)
    return gpu.num_scale_up_links * (part.nccl_link_Bps or 0.8 * part.link_Bps)


def _pcie_Bps(model: HostModel, catalog: Catalog, grouped: int) -> float:
    """NCCL counts PCIe at 0.75 of its raw rate (Gen4 x16: 24 GB/s); a NIC has the narrower of two slots."""
    raw = catalog.pcie(model.gpu_pcie).raw_Bps
    if model.nic is not None:
        raw = min(raw, catalog.pcie(catalog.nic(model.nic).pcie).raw_Bps * grouped)
    return 0.75 * raw


def _domain(model: HostModel, gpus: int, env: Mapping[str, str]) -> int:
    if env.get("NCCL_MNNVL_ENABLE") == "0":
        return gpus
    return model.scale_up_domain_gpus or gpus


def _nics(model: HostModel, link: LinkType | None, gpus: int, env: Mapping[str, str]) -> tuple[int, float, int]:
    """Count NICs as NCCL sees them (ports of one card are one, several EFA devices of one GPU are grouped into one).

    Returns how many, the rate of each, and how many devices are in a group.
    """
    if link is None or model.num_nics == 0:
        return 0, 0.0, 1
    count, rate = model.num_nics, link.rate_Bps * model.ports_per_nic
    chosen = env.get("NCCL_IB_HCA", "")
    if chosen and not chosen.startswith("^"):
        count = min(count, len(chosen.lstrip("=").split(",")))
    group = max(1, count // model.num_gpus) if link.family == "efa" else 1
    count, rate = count // group, rate * group
    if gpus < model.num_gpus and count > gpus:
        count = max(1, count * gpus // model.num_gpus)
    return count, rate, group


def _network_kind(link: LinkType | None, stack: Mapping[str, Any], env: Mapping[str, str], assumed: list[str]) -> str:
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
    if kind == "slingshot" and env.get("FI_CXI_RX_MATCH_MODE") == "software":
        return "slingshot-rendezvous"
    if kind is None:
        assumed.append(f"no constants for {link.name}: those of an unknown network")
    return kind or "unknown"


def _release(stack: Mapping[str, Any], assumed: list[str]) -> tuple[int, int]:
    if "nccl" not in stack:
        assumed.append(f"NCCL release not said: {DEFAULT_NCCL[0]}.{DEFAULT_NCCL[1]}")
        return DEFAULT_NCCL
    numbers = re.findall(r"\d+", str(stack["nccl"]))
    if len(numbers) < 2:
        raise DescriptionError(f'cannot read NCCL release "{stack["nccl"]}".', hint='Write it as nccl: "2.27".')
    return int(numbers[0]), int(numbers[1])


def _tuner(link: LinkType | None, gpu: str, kind: str, stack: Mapping[str, Any], assumed: list[str]) -> str:
    if "tuner" in stack:
        return "" if stack["tuner"] in (None, "none") else str(stack["tuner"])
    if link is None or not kind.startswith("efa"):
        return ""
    tuner = _TUNER_OF.get((link.name, gpu_facts(gpu).sm), "")
    if tuner:
        assumed.append(f"tuner of aws-ofi-nccl for this instance ({tuner})")
    return tuner
