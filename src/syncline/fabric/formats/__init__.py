"""Import and export of fabrics: NCCL topology XML, Slurm topologies, topograph labels, GraphML.

Read only: simulators' files, the cables that ibnetdiscover, iblinkinfo, UFM, LLDP tables or SONiC's configuration list,
hosts as `nvidia-smi topo -m` or ibstat print them, and clouds' answers where instances are.

    export(fabric, "slurm-conf", "topology.conf")
    spec = import_fabric("topology.conf", host="dgx-h100")
    spec = import_fabric("dump.xml")                        # an NCCL dump knows its own hardware

Formats are recognised by content; `formats()` lists them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncline.describe.document import read_document, read_text
from syncline.describe.files import write_text
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError, SynclineError, UsageError
from syncline.fabric.fabric import Fabric
from syncline.fabric.formats.cabling import Cabling, cabling_cluster
from syncline.fabric.formats.cloud_topology import CLOUDS, detect_cloud, parse_cloud
from syncline.fabric.formats.graph_cluster import graph_cluster
from syncline.fabric.formats.graphml import MAX_BYTES, parse_graph, write_graphml
from syncline.fabric.formats.host_tables import HOST_TABLES, detect_host_table, host_table_cluster
from syncline.fabric.formats.infiniband import detect_infiniband, parse_infiniband
from syncline.fabric.formats.lldp_tables import detect_lldp, read_lldp
from syncline.fabric.formats.nccl_check import NcclReport, check_nccl_topology
from syncline.fabric.formats.nccl_host import NcclHost, describe, to_host
from syncline.fabric.formats.nccl_write import nccl_topology
from syncline.fabric.formats.nccl_xml import NcclTopology, parse_nccl, read_nccl, write_nccl
from syncline.fabric.formats.simulators import detect_simulator, parse_simulator
from syncline.fabric.formats.slurm import parse_slurm_conf, parse_slurm_yaml, write_slurm_conf, write_slurm_yaml
from syncline.fabric.formats.topograph import parse_topograph, write_topograph
from syncline.fabric.formats.tree import TreeSwitch, tree_cluster
from syncline.fabric.spec import ClusterSpec, network_from_text

__all__ = [
    "Format", "NcclHost", "NcclReport", "NcclTopology", "check_nccl_topology", "describe", "detect", "export",
    "export_text", "formats", "import_fabric", "nccl_topology", "parse_nccl", "read_nccl", "to_host", "write_nccl",
]  # fmt: skip

_TAG = re.compile(r"<\s*([A-Za-z_][\w:.-]*)")
_COMMENT = re.compile(r"<!--.*?-->|<\?.*?\?>", re.DOTALL)
_SLURM = re.compile(r"^\s*(SwitchName|BlockName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Format:
    """One format: what it is called, what it holds, and whether reading it takes a host model."""

    name: str
    about: str
    needs_host: bool
    write: Callable[..., str]


_FORMATS = {
    format_.name: format_
    for format_ in (
        Format(
            "nccl",
            "NCCL topology XML of one host (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE)",
            False,
            lambda fabric, host=0, **more: write_nccl(nccl_topology(fabric, host, **more)),
        ),
        Format("slurm-conf", "Slurm topology.conf: a tree of switches", True, write_slurm_conf),
        Format(
            "slurm-block",
            "Slurm topology.conf: blocks of hosts",
            True,
            lambda fabric: write_slurm_conf(fabric, plugin="block"),
        ),
        Format("slurm-yaml", "Slurm topology.yaml: tree and blocks", True, write_slurm_yaml),
        Format("topograph", "Kubernetes labels as topograph sets them", True, write_topograph),
        Format("graphml", "GraphML multigraph of every device and cable", False, write_graphml),
    )
}


def formats() -> tuple[Format, ...]:
    """Return every format that can be written and read."""
    return tuple(_FORMATS.values())


def export_text(fabric: Fabric, format: str, **options: Any) -> str:
    """Return the fabric as text of that format; options are those of the format's writer (`host=3` for NCCL)."""
    return _format(format).write(fabric, **options)


def export(fabric: Fabric, format: str, path: str | os.PathLike[str], **options: Any) -> None:
    """Write the fabric to a file; an old file stays whole until the new one is complete."""
    write_text(Path(path), export_text(fabric, format, **options))


def import_fabric(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    host: str | JsonObject | None = None,
    link: str | None = None,
    gpu: str | None = None,
    nic: str | None = None,
    oversubscription: float = 1.0,
    topology: str | None = None,
    network: str | None = None,
    count: int | None = None,
) -> ClusterSpec:
    """Read a file of any known format as a cluster description.

    `host` (a catalogue host, or "8 x H100") is needed by formats that know no hardware; `link`, `gpu` and `nic` say
    what a file leaves open; `topology` picks one of a `topology.yaml`. A file of one host (NCCL's) makes `count` of
    them on a `network`; files that describe the network take neither.
    """
    table = _host_table(path, format)
    one_host = table is not None or _is_nccl(path, format)
    if (network is not None or count is not None) and not one_host:
        raise UsageError(
            "--network and --count are for files of one host; this one describes hosts and their network.",
            where=str(path),
            hint="Leave them out.",
        )
    name = Path(path).stem or "found"
    if table is not None:
        text = read_text(Path(path), limit=MAX_BYTES)
        return joined(
            host_table_cluster(table, text, str(path), name=name, host=host, gpu=gpu, link=link), network, count
        )
    if one_host:
        parsed = parse_nccl(read_text(Path(path), limit=MAX_BYTES), str(path))
        return joined(to_host(parsed, name=Path(path).stem, gpu=gpu, nic=nic, link=link), network, count)
    if (cabling := read_cabling(path, format)) is not None:
        return cabling_cluster(cabling, host, name=name, link=link)
    text, source = read_text(Path(path), limit=MAX_BYTES), str(path)
    if (simulator := _simulator(format, text)) is not None:
        return parse_simulator(simulator, text, source, host)
    cloud = format if format in CLOUDS else None if format else detect_cloud(text)
    kind = cloud or (_format(format).name if format else detect(text, source))
    if kind == "graphml":
        return graph_cluster(parse_graph(text, source), host)
    if host is None:
        raise UsageError(
            f"{kind} says nothing about the hosts' hardware.",
            where=source,
            hint='Name a host model such as "dgx-h100".',
        )
    tree, notes = parse_cloud(kind, text, source) if cloud else (_tree(kind, text, source, topology), ())
    spec = tree_cluster(
        tree,
        host,
        name=Path(path).stem,
        link=link,
        oversubscription=oversubscription,
        source=f"{kind} {source}",
    )
    return spec.model_copy(update={"notes": "; ".join(filter(None, (spec.notes, *notes)))}) if notes else spec


def _host_table(path: str | os.PathLike[str], format: str | None) -> str | None:
    if format is not None or Path(path).is_dir():
        return format if format in HOST_TABLES else None
    return detect_host_table(read_text(Path(path), limit=MAX_BYTES))


def joined(spec: ClusterSpec, network: str | None, count: int | None) -> ClusterSpec:
    """Return a cluster of `count` hosts like the one described, on the network named."""
    if network is None and (count or 1) > 1:
        raise UsageError(
            f"{count:,} hosts need a network, and the file says nothing about one.",
            hint='Name it: --network "rail-optimized NDR".',
        )
    data = spec.model_dump(exclude_none=True, exclude_defaults=True)
    data["hosts"] = [{"count": count or 1, "host": data["hosts"][0]["host"]}]
    if network is not None:
        try:
            data["network"] = network_from_text(network)
        except ValueError as error:
            raise UsageError(f"--network: {error}.") from None
    return ClusterSpec.model_validate(data)


def _is_nccl(path: str | os.PathLike[str], format: str | None) -> bool:
    if format is not None or Path(path).is_dir():
        return format == "nccl"
    head = _COMMENT.sub("", read_text(Path(path), limit=MAX_BYTES)[:200_000]).lstrip("\ufeff \t\r\n")
    tag = _TAG.match(head)
    return tag is not None and tag.group(1) == "system"


SIMULATORS = ("htsim", "ns3", "astra-sim")
"""Formats of simulators, which are read only."""
CABLINGS = ("ibnetdiscover", "iblinkinfo", "ufm", "lldp")
"""Formats of discovery tools, which are read only."""
_READ_ONLY = (*SIMULATORS, *CABLINGS, *HOST_TABLES, *CLOUDS)


def read_cabling(path: str | os.PathLike[str], format: str | None = None) -> Cabling | None:
    """Return the cables that a discovery tool found; None where the file (or folder) is none of theirs."""
    place = Path(path)
    if format is not None and format not in CABLINGS:
        return None
    if format == "lldp" or place.is_dir():
        return read_lldp(place, MAX_BYTES)
    text = read_text(place, limit=MAX_BYTES)
    kind = format or detect_infiniband(text)
    if kind is not None:
        return parse_infiniband(kind, text, str(path))
    return read_lldp(place, MAX_BYTES) if detect_lldp(text) else None


def _simulator(format: str | None, text: str) -> str | None:
    if format is not None:
        return format if format in SIMULATORS else None
    return detect_simulator(text)


def detect(text: str, source: str = "the file") -> str:
    """Return the name of the format of a text, by what it contains."""
    head = _COMMENT.sub("", text[:200_000]).lstrip("\ufeff \t\r\n")
    if head.startswith("<"):
        tag = _TAG.search(head)
        name = {"system": "nccl", "graphml": "graphml"}.get(tag.group(1).rpartition(":")[2] if tag else "")
        if name:
            return name
    elif _SLURM.search(text):
        return "slurm-conf"
    elif (name := _detect_yaml(text, source)) is not None:
        return name
    known = "; ".join(f"{f.name} ({f.about})" for f in formats())
    more = ", ".join(_READ_ONLY)
    raise DescriptionError("the format is unknown.", where=source, detail=f"Known: {known}; {more}.")


def _detect_yaml(text: str, source: str) -> str | None:
    try:
        data = read_document(text, source).data
    except SynclineError:
        return None
    if isinstance(data, list):
        return "slurm-yaml" if data and isinstance(data[0], dict) and "topology" in data[0] else None
    if not isinstance(data, dict):
        return None
    if data.get("kind") in ("List", "NodeList", "Node"):
        return "topograph"
    values = [value for value in data.values() if isinstance(value, dict)]
    labels = any("topology" in str(key) or "topograph" in str(key) for value in values for key in value)
    return "topograph" if labels else None


def _tree(name: str, text: str, source: str, topology: str | None) -> tuple[TreeSwitch, ...]:
    if name == "slurm-yaml":
        return parse_slurm_yaml(text, source, topology)
    return parse_topograph(text, source) if name == "topograph" else parse_slurm_conf(text, source)


def _format(name: str) -> Format:
    if name not in _FORMATS:
        raise UsageError(
            f'there is no format "{name}".',
            hint=f"Formats: {', '.join(_FORMATS)}; read only: {', '.join(_READ_ONLY)}.",
        )
    return _FORMATS[name]
