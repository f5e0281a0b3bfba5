"""Constants of the model, read once from data files: GPU generations, network kinds, and what was fitted over them.

Priors and their sources are in `data/nccl_gpus.yaml`, `nccl_machine.yaml` and `nccl_networks.yaml`; the outcome of the
fit is in `nccl_fitted.yaml` and wins. A network kind that lacks a value takes its parent's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from syncline.describe.own_data import own_data
from syncline.errors import SimulationError


@dataclass(frozen=True)
class GpuGeneration:
    """One GPU generation as NCCL sees it."""

    name: str
    sm: int
    generation: int
    nvlink_GBps: float
    nvswitch: bool
    nvls: bool
    pcie_GBps: float
    nvlink_domain: int
    machine: int = -1
    usual_nccl: str = "2.27"
    unverified: bool = False

    @property
    def machine_row(self) -> int:
        """Row of the machine's tables: the generation's, or AMD's own."""
        return self.generation if self.machine < 0 else self.machine


@dataclass(frozen=True)
class NcclNetwork:
    """One kind of network: what a hop, a KiB and a peer really cost under NCCL (see `nccl_networks.yaml`)."""

    name: str
    title: str
    source: str
    parent: str
    reported_us: float
    protocols: tuple[str, ...]
    by_host: bool
    hop_us: float
    simple_hop_us: float
    tree_level: float
    ring_hop: float
    ring_ll128_pace_us: float
    proxy: float
    nic_cap_GBps: float
    efficiency: float
    many_hosts: float
    ll_us_per_KiB: float
    ll128_share: float
    pipeline: float
    overlap: float
    channel_us: float
    nvlstree_level_us: float
    alltoall_base_us: float
    alltoall_peer_us: float
    alltoall_tiny: float
    alltoall_efficiency: float
    alltoall_falloff: float
    crowding: float
    crowded_as: str


@dataclass(frozen=True)
class NcclMachine:
    """What NVLink, NVLS and launches cost under NCCL, whatever the network (see `nccl_machine.yaml`)."""

    nvlink_efficiency: tuple[float, ...]
    nvls_efficiency: tuple[float, ...]
    nvls_wide_efficiency: tuple[float, ...]
    intra_ll_us: tuple[float, ...]
    launch_us_per_gpu: float
    p2p_launch_us_per_gpu: float
    p2p_base_us: float
    p2p_channel_GBps: tuple[float, ...]
    p2p_net_share: float
    alltoall_pipeline: float
    pcie_sockets: float
    pcie_staged: float
    one_host_pipeline: float
    nvls_pipeline: tuple[float, ...]
    tree_ll128_pipeline: float
    tree_simple_pipeline: float
    nvlstree_pipeline: tuple[float, ...]
    one_host_ll_us_per_KiB: tuple[float, ...]
    ring_ll_copy: float
    ring_ll_pace: float
    ring_ll128_share: float
    ring_chunk_KiB: float
    ring_small_share: float
    tree_ll_chunk_KiB: float
    torch_call_us: float
    sendrecv_share: float
    alltoall_share: float
    nvlstree_share: float
    nvlstree_inside: float


@dataclass(frozen=True)
class NcclConstants:
    """Everything that was fitted or judged: the machine and every network kind."""

    machine: NcclMachine
    networks: Mapping[str, NcclNetwork]

    def with_network(self, name: str, **values: float) -> NcclConstants:
        """Return the constants with some values of one network kind replaced."""
        changed = replace(self.networks[name], **values)  # type: ignore[arg-type]
        return replace(self, networks={**self.networks, name: changed})


def read_data(name: str) -> Any:
    """Return a data file of the model as loaded; read once, so do not change it."""
    return own_data("sim", f"data/{name}.yaml") or {}


@cache
def _gpus() -> dict[str, GpuGeneration]:
    return {name: GpuGeneration(name=name, **row) for name, row in read_data("nccl_gpus").items()}


def known_gpus() -> tuple[str, ...]:
    """Return the short names of the GPU generations in the model."""
    return tuple(_gpus())


def gpu_facts(name: str) -> GpuGeneration:
    """Return the facts of a GPU generation by its short name ("h100")."""
    known = _gpus()
    if name not in known:
        raise SimulationError(f'GPU "{name}" is not in the NCCL model.', hint=f"Known: {', '.join(known)}.")
    return known[name]


_HOPS = ("hop_us", "simple_hop_us")


def _filled(kind: str, rows: Any, fitted: Mapping[str, dict[str, float]]) -> Any:
    """Return a kind's values over its parent's; fitted ones win, and a child's prior wins over a parent's fit."""
    row = {**rows[kind], **fitted.get(kind, {})}
    parent = row.get("parent")
    if not parent:
        return row
    inherited = _filled(parent, rows, fitted)
    factor = row.pop("hop_factor", 1.0)
    return {**inherited, **{name: inherited[name] * factor for name in _HOPS if name in inherited}, **row}


def network_from(kind: str, rows: Any, fitted: Mapping[str, dict[str, float]]) -> NcclNetwork:
    """Build one network kind from prior rows and fitted values."""
    row = _filled(kind, rows, fitted)
    row = {"name": kind, "parent": rows[kind].get("parent", ""), **{k: v for k, v in row.items() if k != "parent"}}
    row["protocols"] = tuple(row["protocols"])
    return NcclNetwork(**{f.name: row[f.name] for f in fields(NcclNetwork)})


def machine_from(fitted: Mapping[str, Any]) -> NcclMachine:
    """Build the machine constants from the priors with fitted values over them."""
    values: dict[str, Any] = {**read_data("nccl_machine"), **fitted}
    for name in values.keys() & {name for name, value in values.items() if isinstance(value, list)}:
        values[name] = tuple(values[name])
    return NcclMachine(**values)


def constants_from(machine: Mapping[str, Any], networks: Mapping[str, dict[str, float]]) -> NcclConstants:
    """Build all constants from the priors with fitted values over them."""
    rows = prior_rows()
    return NcclConstants(machine_from(machine), {kind: network_from(kind, rows, networks) for kind in rows})


def prior_rows() -> Any:
    """Return the prior values of every network kind as the data file has them."""
    return read_data("nccl_networks")


@cache
def default_constants() -> NcclConstants:
    """Return the constants that ship: priors with the fitted values over them."""
    fitted = read_data("nccl_fitted")
    return constants_from(fitted["machine"], fitted["networks"])


@cache
def left_out_constants() -> dict[str, NcclConstants]:
    """Return, by system, the constants fitted without that system's rows."""
    fitted = read_data("nccl_fitted")
    found = {}
    for system, row in (fitted.get("left_out") or {}).items():
        networks = {kind: v for kind, v in {**fitted["networks"], **row["networks"]}.items() if v is not None}
        found[system] = constants_from({**fitted["machine"], **row["machine"]}, networks)
    return found


def network_facts(name: str) -> NcclNetwork:
    """Return the constants of a network kind; an unknown name is an error (use kind "unknown" for defaults)."""
    known = default_constants().networks
    if name not in known:
        raise SimulationError(f'network kind "{name}" is not in the NCCL model.', hint=f"Known: {', '.join(known)}.")
    return known[name]
