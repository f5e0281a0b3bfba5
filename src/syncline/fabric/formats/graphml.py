"""GraphML: every device and cable of a fabric as a multigraph, for graph tools, and back as an explicit cluster.

Nodes bear the columns of `Devices`, edges those of `Links` (one edge per cable), and the graph a note of the hosts'
models, so that a file written here builds an equal fabric again. A file from elsewhere needs `kind` on its nodes
("host" or "switch"), `rate_Bps` on its edges, and a host model to be read with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from syncline.describe.mistakes import first_mistake
from syncline.describe.plain import JsonObject
from syncline.describe.xml import refuse_doctype
from syncline.errors import DescriptionError, FabricError
from syncline.fabric.fabric import DeviceKind, Fabric, Tier

if TYPE_CHECKING:
    import networkx as nx

MAX_BYTES = 256 * 2**20
MAX_CABLES = 1_000_000
M = TypeVar("M", bound=BaseModel)
_NOTE = "syncline"
_KINDS = {kind.name.lower(): kind for kind in DeviceKind}


class GraphDevice(BaseModel):
    """One vertex of a read graph."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    name: str
    kind: Annotated[str, BeforeValidator(lambda kind: str(kind).lower())] = ""
    host: str = ""
    part: str = ""
    level: int = 0
    group: int = 0
    rail: int = -1
    site: int = 0


class GraphCable(BaseModel):
    """One edge of a read graph, in the order it was written."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    a: str
    b: str
    rate_Bps: float = Field(ge=0, le=1e18)
    latency_s: float = Field(default=1e-6, ge=0, le=1e18)
    tier: str = ""
    medium: str = ""
    cable: str = ""
    length_m: float = Field(default=0.0, ge=0, le=1e18)
    num_cables: int = Field(default=1, ge=0)
    up: bool = True


@dataclass(frozen=True)
class FabricGraph:
    """Devices by name and cables in order, with the writer's note on hosts, sites and parts."""

    devices: Mapping[str, GraphDevice]
    cables: tuple[GraphCable, ...]
    note: Mapping[str, Any]
    source: str


def to_networkx(fabric: Fabric) -> nx.MultiGraph[str]:
    """Return the fabric as a networkx multigraph; parallel cables are parallel edges, keyed by cable number."""
    import networkx as nx

    if len(fabric.links) // 2 > MAX_CABLES:
        raise FabricError(
            f"{fabric.name} has {len(fabric.links) // 2:,} cables; a GraphML file holds {MAX_CABLES:,} here.",
            hint="Save the description instead: it builds the same fabric.",
        )
    graph: nx.MultiGraph[str] = nx.MultiGraph()
    graph.graph[_NOTE] = json.dumps(_note(fabric), separators=(",", ":"))
    names = [fabric.device_name(i) for i in range(len(fabric.devices))]
    devices, links = fabric.devices, fabric.links
    for i, name in enumerate(names):
        host = int(devices.host[i])
        graph.add_node(
            name,
            kind=DeviceKind(int(devices.kind[i])).name.lower(),
            host=fabric.host_names[host] if host >= 0 else "",
            local=int(devices.local[i]),
            part=fabric.parts[devices.part[i]],
            level=int(devices.level[i]),
            group=int(devices.group[i]),
            rail=int(devices.rail[i]),
            site=int(devices.site[i]),
        )
    for link in range(0, len(links), 2):
        graph.add_edge(
            names[links.src[link]],
            names[links.dst[link]],
            key=link // 2,
            source_device=names[links.src[link]],
            order=link // 2,
            rate_Bps=float(links.rate_Bps[link]),
            latency_s=float(links.latency_s[link]),
            tier=Tier(int(links.tier[link])).label,
            medium=fabric.media[links.medium[link]],
            cable=fabric.cables[links.cable[link]] if links.cable[link] >= 0 else "",
            length_m=float(links.length_m[link]),
            num_cables=int(links.num_cables[link]),
            up=bool(links.up[link]),
        )
    return graph


def write_graphml(fabric: Fabric) -> str:
    """Return the fabric as GraphML text."""
    import networkx as nx

    return "\n".join(nx.generate_graphml(to_networkx(fabric))) + "\n"


def parse_graph(text: str, source: str = "GraphML") -> FabricGraph:
    """Parse GraphML text; unsafe XML and graphs without the needed data are refused by name."""
    import networkx as nx

    refuse_doctype(text.encode("utf-8", "surrogatepass"), source)
    try:
        graph = nx.parse_graphml(text, force_multigraph=True)
    except Exception as error:  # networkx lets many kinds through: KeyError, ValueError, AttributeError, its own
        raise DescriptionError(f"networkx cannot read this GraphML: {error}.", where=source) from None
    if graph.is_directed():
        raise DescriptionError(
            "the graph is directed.", where=source, hint="A cable is one undirected edge: edgedefault='undirected'."
        )
    devices = {str(node): _device(str(node), data, source) for node, data in graph.nodes(data=True)}
    edges = sorted(graph.edges(data=True), key=lambda edge: _order(edge[2]))
    cables = tuple(_cable(str(a), str(b), data, source) for a, b, data in edges)
    return FabricGraph(devices, cables, _read_note(graph.graph.get(_NOTE), source), source)


def _device(name: str, data: Mapping[str, object], source: str) -> GraphDevice:
    device = _read(GraphDevice, {**data, "name": name}, f"{source}, node {name}")
    if device.kind not in _KINDS and device.kind != "host":
        raise DescriptionError(
            f'node "{name}" has no kind that is known ("{device.kind}").',
            where=source,
            hint=f"Give each node a `kind`: host, {', '.join(_KINDS)}.",
        )
    return device


def _cable(a: str, b: str, data: Mapping[str, object], source: str) -> GraphCable:
    # An undirected edge comes back with its ends in any order; the written order decides which link is the first.
    if str(data.get("source_device", a)) == b:
        a, b = b, a
    return _read(GraphCable, {**data, "a": a, "b": b}, f"{source}, edge {a} - {b}")


def _read(model: type[M], data: Mapping[str, object], where: str) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise DescriptionError(f"{first_mistake(error)}.", where=where) from None


def _order(data: Mapping[str, object]) -> float:
    try:
        return float(str(data.get("order", 0)))
    except (TypeError, ValueError):
        return 0.0


def _note(fabric: Fabric) -> JsonObject:
    """Return what a graph of devices does not show: host models, sites, parts of the cluster's own."""
    spec = fabric.spec.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    spec.pop("faults", None)
    networks = [fabric.spec.network, *(site.network for site in fabric.spec.sites)]
    used = [network for network in networks if network is not None]
    spec.pop("network", None)
    for site in spec.get("sites", ()):
        site.pop("network", None)
    return spec | {
        "name": fabric.name,
        "routing": used[0].routing if used else "ecmp",
        "host_names": list(fabric.host_names),
        "joins_chips": any(network.topology == "torus" and network.of == "chips" for network in used),
    }


def _read_note(text: Any, source: str) -> JsonObject:
    if text is None:
        return {}
    try:
        note = json.loads(str(text))
    except (ValueError, RecursionError):
        note = None
    if not isinstance(note, dict):
        raise DescriptionError(f'the graph\'s "{_NOTE}" note is not a JSON object.', where=source)
    return note
