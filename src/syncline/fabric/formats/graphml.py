"""GraphML: every device and cable of a fabric as a multigraph, for graph tools, and back as an explicit cluster.

Nodes bear the columns of `Devices`, edges those of `Links` (one edge per cable), and the graph a note of the hosts'
models, so that a file written here builds an equal fabric again. A file from elsewhere needs `kind` on its nodes
("host" or "switch"), `rate_Bps` on its edges, and a host model to be read with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline.describe.plain import JsonObject
from syncline.describe.xml import refuse_doctype
from syncline.errors import DescriptionError, FabricError
from syncline.fabric.fabric import DeviceKind, Fabric, Tier

if TYPE_CHECKING:
    import networkx as nx

MAX_BYTES = 256 * 2**20
MAX_CABLES = 1_000_000
_NOTE = "syncline"
_KINDS = {kind.name.lower(): kind for kind in DeviceKind}


@dataclass(frozen=True)
class GraphDevice:
    """One vertex of a read graph."""

    name: str
    kind: str
    host: str
    part: str = ""
    level: int = 0
    group: int = 0
    rail: int = -1
    site: int = 0


@dataclass(frozen=True)
class GraphCable:
    """One edge of a read graph, in the order it was written."""

    a: str
    b: str
    rate_Bps: float
    latency_s: float
    tier: str
    medium: str
    cable: str
    length_m: float
    num_cables: int
    up: bool


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
    edges = [(str(a), str(b), data) for a, b, data in graph.edges(data=True)]
    edges.sort(key=lambda edge: _number(edge[2], "order", 0.0, source))
    cables = tuple(_cable(a, b, data, source) for a, b, data in edges)
    return FabricGraph(devices, cables, _read_note(graph.graph.get(_NOTE), source), source)


def _device(name: str, data: Mapping[str, Any], source: str) -> GraphDevice:
    kind = str(data.get("kind", "")).lower()
    if kind not in _KINDS and kind != "host":
        raise DescriptionError(
            f'node "{name}" has no kind that is known ("{kind}").',
            where=source,
            hint=f"Give each node a `kind`: host, {', '.join(_KINDS)}.",
        )
    numbers = {key: int(_number(data, key, default, source)) for key, default in _NODE_NUMBERS.items()}
    return GraphDevice(name, kind, str(data.get("host", "")), str(data.get("part", "")), **numbers)


def _cable(a: str, b: str, data: Mapping[str, Any], source: str) -> GraphCable:
    where = f"{source}, edge {a} - {b}"
    if "rate_Bps" not in data:
        raise DescriptionError("an edge has no rate_Bps.", where=where, hint="Give each edge its bytes per second.")
    # An undirected edge comes back with its ends in any order; the written order decides which link is the first.
    if str(data.get("source_device", a)) == b:
        a, b = b, a
    return GraphCable(
        a,
        b,
        rate_Bps=_number(data, "rate_Bps", 0.0, where),
        latency_s=_number(data, "latency_s", 1e-6, where),
        tier=str(data.get("tier", "")),
        medium=str(data.get("medium", "")),
        cable=str(data.get("cable", "")),
        length_m=_number(data, "length_m", 0.0, where),
        num_cables=int(_number(data, "num_cables", 1, where)),
        up=_true(data.get("up", True)),
    )


def _number(data: Mapping[str, Any], key: str, default: float, where: str) -> float:
    value = data.get(key, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or abs(number) > 1e18 or (number < 0 and key not in _NODE_NUMBERS):
        raise DescriptionError(f"{key} is {value!r}, not a number that fits.", where=where)
    return number


def _true(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() not in ("false", "0", "")


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


_NODE_NUMBERS = {"level": 0, "group": 0, "rail": -1, "site": 0}
