"""Facts that should be equal on every host of a job: versions, counts, settings. The matrix compares them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from syncline.auditing.checks.network import qdiscs
from syncline.describe import units
from syncline.host.gpu import nvlink_domains
from syncline.host.host import Host
from syncline.host.imex import node_map
from syncline.host.rdma import chosen_gid

_SHAPERS = ("netem", "tbf", "htb")
_VARIABLE = re.compile(r"(NCCL|GLOO|UCX|FI|OFI_NCCL|TORCH_NCCL)_\w+")
# These differ by rank or host on purpose.
_PER_RANK = {"NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_HOSTID"}


def facts(host: Host) -> dict[str, str]:
    """Return what is to be compared across hosts; a fact that cannot be read is left out."""
    root = host.root
    with root.noting():
        found = {
            "kernel": host.sysctl("kernel.osrelease") or "",
            "os": _os(root.text("etc/os-release") or ""),
            "kernel options": root.text("proc/cmdline") or "",
            "product": root.text("sys/class/dmi/id/product_name") or "",
            "bios": root.text("sys/class/dmi/id/bios_version") or "",
            "cpu": _first(root.text("proc/cpuinfo") or "", "model name"),
            "gpus": _counted(gpu.value("Product Name") or gpu.pci.id for gpu in host.gpus),
            "gpu driver": _nvidia(root.text("proc/driver/nvidia/version") or "") or _smi(host),
            "gpu vbios": _counted(gpu.value("VBIOS Version") for gpu in host.gpus),
            "gpu power limit": _counted(gpu.value("GPU Power Readings/Current Power Limit") for gpu in host.gpus),
            "nccl": ", ".join(host.nccl_versions),
            "rdma devices": " ".join(f"{p.device}@{p.pci}" for p in host.ports),
            "rdma rate": _counted(f"{p.rate_text}" for p in host.fabric_ports),
            "rdma link layer": _counted(p.layer for p in host.fabric_ports),
            "rdma firmware": _counted(f"{p.board} {p.firmware}" for p in host.ports),
            "rdma driver": root.text("sys/module/mlx5_core/version") or "",
            "rdma mtu": _counted(_active_mtu(host)),
            "gid index": _counted(_gid_index(host)),
            "gid family": _gid_family(host),
            "nvlink domain": " ".join(uuid for uuid, _ in nvlink_domains(host.gpus)),
            "nvlink clique": " ".join(clique for _, clique in nvlink_domains(host.gpus)),
            "imex nodes": " ".join(node_map(host)),
            "nccl plugins": " ".join(host.nccl_plugins),
            "huge pages": _huge_pages(host),
            "mtu": _counted(str(i.mtu) for i in host.fabric_interfaces),
            "interface rate": _counted(f"{i.speed_Mbps} Mb/s" for i in host.fabric_interfaces if i.is_physical),
            "interfaces": " ".join(i.name for i in host.fabric_interfaces),
            "congestion control": host.sysctl("net.ipv4.tcp_congestion_control") or "",
            "name sources": " ".join(host.lookup.order) if host.lookup.files else "",
            "name servers": " ".join(host.lookup.servers),
            "search domains": " ".join(host.lookup.search),
            "memory": _memory(root.text("proc/meminfo") or ""),
            "queueing": _qdisc(host),
        }  # fmt: skip
        found |= {f"env {k}": v for k, v in host.environment.items() if _VARIABLE.fullmatch(k) and k not in _PER_RANK}
    return {name: value for name, value in found.items() if value}


def _counted(values: Iterable[str]) -> str:
    """Return "8 x H100" for equal values, each kind once."""
    counts = Counter(value for value in values if value)
    return ", ".join(f"{count} x {value}" if count > 1 else value for value, count in sorted(counts.items()))


def _gid_index(host: Host) -> list[str]:
    """Return the index of each RoCE port's first routable RoCE v2 entry."""
    firsts = (
        next((g.index for g in p.gids if "v2" in g.type and not g.is_link_local), -1)
        for p in host.fabric_ports
        if p.is_roce
    )
    return [str(index) for index in firsts if index >= 0]


def _gid_family(host: Host) -> str:
    """Return the family of the addresses that NCCL would take on RoCE ports: equal at both ends of a connection."""
    taken = (chosen_gid(port, host.environment) for port in host.fabric_ports if port.is_roce)
    return _counted(gid.family for gid in taken if gid is not None)


def _huge_pages(host: Host) -> str:
    return ", ".join(f"{p.total:,} x {units.show_size(p.size_bytes)}" for p in host.huge_pages if p.total)


def _active_mtu(host: Host) -> list[str]:
    known = host.active_mtu if host.ports else {}
    return [str(known[port.name][0]) for port in host.fabric_ports if port.name in known]


def _qdisc(host: Host) -> str:
    rows = [row for row in qdiscs(host) if row.kind in _SHAPERS]
    return _counted(f"{row.kind} {units.show_rate(row.rate_Bps)}" if row.rate_Bps else row.kind for row in rows)


def _nvidia(text: str) -> str:
    match = re.search(r"(Open )?Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)", text)
    return f"{match.group(2)}{' open' if match.group(1) else ''}" if match else ""


def _smi(host: Host) -> str:
    return host.smi.head.get("Driver Version", "") if host.gpus else ""


def _os(text: str) -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.MULTILINE)
    return match.group(1) if match else ""


def _first(text: str, key: str) -> str:
    match = re.search(rf"^{key}\s*:\s*(.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else ""


def _memory(text: str) -> str:
    match = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    # Rounded to 5 %: firmware keeps some megabytes more on one host than on another.
    return f"{float(f'{int(match.group(1)) / 2**20:.2g}'):g} GiB" if match else ""
