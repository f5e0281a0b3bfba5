"""One host as its own tools print it: `nvidia-smi topo -m` and `ibstat`.

topo -m says how GPUs reach each other (NV18, PHB, SYS) and which NIC is near which GPU; ibstat says how many ports
there are and what they run at. Neither names the GPU, and topo -m no rate: --gpu, --host and --link do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError, UsageError
from syncline.fabric.catalog import LinkType, load_catalog
from syncline.fabric.spec import ClusterSpec, HostSpec, host_from_text

_HEAD = re.compile(r"^\s*GPU0(?:\s+(?:GPU\d+|NIC\d+|mlx\d\S*|CPU Affinity)\b|\s*$)", re.MULTILINE)
_CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|C2C|N/A")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_CA = re.compile(r"^\s*CA '([^']+)'", re.MULTILINE)
_FIELD = re.compile(r"^\s*(CA type|State|Physical state|Rate|Link layer):\s*(.*?)\s*$")


def is_topo(text: str) -> bool:
    """Say whether a text is the matrix of `nvidia-smi topo -m`."""
    return _HEAD.search(_ESCAPE.sub("", text)) is not None


def is_ibstat(text: str) -> bool:
    """Say whether a text lists ports as `ibstat` does."""
    return _CA.search(text) is not None and "Link layer" in text


def _cluster(kind: str, source: str, name: str, row: JsonObject, notes: list[str]) -> ClusterSpec:
    data = {"name": name, "hosts": [{"count": 1, "host": row}], "source": f"{kind} {source}", "notes": "; ".join(notes)}
    return ClusterSpec.model_validate(data)


@dataclass(frozen=True)
class TopoMatrix:
    """`nvidia-smi topo -m`: cells by row and column."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]


def parse_topo(text: str, source: str) -> TopoMatrix:
    """Read the matrix; columns after the devices (affinities) are left out."""
    lines = _ESCAPE.sub("", text).splitlines()
    at = next((i for i, line in enumerate(lines) if _HEAD.match(line)), None)
    if at is None:
        raise DescriptionError("the line with GPU0 is missing.", where=source, hint="Give all of `nvidia-smi topo -m`.")
    columns = re.split(r"CPU Affinity|NUMA Affinity", lines[at])[0].split()
    cells: dict[tuple[str, str], str] = {}
    for number, line in enumerate(lines[at + 1 :], at + 2):
        words = line.split()
        if not words or words[0] not in columns:
            if words and cells and words[0].startswith("Legend"):
                break
            continue
        row = words[1 : len(columns) + 1]
        bad = next((word for word in row if not _CELL.fullmatch(word)), None)
        if bad is not None or len(row) < len(columns):
            what = f'"{bad}" is no kind of path' if bad is not None else f"{len(row)} of {len(columns)} cells are there"
            raise DescriptionError(f"{words[0]}: {what}.", where=f"{source} line {number}", hint="Was the table cut?")
        cells |= {(words[0], column): word for column, word in zip(columns, row, strict=True)}
    gpus = tuple(column for column in columns if column.startswith("GPU"))
    missing = [one for one in gpus if (one, one) not in cells]
    if missing:
        raise DescriptionError(f"the row of {missing[0]} is missing.", where=source, hint="Was the table cut?")
    return TopoMatrix(gpus, tuple(column for column in columns if column not in gpus), cells)


def from_topo(
    text: str, source: str, *, name: str, host: object = None, gpu: str | None = None, link: str | None = None
) -> ClusterSpec:
    """Return a cluster of one host as the matrix describes it."""
    matrix = parse_topo(text, source)
    if gpu is None and host is None:
        raise UsageError("nvidia-smi topo -m does not name the GPU.", where=source, hint="Name it: --gpu H100.")
    base: JsonObject = _host_row(host) if host is not None else {}
    nics, notes = _fabric_nics(matrix)
    row = {**base, "gpus": len(matrix.gpus), "scale_up": _scale_up(matrix)}
    if gpu is not None:
        row = {key: value for key, value in row.items() if key != "model"} | {"gpu": gpu}
    row["nics"] = len(nics)
    if nics:
        near = [_nearest(matrix, nic) for nic in nics]
        worst = next(kind for kind in ("SYS", "PHB", "PXB", "PIX") if kind in near)
        row["nic_path"] = worst
        notes.append(
            f"{len(nics)} NICs, {worst} from their nearest GPU" + ("" if link else ", of unknown rate (--link)")
        )
    if link is not None and nics:
        row["link"] = link
    return _cluster("nvidia-topo", source, name, row, notes)


def _fabric_nics(matrix: TopoMatrix) -> tuple[list[str], list[str]]:
    """Return the NICs that stand beside GPUs; others (storage, management) where some do."""
    kinds = {nic: _nearest(matrix, nic) for nic in matrix.nics}
    beside = [nic for nic, kind in kinds.items() if kind in ("PIX", "PXB")]
    if beside and len(beside) < len(kinds):
        return beside, [f"NICs that no GPU is beside are taken for storage and management: {len(kinds) - len(beside)}"]
    return list(kinds), []


def _nearest(matrix: TopoMatrix, nic: str) -> str:
    order = ("PIX", "PXB", "PHB", "SYS")
    kinds = [{"NODE": "PHB", "SOC": "SYS"}.get(cell, cell) for g in matrix.gpus if (cell := matrix.cells.get((g, nic)))]
    return min((kind for kind in kinds if kind in order), key=order.index, default="SYS")


def _scale_up(matrix: TopoMatrix) -> str:
    """Return nvswitch where all pairs have as many links, mesh where some have, pcie where none has."""
    between = [matrix.cells[a, b] for a in matrix.gpus for b in matrix.gpus if a != b]
    links = Counter(cell for cell in between if cell.startswith("NV"))
    if not links:
        return "pcie"
    if len(links) == 1 and sum(links.values()) == len(between):
        return "nvswitch" if len(matrix.gpus) > 4 or int(next(iter(links))[2:]) > 4 else "mesh"
    return "mesh"


@dataclass(frozen=True)
class StatPort:
    """One port of ibstat."""

    card: str
    kind: str
    state: str
    rate_Gbps: float
    layer: str


def parse_ibstat(text: str, source: str) -> list[StatPort]:
    """Read the ports of all cards, in their order."""
    ports: list[StatPort] = []
    card, kind, port = "", "", dict[str, str]()

    def close() -> None:
        if port:
            rate = re.match(r"[\d.]+", port.get("Rate", ""))
            if rate is None:
                raise DescriptionError(f"a port of {card} has no rate.", where=source, hint="Give all of `ibstat`.")
            ports.append(StatPort(card, kind, port.get("State", ""), float(rate.group()), port.get("Link layer", "")))
        port.clear()

    for line in text.splitlines():
        if (head := _CA.match(line)) is not None:
            close()
            card, kind = head.group(1), ""
        elif re.match(r"^\s*Port \d+:\s*$", line):
            close()
            port["State"] = ""
        elif (field := _FIELD.match(line)) is not None:
            kind = field.group(2) if field.group(1) == "CA type" else kind
            if port:
                port[field.group(1)] = field.group(2)
    close()
    if not ports:
        raise DescriptionError("no port is listed.", where=source, hint="Give the output of `ibstat`.")
    return ports


#: Cards by what ibstat calls them.
_CARDS = {"MT4115": "ConnectX-4", "MT4119": "ConnectX-5", "MT4121": "ConnectX-5", "MT4123": "ConnectX-6",
          "MT4125": "ConnectX-6 Dx", "MT4129": "ConnectX-7", "MT4131": "ConnectX-8"}  # fmt: skip


def from_ibstat(
    text: str, source: str, *, name: str, host: object = None, gpu: str | None = None, link: str | None = None
) -> ClusterSpec:
    """Return a cluster of one host with the ports that ibstat lists."""
    if host is None and gpu is None:
        raise UsageError("ibstat says nothing about the GPUs.", where=source, hint='Name the host: --host "8 x H100".')
    ports = parse_ibstat(text, source)
    up = [port for port in ports if port.state == "Active"] or ports
    (rate, layer), _ = Counter((port.rate_Gbps, port.layer) for port in up).most_common(1)[0]
    fabric = [port for port in ports if port.layer == layer and (port.rate_Gbps == rate or port.state != "Active")]
    cards = list(dict.fromkeys(port.card for port in fabric))
    notes = [f"{port.card} is {port.state or 'in no state'}" for port in fabric if port.state != "Active"]
    left = [port for port in ports if port not in fabric]
    if left:
        notes.append(f"ports of another kind or rate, taken for storage and management: {len(left)}")
    row = _host_row(host if host is not None else gpu) | {
        "nics": len(cards),
        "link": link or _link_at(rate, layer, source),
    }
    if len(fabric) > len(cards):
        row["ports_per_nic"] = -(-len(fabric) // len(cards))
    known = _CARDS.get(Counter(port.kind for port in fabric).most_common(1)[0][0])
    if known in load_catalog().names("nic"):
        row["nic"] = known
    return _cluster("ibstat", source, name, row, notes)


def _link_at(rate_Gbps: float, layer: str, source: str) -> str:
    family = "infiniband" if layer == "InfiniBand" else "ethernet"
    links = [part for part in load_catalog().parts("link") if isinstance(part, LinkType) and part.family == family]
    for part in links:
        if abs(part.rate_Bps * 8e-9 - rate_Gbps) < 0.01 * rate_Gbps:
            return part.name
    raise DescriptionError(
        f"the catalogue has no {layer} link of {rate_Gbps:g} Gb/s.", where=source, hint="Name one: --link HDR."
    )


def _host_row(host: object) -> JsonObject:
    given = host if isinstance(host, dict) else str(host)
    row: JsonObject = HostSpec.model_validate(host_from_text(given)).model_dump(exclude_none=True)
    return row
