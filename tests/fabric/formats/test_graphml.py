"""A fabric written as GraphML: every device is a node, every cable an edge, and graph tools read the file."""

from __future__ import annotations

import networkx as nx
import pytest

from syncline.errors import FabricError, UsageError
from syncline.fabric.formats import graphml, import_fabric
from syncline.fabric.formats.graphml import to_networkx, write_graphml


def test_the_file_holds_every_device_and_cable(any_fabric):
    links, devices = any_fabric.links, any_fabric.devices
    graph = nx.parse_graphml(write_graphml(any_fabric), force_multigraph=True)
    assert [(name, data["level"]) for name, data in graph.nodes(data=True)] == [
        (any_fabric.device_name(number), int(devices.level[number])) for number in range(len(devices))
    ]
    cables = sorted(graph.edges(data=True), key=lambda edge: edge[2]["order"])
    assert [data["rate_Bps"] for *_, data in cables] == links.rate_Bps[::2].tolist()
    ends = [{any_fabric.device_name(int(links.src[link])), any_fabric.device_name(int(links.dst[link]))}
            for link in range(0, len(links), 2)]  # fmt: skip
    assert [{a, b} for a, b, _ in cables] == ends


def test_a_written_graph_is_not_read(tmp_path, fabric_of):
    (tmp_path / "a.graphml").write_text(write_graphml(fabric_of("fat-tree")))
    with pytest.raises(UsageError, match="graphml files are only written"):
        import_fabric(tmp_path / "a.graphml")


def test_parallel_cables_are_parallel_edges(fabric_of):
    fabric = fabric_of("fat-tree")
    graph = to_networkx(fabric)
    assert isinstance(graph, nx.MultiGraph)
    assert graph.number_of_edges() == len(fabric.links) // 2
    leaf, spine = fabric.device("leaf-00"), fabric.device("spine-00")
    parallel = ((fabric.links.src == leaf) & (fabric.links.dst == spine)).sum()
    assert parallel > 1
    assert graph.number_of_edges("leaf-00", "spine-00") == parallel
    assert nx.is_connected(graph)


def test_fabrics_too_large_for_a_graph_file_are_refused(fabric_of, monkeypatch):
    monkeypatch.setattr(graphml, "MAX_CABLES", 10)
    with pytest.raises(FabricError, match="a GraphML file holds 10 here"):
        write_graphml(fabric_of("fat-tree"))
