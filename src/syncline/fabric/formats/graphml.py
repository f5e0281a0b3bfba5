"""GraphML: every device and cable of a fabric as a multigraph, for graph tools.

Nodes bear the columns of `Devices`, edges those of `Links`, one edge per cable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.errors import FabricError
from syncline.fabric.fabric import DeviceKind, Fabric, Tier

if TYPE_CHECKING:
    import networkx as nx

MAX_CABLES = 1_000_000


def to_networkx(fabric: Fabric) -> nx.MultiGraph[str]:
    """Return the fabric as a networkx multigraph; parallel cables are parallel edges, keyed by cable number."""
    import networkx as nx

    if len(fabric.links) // 2 > MAX_CABLES:
        raise FabricError(
            f"{fabric.name} has {len(fabric.links) // 2:,} cables; a GraphML file holds {MAX_CABLES:,} here.",
            hint="Save the description instead: it builds the same fabric.",
        )
    graph: nx.MultiGraph[str] = nx.MultiGraph()
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
