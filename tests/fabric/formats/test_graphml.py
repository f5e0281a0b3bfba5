"""A fabric written as GraphML builds the same fabric again, to the last bit."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import DescriptionError, FabricError
from syncline.fabric import ClusterSpec, Fabric, build
from syncline.fabric.formats import graphml, import_fabric
from syncline.fabric.formats.graph_cluster import graph_cluster
from syncline.fabric.formats.graphml import parse_graph, to_networkx, write_graphml


def assert_equal(a: Fabric, b: Fabric) -> None:
    names = [[f.device_name(i) for i in range(len(f.devices))] for f in (a, b)]
    assert names[0] == names[1]
    for column in ("kind", "host", "local", "level", "group", "rail", "site"):
        assert np.array_equal(getattr(a.devices, column), getattr(b.devices, column)), column
    for column in ("src", "dst", "rate_Bps", "latency_s", "tier", "length_m", "num_cables", "up"):
        assert np.array_equal(getattr(a.links, column), getattr(b.links, column)), column
    assert [[f.parts[i] for i in f.devices.part] for f in (a,)] == [[b.parts[i] for i in b.devices.part]]
    assert [a.media[i] for i in a.links.medium] == [b.media[i] for i in b.links.medium]
    assert [a.cables[i] if i >= 0 else "" for i in a.links.cable] == [
        b.cables[i] if i >= 0 else "" for i in b.links.cable
    ]


def again(fabric: Fabric) -> Fabric:
    return build(graph_cluster(parse_graph(write_graphml(fabric))))


def test_every_topology_comes_back_equal(any_fabric):
    built = again(any_fabric)
    assert_equal(any_fabric, built)
    assert any_fabric.spec.network is None or built.spec.network is None or built.spec.network.topology == "explicit"


@settings(max_examples=15)
@given(
    hosts=st.integers(1, 12),
    nics=st.sampled_from([1, 2, 4, 8]),
    topology=st.sampled_from(["fat-tree", "leaf-spine", "rail-optimized", "rail-only"]),
    link=st.sampled_from(["NDR", "HDR", "400GbE"]),
    slow=st.integers(0, 7),
)
def test_random_fabrics_come_back_equal(hosts, nics, topology, link, slow):
    host = {"model": "dgx-h100", "nics": nics}
    faults = [{"device": "host-00/nic-0", "rate": f"{slow}Gbps"}] if slow else []
    spec = {"hosts": hosts, "host": host, "network": f"{topology} {link}", "faults": faults}
    fabric = build(ClusterSpec.model_validate(spec))
    assert_equal(fabric, again(fabric))


def test_a_description_survives_being_saved_in_between(fabric_of):
    spec = graph_cluster(parse_graph(write_graphml(fabric_of("faults"))))
    data = spec.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    assert_equal(fabric_of("faults"), build(ClusterSpec.model_validate(data)))


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


def test_an_edited_graph_builds_the_edited_fabric(fabric_of):
    graph = to_networkx(fabric_of("fat-tree"))
    key = next(iter(graph["leaf-00"]["spine-00"]))
    graph.remove_edge("leaf-00", "spine-00", key)
    text = "\n".join(nx.generate_graphml(graph))
    assert len(build(graph_cluster(parse_graph(text))).links) == len(fabric_of("fat-tree").links) - 2


def test_a_graph_that_contradicts_its_hosts_is_refused(fabric_of):
    graph = to_networkx(fabric_of("fat-tree"))
    graph.remove_node("host-00/gpu-0")
    with pytest.raises(DescriptionError, match='a device "host-00/gpu-0" is missing from the graph'):
        graph_cluster(parse_graph("\n".join(nx.generate_graphml(graph))))
    graph = to_networkx(fabric_of("fat-tree"))
    graph.remove_edge("host-00/gpu-0", "host-00/nvswitch-0")
    with pytest.raises(DescriptionError, match="edges between host-00/gpu-0 and host-00/nvswitch-0 is another"):
        graph_cluster(parse_graph("\n".join(nx.generate_graphml(graph))))


def foreign() -> str:
    graph: nx.MultiGraph = nx.MultiGraph()
    graph.add_nodes_from(["h1", "h2"], kind="host")
    graph.add_nodes_from(["leaf", "top"], kind="switch")
    for host in ("h1", "h2"):
        for _ in range(2):
            graph.add_edge(host, "leaf", rate_Bps=50e9, latency_s=1e-6)
    graph.add_edge("leaf", "top", rate_Bps=100e9)
    return "\n".join(nx.generate_graphml(graph))


def test_a_plain_graph_of_hosts_and_switches_is_read_with_a_host_model(tmp_path):
    (tmp_path / "plain.graphml").write_text(foreign())
    fabric = build(import_fabric(tmp_path / "plain.graphml", host="dgx-h100"))
    assert (fabric.num_gpus, len(fabric.switches)) == (16, 2)
    assert fabric.devices.level[fabric.device("top")] == 2
    assert len(fabric.out_links(fabric.device("leaf"))) == 5
    with pytest.raises(DescriptionError, match="does not say what its hosts are"):
        import_fabric(tmp_path / "plain.graphml")


HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
KEYS = (
    '<key id="k" for="node" attr.name="kind" attr.type="string"/>'
    '<key id="r" for="edge" attr.name="rate_Bps" attr.type="string"/>'
)


def edge(rate):
    nodes = "".join(f'<node id="{n}"><data key="k">switch</data></node>' for n in "ab")
    data = f'<data key="r">{rate}</data>' if rate else ""
    cable = f'<edge source="a" target="b">{data}</edge>'
    return f'{HEAD}{KEYS}<graph edgedefault="undirected">{nodes}{cable}</graph></graphml>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<!DOCTYPE x [<!ENTITY a "b">]><graphml>&a;</graphml>', "the XML has a DOCTYPE"),
        (HEAD, "networkx cannot read this GraphML: no element found"),
        ("\x89PNG\r\n", "networkx cannot read this GraphML"),
        ("<system version='1'/>", "networkx cannot read this GraphML"),
        (f"{HEAD}</graphml>", "networkx cannot read this GraphML"),
        (f'{HEAD}<graph edgedefault="directed"/></graphml>', "the graph is directed."),
        (
            f'{HEAD}<graph edgedefault="undirected"><node id="a"/></graph></graphml>',
            'node "a" has no kind that is known',
        ),
        (edge(None), '"rate_Bps" is missing.'),
        (edge("nan"), "rate_Bps: must be a finite number"),
        (edge("-5"), "rate_Bps: must be at least 0"),
        (edge("fast"), "rate_Bps: must be a number"),
        (edge("1e300"), "rate_Bps: must be at most"),
        (edge("1").replace('attr.type="string"', 'attr.type="blob"'), "networkx cannot read this GraphML"),
        (edge("1").replace('key="r"', 'key="zz"'), "networkx cannot read this GraphML"),
    ],
)
def test_hostile_and_broken_graphs_are_refused_by_name(text, message):
    with pytest.raises(DescriptionError) as caught:
        parse_graph(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "note",
    [
        "[1]",
        "{",
        '{"host_names": ["h"], "hosts": 3}',
        '{"host_names": ["h"]}',
        '{"host_names": [7], "hosts": [{"count": 1, "host": {"model": 5}}]}',
    ],
)
def test_a_damaged_note_is_one_clear_error(note, fabric_of):
    graph = to_networkx(fabric_of("single host"))
    graph.graph["syncline"] = note
    with pytest.raises(DescriptionError):
        graph_cluster(parse_graph("\n".join(nx.generate_graphml(graph))))


def test_fabrics_too_large_for_a_graph_file_are_refused(fabric_of, monkeypatch):
    monkeypatch.setattr(graphml, "MAX_CABLES", 10)
    with pytest.raises(FabricError, match="a GraphML file holds 10 here"):
        write_graphml(fabric_of("fat-tree"))
