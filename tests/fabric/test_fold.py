"""Folding: the partition is equitable, and a maximum flow on its cells is the maximum flow on the devices."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.fabric import ClusterSpec, DeviceKind, Fabric, Tier, build, load
from syncline.fabric.bisection import _flow
from syncline.fabric.fold import CellMap, fold

Any_ = st.SearchStrategy[dict[str, Any]]


def make(description: dict[str, Any]) -> Fabric:
    return build(ClusterSpec.model_validate(description))


@st.composite
def random_graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Return hosts and switches joined by random cables of random rates: nothing regular about it."""
    num_switches, num_hosts = draw(st.integers(1, 6)), draw(st.integers(2, 6))
    rates = st.sampled_from(("100Gbps", "200Gbps", "400Gbps"))
    cables: list[dict[str, Any]] = [
        {"a": f"host-{h:02d}/nic-0", "b": f"s{draw(st.integers(0, num_switches - 1))}", "rate": draw(rates)}
        for h in range(num_hosts)
    ]
    cables += [
        {"a": f"s{i}", "b": f"s{draw(st.integers(0, i - 1))}", "rate": draw(rates)} for i in range(1, num_switches)
    ]
    for _ in range(draw(st.integers(0, 6)) if num_switches > 1 else 0):
        a, b = draw(st.permutations(range(num_switches)))[:2]
        cables.append({"a": f"s{a}", "b": f"s{b}", "rate": draw(rates), "count": draw(st.integers(1, 2))})
    network = {"topology": "explicit", "switches": [f"s{i}" for i in range(num_switches)], "cables": cables}
    return {"hosts": num_hosts, "host": {"model": "dgx-h100", "gpus": 1, "nics": 1}, "network": network}


def slow_flow(fabric: Fabric, half: np.ndarray) -> float:
    """Return the maximum flow between two halves of the NICs, device by device."""
    graph: nx.DiGraph = nx.DiGraph()
    links = fabric.links
    for i in np.flatnonzero(links.up & (links.tier >= Tier.ACCESS)).tolist():
        a, b = int(links.src[i]), int(links.dst[i])
        before = graph.get_edge_data(a, b, {"capacity": 0})["capacity"]
        graph.add_edge(a, b, capacity=before + round(links.rate_Bps[i]))
    for nic, first in zip(fabric.nics.tolist(), half.tolist(), strict=True):
        graph.add_edge(*(("source", nic) if first else (nic, "sink")))
    return float(nx.maximum_flow_value(graph, "source", "sink"))


@given(random_graphs(), st.data())
def test_the_flow_on_cells_is_the_flow_on_devices(description: dict[str, Any], data: st.DataObject) -> None:
    fabric = make(description)
    half = np.array(data.draw(st.lists(st.booleans(), min_size=fabric.num_hosts, max_size=fabric.num_hosts)))
    if half.all() or not half.any():
        half[0] = not half[0]
    assert _flow(fabric, fabric.nics, half) == slow_flow(fabric, half)


@given(data=st.data())
@settings(max_examples=40)
def test_regular_fabrics_flow_the_same_folded(any_cluster: Any_, data: st.DataObject) -> None:
    fabric = make(data.draw(any_cluster))
    if not (fabric.links.tier == Tier.ACCESS).any():
        return
    half = fabric.devices.host[fabric.nics] < fabric.num_hosts // 2
    assert _flow(fabric, fabric.nics, half) == slow_flow(fabric, half)


def check_equitable(fabric: Fabric, cells: CellMap, mask: np.ndarray) -> None:
    """Two devices of one cell have the same links, by rate and tier, to and from every cell."""
    links, cell = fabric.links, cells.cell
    views: dict[int, Counter[tuple[Any, ...]]] = {d: Counter() for d in np.flatnonzero(cell >= 0).tolist()}
    for i in np.flatnonzero(mask & (cell[links.src] >= 0) & (cell[links.dst] >= 0)).tolist():
        a, b, kind = int(links.src[i]), int(links.dst[i]), (float(links.rate_Bps[i]), int(links.tier[i]))
        views[a][("to", int(cell[b]), *kind)] += 1
        views[b][("from", int(cell[a]), *kind)] += 1
    seen: dict[int, Counter[tuple[Any, ...]]] = {}
    for device, view in views.items():
        assert seen.setdefault(int(cell[device]), view) == view


@given(st.data(), st.booleans())
@settings(max_examples=60)
def test_the_partition_is_equitable_and_keeps_colours_apart(any_cluster: Any_, data: st.DataObject, odd: bool) -> None:
    fabric = make(data.draw(random_graphs() if odd else any_cluster))
    colour = np.array(
        data.draw(st.lists(st.integers(-1, 2), min_size=len(fabric.devices), max_size=len(fabric.devices)))
    )
    mask = fabric.links.up & (fabric.links.tier >= Tier.SCALE_UP)
    cells = fold(fabric, colour.astype(np.int64), mask)
    check_equitable(fabric, cells, mask)
    assert ((cells.cell < 0) == (colour < 0)).all()
    for number in range(len(cells.size)):
        members = cells.cell == number
        assert members.sum() == cells.size[number] > 0
        assert len(np.unique(colour[members])) == 1
    inside = mask & (colour[fabric.links.src] >= 0) & (colour[fabric.links.dst] >= 0)
    assert cells.num_links.sum() == inside.sum()
    assert np.isclose(cells.rate_Bps.sum(), fabric.links.rate_Bps[inside].sum())


def test_a_large_regular_fabric_folds_to_a_few_cells() -> None:
    fabric = load("dgx-h100-superpod")
    colour = fabric.devices.kind.astype(np.int64)
    cells = fold(fabric, colour, fabric.links.up)
    check_equitable(fabric, cells, fabric.links.up)
    assert len(cells.size) < 40 < len(fabric.devices)
    assert cells.size[cells.cell[fabric.gpus[0]]] > 100
    assert fabric.devices.kind[fabric.gpus[0]] == DeviceKind.GPU
