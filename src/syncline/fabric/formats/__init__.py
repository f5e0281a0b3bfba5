"""Import and export of fabrics: one table of formats, each with what recognises, reads and writes it.

    export(fabric, "slurm-conf", "topology.conf")
    spec = import_fabric("topology.conf", host="dgx-h100")
    spec = import_fabric("dump.xml")                        # an NCCL dump knows its own hardware

Formats are recognised by content; `formats()` lists those that can be written.
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
from syncline.fabric.formats.cloud_topology import CLOUDS, parse_cloud
from syncline.fabric.formats.graphml import write_graphml
from syncline.fabric.formats.host_tables import from_ibstat, from_topo, is_ibstat, is_topo
from syncline.fabric.formats.infiniband import iblinkinfo, ibnetdiscover, is_iblinkinfo, is_ibnetdiscover, is_ufm, ufm
from syncline.fabric.formats.lldp_tables import is_lldp, read_lldp
from syncline.fabric.formats.nccl_check import NcclReport, check_nccl_topology
from syncline.fabric.formats.nccl_host import NcclHost, describe, to_host
from syncline.fabric.formats.nccl_write import nccl_topology
from syncline.fabric.formats.nccl_xml import NcclTopology, parse_nccl, read_nccl, write_nccl
from syncline.fabric.formats.slurm import parse_slurm_conf, parse_slurm_yaml, write_slurm_conf, write_slurm_yaml
from syncline.fabric.formats.topograph import parse_topograph, write_topograph
from syncline.fabric.formats.tree import TreeSwitch, tree_cluster
from syncline.fabric.spec import ClusterSpec, network_from_text

__all__ = [
    "Format", "NcclHost", "NcclReport", "NcclTopology", "check_nccl_topology", "describe", "detect", "export",
    "export_text", "formats", "import_fabric", "nccl_topology", "parse_nccl", "read_nccl", "to_host", "write_nccl",
]  # fmt: skip

MAX_BYTES = 256 * 2**20
_COMMENT = re.compile(r"<!--.*?-->|<\?.*?\?>", re.DOTALL)
_SLURM = re.compile(r"^\s*(SwitchName|BlockName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class ForeignFile:
    """A file of another tool, and what the caller says that the file leaves open."""

    text: str
    path: Path
    host: str | JsonObject | None = None
    link: str | None = None
    gpu: str | None = None
    nic: str | None = None
    oversubscription: float = 1.0
    topology: str | None = None

    @property
    def source(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.stem or "found"


@dataclass(frozen=True)
class Format:
    """One format: what it holds, how a text of it is known, read and written; `one_host` describes no network."""

    name: str
    about: str
    recognise: Callable[[str], bool]
    read: Callable[[ForeignFile], ClusterSpec] | None
    write: Callable[..., str] | None = None
    one_host: bool = False


def _root_is(tag: str) -> Callable[[str], bool]:
    pattern = re.compile(rf"<\s*(?:[\w.-]+:)?{tag}\b")
    return lambda text: pattern.match(_COMMENT.sub("", text[:200_000]).lstrip("\ufeff \t\r\n")) is not None


def _plain_data(text: str) -> Any:
    try:
        return None if text.lstrip().startswith("<") else read_document(text, "").data
    except SynclineError:
        return None


def _is_slurm_yaml(text: str) -> bool:
    data = _plain_data(text)
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and "topology" in data[0]


def _is_topograph(text: str) -> bool:
    data = _plain_data(text)
    if not isinstance(data, dict):
        return False
    values = [value for value in data.values() if isinstance(value, dict)]
    labels = any("topology" in str(key) or "topograph" in str(key) for value in values for key in value)
    return data.get("kind") in ("List", "NodeList", "Node") or labels


def _cables(read: Callable[[str, str], Cabling]) -> Callable[[ForeignFile], ClusterSpec]:
    return lambda file: cabling_cluster(read(file.text, file.source), file.host, name=file.name, link=file.link)


def _tree(kind: str, read: Callable[[ForeignFile], tuple[TreeSwitch, ...]]) -> Callable[[ForeignFile], ClusterSpec]:
    return lambda file: _tree_cluster(kind, file, lambda: (read(file), ()))


def _tree_cluster(
    kind: str, file: ForeignFile, read: Callable[[], tuple[tuple[TreeSwitch, ...], tuple[str, ...]]]
) -> ClusterSpec:
    if file.host is None:
        problem = f"{kind} says nothing about the hosts' hardware."
        raise UsageError(problem, where=file.source, hint='Name a host model such as "dgx-h100".')
    tree, notes = read()
    source = f"{kind} {file.source}"
    spec = tree_cluster(
        tree, file.host, name=file.name, link=file.link, oversubscription=file.oversubscription, source=source
    )
    return spec.model_copy(update={"notes": "; ".join(filter(None, (spec.notes, *notes)))})


def _cloud(kind: str) -> Callable[[ForeignFile], ClusterSpec]:
    return lambda file: _tree_cluster(kind, file, lambda: parse_cloud(kind, file.text, file.source))


def _read_nccl(file: ForeignFile) -> ClusterSpec:
    parsed = parse_nccl(file.text, file.source)
    return to_host(parsed, name=file.path.stem, gpu=file.gpu, nic=file.nic, link=file.link)


def _of_host(read: Callable[..., ClusterSpec]) -> Callable[[ForeignFile], ClusterSpec]:
    return lambda file: read(file.text, file.source, name=file.name, host=file.host, gpu=file.gpu, link=file.link)


def _read_lldp(file: ForeignFile) -> ClusterSpec:
    return cabling_cluster(read_lldp(file.path, MAX_BYTES), file.host, name=file.name, link=file.link)


_FORMATS = (
    Format("nvidia-topo", "the matrix of nvidia-smi topo -m", is_topo, _of_host(from_topo), one_host=True),
    Format("ibstat", "the InfiniBand ports of a host", is_ibstat, _of_host(from_ibstat), one_host=True),
    Format("nccl", "NCCL topology XML of one host (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE)", _root_is("system"),
           _read_nccl, lambda fabric, host=0, **more: write_nccl(nccl_topology(fabric, host, **more)), one_host=True),
    Format("ibnetdiscover", "every port of an InfiniBand subnet", is_ibnetdiscover, _cables(ibnetdiscover)),
    Format("iblinkinfo", "every link of an InfiniBand subnet", is_iblinkinfo, _cables(iblinkinfo)),
    Format("ufm", "the links that UFM exports", is_ufm, _cables(ufm)),
    Format("lldp", "LLDP tables of switches, or a folder with one file a device", is_lldp, _read_lldp),
    *(Format(kind, f"the output of `{cloud.command}`", cloud.recognise, _cloud(kind))
      for kind, cloud in CLOUDS.items()),
    Format("graphml", "GraphML multigraph of every device and cable", _root_is("graphml"), None, write_graphml),
    Format("slurm-conf", "Slurm topology.conf: a tree of switches", lambda text: _SLURM.search(text) is not None,
           _tree("slurm-conf", lambda file: parse_slurm_conf(file.text, file.source)), write_slurm_conf),
    Format("slurm-block", "Slurm topology.conf: blocks of hosts", lambda text: False,
           _tree("slurm-block", lambda file: parse_slurm_conf(file.text, file.source)),
           lambda fabric: write_slurm_conf(fabric, plugin="block")),
    Format("slurm-yaml", "Slurm topology.yaml: tree and blocks", _is_slurm_yaml,
           _tree("slurm-yaml", lambda file: parse_slurm_yaml(file.text, file.source, file.topology)), write_slurm_yaml),
    Format("topograph", "Kubernetes labels as topograph sets them", _is_topograph,
           _tree("topograph", lambda file: parse_topograph(file.text, file.source)), write_topograph),
)  # fmt: skip
"""In the order in which a text is tried."""


def formats() -> tuple[Format, ...]:
    """Return every format that can be written."""
    return tuple(format_ for format_ in _FORMATS if format_.write)


def export_text(fabric: Fabric, format: str, **options: Any) -> str:
    """Return the fabric as text of that format; options are those of the format's writer (`host=3` for NCCL)."""
    write = _format(format).write
    if write is None:
        known = ", ".join(known.name for known in formats())
        raise UsageError(f"{format} files are only read.", hint=f"Written are: {known}.")
    return write(fabric, **options)


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
    what a file leaves open; `topology` picks one of a `topology.yaml`, `oversubscription` is that of a tree. A file of
    one host (NCCL's) makes `count` of them on a `network`; files that describe the network take neither.
    """
    place = Path(path)
    text = "" if place.is_dir() else read_text(place, limit=MAX_BYTES)
    kind = _format(format or ("lldp" if place.is_dir() else detect(text, str(path))))
    if not kind.one_host and (network is not None or count is not None):
        raise UsageError(
            "`network` and `count` are for files of one host; this one describes hosts and their network.",
            where=str(path),
            hint="Leave them out.",
        )
    if kind.read is None:
        raise UsageError(f"{kind.name} files are only written.", where=str(path), hint="Read the cluster's own file.")
    spec = kind.read(ForeignFile(text, place, host, link, gpu, nic, oversubscription, topology))
    return joined(spec, network, count) if kind.one_host else spec


def joined(spec: ClusterSpec, network: str | None, count: int | None) -> ClusterSpec:
    """Return a cluster of `count` hosts like the one described, on the network named."""
    if network is None and (count or 1) > 1:
        raise UsageError(
            f"{count:,} hosts need a network, and the file says nothing about one.",
            hint='Name it: `network` "rail-optimized NDR".',
        )
    data = spec.model_dump(exclude_none=True, exclude_defaults=True)
    data["hosts"] = [{"count": count or 1, "host": data["hosts"][0]["host"]}]
    if network is not None:
        try:
            data["network"] = network_from_text(network)
        except ValueError as error:
            raise UsageError(f"`network`: {error}.") from None
    return ClusterSpec.model_validate(data)


def detect(text: str, source: str = "the file") -> str:
    """Return the name of the format of a text, by what it contains."""
    name = next((format_.name for format_ in _FORMATS if format_.recognise(text)), None)
    if name is None:
        known = "; ".join(f"{f.name} ({f.about})" for f in _FORMATS)
        raise DescriptionError("the format is unknown.", where=source, detail=f"Known: {known}.")
    return name


def _format(name: str) -> Format:
    match = next((format_ for format_ in _FORMATS if format_.name == name), None)
    if match is None:
        only_read = ", ".join(f.name for f in _FORMATS if not f.write)
        known = ", ".join(f.name for f in formats())
        raise UsageError(f'there is no format "{name}".', hint=f"Formats: {known}; read only: {only_read}.")
    return match
