"""Routing by load on a dragonfly: what leaves switches and groups by hand, and that it is never slower."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.fabric import Fabric, build
from syncline.fabric.fabric import Tier
from syncline.fabric.spec import ClusterSpec
from syncline.questions.simulate import simulate
from syncline.sim.flow.detours import dragonfly_routing
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions, SentTogether
from syncline.sim.reach import fabric_reach

CABLE_BPS = 25e9


def dragonfly(hosts: int, *, gpus: int = 4, **network: Any) -> Fabric:
    """Hosts of `gpus` ports, by default a switch each, four switches a group."""
    host = {"model": "dgx-h100", "gpus": gpus, "nics": gpus}
    shape = {"endpoints_per_switch": gpus, "switches_per_group": 4} | network
    data = {"hosts": hosts, "host": host, "network": {"topology": "dragonfly", "link": "HDR", **shape}}
    return build(ClusterSpec.model_validate(data))


def cables(fabric: Fabric, level: str, pattern: str, hosts: int | None = None) -> float:
    """Return how many cables' worth leaves the slowest cell when all send to the next one, or to all."""
    reach = fabric_reach(fabric)
    (cells,) = (each for each in reach.cells if each.name == level)
    used = None if hosts is None else np.arange(hosts)
    found = (reach.ring_Bps if pattern == "ring" else reach.pairs_Bps)(cells, used)
    return float(found[np.unique(cells.of_host[: hosts or fabric.num_hosts])].min()) / CABLE_BPS


@pytest.mark.parametrize(
    ("switches", "hosts", "by_hand"),
    [
        (4, 4, 1 + 2 / 2),  # the cable to the next, and half of the two others: their second half is others' detours
        (8, 8, 1 + 6 / 2),
        (8, 2, 7),  # nobody else is there: all cables
        (8, 3, 1 + 5 + 1 / 2),  # five idle switches whole, the third one in use half
    ],
)
def test_a_ring_over_switches_has_its_cable_and_its_part_of_the_others(
    switches: int, hosts: int, by_hand: float
) -> None:
    fabric = dragonfly(switches, switches_per_group=switches, groups=1)
    assert cables(fabric, "switch", "ring", hosts) == pytest.approx(by_hand)
    minimal = dragonfly(switches, switches_per_group=switches, groups=1, routing="minimal")
    assert cables(minimal, "switch", "ring", hosts) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("groups", "more", "ring", "pairs"),
    [
        (2, {"global_ports_per_switch": 1}, 4.0, 4.0),  # no third group: the four cables of the pair
        # One cable a pair: it, and half of the seven others. Local cables are trebled so as not to be in the way.
        (9, {"global_ports_per_switch": 2, "local_cables": 3}, 1 + 7 / 2, 8.0),
        # A detour enters its third group at one switch and leaves it at the next one, two of them at every switch; with
        # a part d each, that cable carries 2 d, and d / 2 from the group's own ports and d / 2 to them: d = 1/3.
        (9, {"global_ports_per_switch": 2}, 1 + 7 / 3, None),
    ],
)
def test_a_ring_over_groups_has_its_cables_and_half_of_the_others(
    groups: int, more: dict[str, Any], ring: float, pairs: float | None
) -> None:
    fabric = dragonfly(4 * groups, groups=groups, **more)
    assert cables(fabric, "group", "ring") == pytest.approx(ring)
    if pairs is not None:
        assert cables(fabric, "group", "pairs") == pytest.approx(pairs), "all pairs: no detours, every cable"
    minimal = dragonfly(4 * groups, groups=groups, routing="minimal", **more)
    assert cables(minimal, "group", "ring") == pytest.approx(4.0 if groups == 2 else 1.0)


@pytest.mark.parametrize("routing", ["ugal", "minimal", "valiant"])
def test_flows_get_what_the_closed_form_says(routing: str) -> None:
    """All ports of a switch send to the next switch: the slowest flow is the ring's part of it."""
    fabric = dragonfly(4, groups=1, routing=routing)
    network = FlowNetwork(fabric, NetworkOptions(transport="ideal"))
    hosts = np.repeat(np.arange(4), 4)
    src = np.array([fabric.gpu(int(h), k % 4) for k, h in enumerate(hosts)])
    dst = np.array([fabric.gpu(int(h + 1) % 4, k % 4) for k, h in enumerate(hosts)])
    wires = network.wire(src, dst, np.zeros(len(src), np.int64))
    load = np.zeros(len(fabric.links))
    np.add.at(load, wires.counted.link, wires.counted.shares())
    rate_Bps = 4 * CABLE_BPS / load[fabric.links.tier == Tier.GROUP_LOCAL].max()
    assert rate_Bps / CABLE_BPS == pytest.approx(cables(fabric, "switch", "ring"))
    assert np.allclose(np.bincount(wires.counted.row_of_crossing()), np.bincount(wires.counted.row_of_crossing())[0])


def test_detours_are_taken_only_where_the_shortest_way_is_full() -> None:
    fabric = dragonfly(4, groups=1)
    network = FlowNetwork(fabric, NetworkOptions(transport="ideal"))
    src, dst = (np.array([fabric.gpu(host, 0)]) for host in (0, 1))
    alone = network.wire(src, dst, np.zeros(1, np.int64))
    straight = FlowNetwork(fabric, NetworkOptions("ecmp")).wire(src, dst, np.zeros(1, np.int64))
    assert len(alone.counted.link) == len(straight.paths.link)
    four = np.array([fabric.gpu(0, k) for k in range(4)]), np.array([fabric.gpu(1, k) for k in range(4)])
    apart = network.wire(*four, np.zeros(4, np.int64), sent=SentTogether(np.ones(4), np.arange(4)))
    together = network.wire(*four, np.zeros(4, np.int64))
    assert len(apart.counted.link) == 4 * len(alone.counted.link) < len(together.counted.link)
    assert together.latency_s.tolist() == apart.latency_s.tolist(), "a short message meets no queue"


@pytest.mark.parametrize("operation", ["allreduce", "alltoall", "allgather", "broadcast"])
@pytest.mark.parametrize("hosts", [4, 8])
def test_routing_by_load_is_never_slower_than_shortest_ways(operation: str, hosts: int) -> None:
    """With a third cable at a quarter of its rate and one gone: that is where equal shares would wait."""
    faults = [{"link": "group-00/switch-00 <-> group-00/switch-01", "which": 0, "rate": "50Gbps"},
              {"link": "group-00/switch-01 <-> group-00/switch-02", "which": 0}]  # fmt: skip
    data = {"hosts": hosts, "host": {"model": "dgx-h100", "gpus": 4, "nics": 4}, "faults": faults}
    shape = {"topology": "dragonfly", "link": "HDR", "endpoints_per_switch": 4, "switches_per_group": 4,
             "groups": hosts // 4, "global_ports_per_switch": 1}  # fmt: skip
    times = []
    for routing in ("ugal", "spray", "valiant"):
        fabric = build(ClusterSpec.model_validate({**data, "network": shape | {"routing": routing}}))
        found = simulate(fabric, operation, "64MiB")
        assert found.time_s >= (found.rows[0].bound_s or 0.0)
        times.append(found.time_s)
    assert times[0] <= 1.001 * min(times)


def test_packets_take_the_detours_that_flows_do() -> None:
    """Two hosts, six rails between two switches and eighteen idle ones: third switches carry most of it.

    Packets took shortest ways inside a group: 3.3 and 5.6 times the flow level's time.
    """
    fabric = dragonfly(2, gpus=8, endpoints_per_switch=10, switches_per_group=20)
    for operation in ("allreduce", "alltoall"):
        row = simulate(fabric, operation, "1MiB", level="packet").rows[0]
        assert row.difference is not None and row.flow_time_s is not None
        # Rounds that wait for each other are how packets are sent, not which way they take.
        same_rounds_s = row.time_s - row.difference["rounds"].s
        assert same_rounds_s == pytest.approx(row.flow_time_s, rel=0.15)


def test_what_a_file_may_say() -> None:
    assert dragonfly_routing(dragonfly(4)) == "ugal"
    said = {"adaptive": "ugal", "ecmp": "minimal", "minimal": "minimal", "valiant": "valiant"}
    assert {name: dragonfly_routing(dragonfly(4, routing=name)) for name in said} == said
    for name, flows in {"adaptive": "ugal", "minimal": "ecmp", "valiant": "valiant", "spray": "spray"}.items():
        assert FlowNetwork(dragonfly(4, routing=name)).options.routing == flows
    tree = {"hosts": 4, "host": "dgx-h100", "network": {"topology": "leaf-spine", "link": "NDR", "routing": "ugal"}}
    fabric = build(ClusterSpec.model_validate(tree))
    assert dragonfly_routing(fabric) is None and FlowNetwork(fabric).options.routing == "adaptive"
