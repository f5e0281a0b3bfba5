"""Rows that once contradicted the fabric, a bound or another verb: each as the command that showed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncline.errors import BelowBoundError, DescriptionError, SimulationError
from syncline.fabric import Fabric, build, load
from syncline.fabric.spec import ClusterSpec
from syncline.placing.allocation import Allocation
from syncline.program import place
from syncline.questions.simulate import simulate
from syncline.schedule import Kind
from syncline.sharing.jobs_file import StatedStep
from syncline.sharing.pattern import measured_pattern
from syncline.sim.bound import bound_of
from syncline.sim.candidates import find
from syncline.sim.flow.flow import without
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.nccl.describe import from_fabric
from syncline.sim.nccl.predict import NcclPrediction, predict
from syncline.sim.reach import fabric_reach
from syncline.sim.slow_port import slow_cables, slow_ports
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.executed.execute_trace import execute_trace
from syncline.sim.step.executed.footprint import Rails
from syncline.sim.step.executed.gap import causes
from syncline.sim.step.floor import check_floor
from syncline.sim.step.replay import replay
from syncline.sim.step.step import step
from syncline.sim.sweep import Contest
from syncline.sim.transport import transport
from syncline.workload.graph import GraphBuilder, Op
from syncline.workload.read_job import load_job

LLAMA = {"model": "llama3-8b", "parallel": {"tp": 1, "zero": "1"}, "batch": {"global": 128, "sequence": 4096}}


def cluster(over: str = "1:1", hosts: int = 16, link: str = "100GbE", **more: Any) -> Fabric:
    network = {"topology": "leaf-spine", "link": link, "oversubscription": over, "hosts_per_leaf": 4}
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": "dgx-h100", "network": network, **more}))


def sites(rate: str = "10Gbps", latency: str = "80ms") -> Fabric:
    site = {"hosts": 16, "host": "dgx-h100", "network": "rail-optimized NDR"}
    data = {"sites": [{"name": "a", **site}, {"name": "b", **site}], "wan": {"rate": rate, "latency": latency}}
    return build(ClusterSpec.model_validate(data))


def test_a_step_feels_thin_uplinks() -> None:
    """Once 540.4 ms for 1:1, 8:1 and 32:1, although a rack at 32:1 has one uplink for 24 GB."""
    job = load_job(LLAMA)
    times = {over: step(cluster(over), job).step_time_s for over in ("1:1", "8:1", "32:1")}
    assert times["1:1"] == pytest.approx(0.579, rel=0.05)
    assert times["1:1"] < times["8:1"] < times["32:1"]
    fabric = cluster("32:1")
    # ZeRO 1: fp32 gradients are scattered and bf16 parameters gathered, both over one 100 Gb/s uplink a rack of 4.
    sizes = {Kind.REDUCE_SCATTER: 4 * 8.03e9, Kind.ALL_GATHER: 2 * 8.03e9}
    floor = sum(bound_of(fabric, kind, fabric.gpus).at(size) for kind, size in sizes.items())
    assert floor == pytest.approx(2.88, rel=0.02)
    assert times["32:1"] > floor


def test_lines_between_sites_are_not_free_without_replicas() -> None:
    """Once 4.319 s for a pipeline that sends 240 GB over 1.25 GB/s."""
    whole = {"model": "llama3-8b", "batch": {"global": 512, "sequence": 8192, "micro": 1}}
    split: dict[str, Any] = {"tp": 32, "pp": 8, "dp": 1}
    packed = step(sites(), load_job({**whole, "parallel": split}))
    staged = step(sites(), load_job({**whole, "parallel": {**split, "placement": "stages"}}))
    assert packed.step_time_s == pytest.approx(staged.step_time_s)
    assert packed.step_time_s > 25


def test_a_rack_that_lost_an_uplink_is_slower() -> None:
    job = load_job(LLAMA)
    lost = [{"link": "leaf-00 <-> spine-00", "which": cable} for cable in range(2)]
    whole, hurt = (step(cluster("8:1", faults=faults), job).step_time_s for faults in ([], lost))
    assert np.isfinite(hurt) and hurt > 1.2 * whole


def test_a_slow_port_paces_the_step() -> None:
    job = load_job(LLAMA)
    slow = [{"link": "host-03/nic-0 <-> leaf-00", "rate": "10Gbps"}]
    assert step(cluster(faults=slow), job).step_time_s > 2 * step(cluster(), job).step_time_s


GIB = 2**30


def rails(hosts: int = 64, **more: Any) -> Fabric:
    data = {"hosts": hosts, "host": "dgx-h100", "network": "rail-optimized NDR", **more}
    return build(ClusterSpec.model_validate(data))


def nccl(fabric: Fabric, op: str = "all_reduce", hosts: int = 0) -> NcclPrediction:
    return predict(from_fabric(fabric, num_hosts=hosts), op, [float(GIB)])


def test_nccl_reads_failed_leaves_and_slow_ports() -> None:
    """Once 7.804 ms in all three cases, although one NIC a host needs 42 ms for its part of a gibibyte."""
    lost = rails(faults=[{"device": f"leaf-{i:02d}"} for i in range(16) if i not in (0, 8)])
    slow = rails(faults=[{"link": "host-00/nic-0 <-> leaf-00", "rate": "10Gbps"}])
    assert 4000 < float(nccl(rails()).time_us[0]) < 10_000
    assert float(nccl(lost).time_us[0]) == pytest.approx(48_700, rel=0.12), "the flow level's, and hops"
    assert float(nccl(slow).time_us[0]) == pytest.approx(226_800, rel=0.1), "near the flow level's"
    assert any("paces all rings" in text for text in nccl(slow).unverified)


@pytest.mark.parametrize("rate", ["10Gbps", "300Gbps"])
def test_a_port_that_costs_more_than_it_gives_is_named(rate: str) -> None:
    """NCCL stripes evenly: 8 ports at 10 Gb/s carry 80 Gb/s, 7 at 400 (one carrying two rings) 1,600."""
    slow = rails(4, faults=[{"link": "host-02/nic-3 <-> leaf-03", "rate": rate}])
    found = slow_ports(slow)
    told = [text for text in nccl(slow).unverified if "costs more than leaving it out" in text]
    if rate == "300Gbps":  # 8 x 300 is more than 1,600
        assert found is None and not told
        return
    assert found is not None and found.names == ("host-02/nic-3",) and len(told) == 1
    assert (found.now_Bps * 8, found.without_Bps * 8) == pytest.approx((80e9, 1.6e12))
    assert "host-02/nic-3 at 10 Gb/s" in told[0] and "sends 1.6 Tb/s, not 80 Gb/s" in told[0]
    left_out = without(slow, set(found.links))
    assert slow_ports(left_out) is None and nccl(left_out).time_us[0] < nccl(slow).time_us[0]


def dragonfly(faults: list[dict[str, Any]], **more: str) -> Fabric:
    host = {"model": "dgx-h100", "gpus": 8, "nics": 8}
    data = {"hosts": 2, "host": host, "network": {"topology": "dragonfly", "link": "HDR", **more}, "faults": faults}
    return build(ClusterSpec.model_validate(data))


def test_the_second_host_of_a_dragonfly_is_a_cell_although_it_begins_on_the_firsts_switch() -> None:
    """Switches have ten ports for hosts: 8 and 2 are on the first. Once no level was seen, and HSDP was 93 v 132 ms."""
    reach = fabric_reach(dragonfly([]))
    assert [cells.name for cells in reach.cells] == ["host", "switch"] and reach.outer[0].of_host.tolist() == [0, 1]
    job = load_job({"model": "llama3.2-1b", "parallel": {"tp": 1, "dp": 16, "zero": "fsdp", "shard": 8},
                    "batch": {"global": 32, "sequence": 2048}})  # fmt: skip
    slow = dragonfly([{"link": "group-00/switch-01 <-> host-01/nic-4", "which": 0, "rate": "50Gbps"}])
    whole, hurt = step(dragonfly([]), job), step(slow, job)
    assert execute(dragonfly([]), whole).step_time_s == pytest.approx(whole.step_time_s, rel=0.1)
    assert execute(dragonfly([]), whole).step_time_s < execute(slow, hurt).step_time_s


@pytest.mark.parametrize(("routing", "least_ms", "most_ms"), [("ugal", 1.4, 1.7), ("minimal", 3.5, 10.0)])
def test_every_verb_routes_a_dragonfly_as_its_file_says(routing: str, least_ms: float, most_ms: float) -> None:
    """256 MiB over two hosts, six of eight rails between two switches.

    By hand: by load a host sends the buffer over its eight ports, 1.41 ms at 95 % of 25 GB/s. On shortest ways six
    eighths of it go over one cable, 8.5 ms; shares that suit the rails need a third of it there, 3.8. Once the NCCL
    model and `step` had the first and `simulate` the second, whatever the file said.
    """
    fabric = dragonfly([], routing=routing)
    times = [simulate(fabric, "allreduce", "256MiB", algorithm=name).time_s for name in ("auto", "nccl")]
    assert all(least_ms < 1e3 * time_s < most_ms for time_s in times)
    if routing == "ugal":
        assert times[0] == simulate(dragonfly([]), "allreduce", "256MiB").time_s, "the default of a dragonfly"
    job = load_job({"model": "llama3.2-1b", "parallel": {"tp": 1, "zero": "1"},
                    "batch": {"global": 32, "sequence": 2048}})  # fmt: skip
    found = step(fabric, job)
    assert execute(fabric, found).step_time_s == pytest.approx(found.step_time_s, rel=0.1)
    assert (found.step_time_s > 0.15) == (routing == "minimal"), "rings in step: 8.5 ms for 256 MiB, not 1.4"


def uplinks(**more: Any) -> Fabric:
    """Four hosts of four GPUs, a leaf each; the last leaf has one of its four uplinks at 50 Gb/s."""
    network = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 1, **more}
    faults = [{"link": "leaf-03 <-> spine-00", "which": 1, "rate": "50Gbps"}]
    host = {"model": "dgx-h100", "gpus": 4, "nics": 4}
    return build(ClusterSpec.model_validate({"hosts": 4, "host": host, "network": network, "faults": faults}))


def test_an_uplink_that_costs_more_than_it_gives_is_named_by_every_verb() -> None:
    """Four uplinks in equal parts carry 4 x 50 Gb/s, three of them alone 3 x 400: once no answer said so."""
    fabric = uplinks()
    found = slow_cables(fabric)
    assert found is not None and found.names == ("leaf-03 <-> spine-00 (which: 1)",)
    assert (found.now_Bps * 8, found.without_Bps * 8) == pytest.approx((200e9, 1.2e12))
    job = load_job({"model": "llama3.2-1b", "batch": {"global": 32, "sequence": 2048}})
    sprayed = simulate(fabric, "allgather", "1MiB", routing="spray", algorithm="best")
    told = (sprayed.assumed, nccl(fabric).unverified, step(fabric, job).warnings)
    assert [sum("leaf-03 <-> spine-00 (which: 1) at 50 Gb/s costs more than leaving it out" in text for text in each)
            for each in told] == [1, 1, 1]  # fmt: skip
    shut = without(fabric, set(found.links))
    assert slow_cables(shut) is None and step(shut, job).step_time_s < step(fabric, job).step_time_s


def test_a_leaf_with_one_host_limits_it_too() -> None:
    """At 4:1 one uplink carries what four ports send. Once it was no level: step 50 ms, executed 123."""
    network = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 1, "oversubscription": "4:1"}
    host = {"model": "dgx-h100", "gpus": 4, "nics": 4}
    fabric = build(ClusterSpec.model_validate({"hosts": 4, "host": host, "network": network}))
    batch = {"global": 16, "sequence": 2048}
    job = load_job({"model": "llama3.2-1b", "parallel": {"tp": 1, "zero": "1"}, "batch": batch})
    found = step(fabric, job)
    assert execute(fabric, found).step_time_s == pytest.approx(found.step_time_s, rel=0.1)
    # Three quarters of it twice through an uplink of 50 GB/s; once 3.4 ms of 256 MiB.
    least_us = 2 * 3 / 4 * GIB / 50e9 * 1e6
    assert float(nccl(fabric).time_us[0]) > least_us
    devices = fabric.gpus
    assert bound_of(fabric, Kind.ALL_REDUCE, devices).at(GIB) * 1e6 == pytest.approx(least_us)


def test_routing_by_load_uses_a_slow_uplink_for_what_it_carries() -> None:
    fabric = uplinks(routing="adaptive")
    assert slow_cables(fabric) is None
    assert fabric_reach(fabric).outer[0].even_Bps[3] * 8 == pytest.approx(3 * 400e9 + 50e9)
    assert not any("costs more than leaving it out" in text for text in simulate(fabric, "allgather", "1MiB").assumed)


def test_nccl_on_many_hosts_grows_like_a_tree() -> None:
    """Once linear in hosts past what was measured: 394 ms on 16,384, with an interval that left out its own belief."""
    fabric = load("h100-131k-3tier")
    found = {hosts: nccl(fabric, hosts=hosts) for hosts in (64, 128, 4096, 8192, 16_384)}
    times = {hosts: float(one.time_us[0]) for hosts, one in found.items()}
    assert 4000 < times[64] < 10_000
    assert times[16_384] - times[8192] == pytest.approx(times[128] - times[64], rel=0.2), "each doubling alike"
    believed, low = float(found[4096].believed_us[0]), float(found[4096].low_us[0])
    assert low < 1.1 * believed and float(found[16_384].high_us[0] / found[16_384].low_us[0]) > 3


@pytest.mark.parametrize("name", ["all_to_all", "alltoall", "AllToAll", "all2all"])
def test_an_operation_has_one_name_however_it_is_spelled(name: str) -> None:
    found = nccl(rails(8), name)
    assert found.op == "all_to_all" and float(found.time_us[0]) > 0


def test_nccl_on_planes_and_where_there_is_none() -> None:
    assert float(nccl(load("deepseek-v3")).time_us[0]) > float(nccl(load("deepseek-v3")).floor_us[0])
    with pytest.raises(DescriptionError, match="TPU-v4 does not run NCCL"):
        nccl(load("tpu-v4-pod"))


def test_rails_of_an_all_to_all_by_nccl() -> None:
    """Once the same with and without PXN, behind any oversubscription of the rails."""

    def alltoall(over: str, **software: Any) -> float:
        network = {"topology": "rail-optimized", "link": "NDR", "oversubscription": over}
        data = {"hosts": 8, "host": "dgx-h100", "network": network, "software": software}
        return float(nccl(build(ClusterSpec.model_validate(data)), "all_to_all").time_us[0])

    off = {"env": {"NCCL_PXN_DISABLE": "1"}}
    assert alltoall("4:1") == alltoall("1:1") == alltoall("1:1", **off)  # on its rail, or as wide above as below
    # 56 of 64 parts leave a host, 7 of 8 of them over a quarter of what its ports have.
    assert alltoall("4:1", **off) > 1e6 * 8 * 2**28 * 56 / 64 / (8 * 50e9 / 4 * 8 / 7)
    assert alltoall("4:1", nccl="2.11") == pytest.approx(alltoall("4:1", **off), rel=0.1)
    with pytest.raises(DescriptionError, match="joins no two rails"):
        nccl(build(ClusterSpec.model_validate(
            {"hosts": 8, "host": "dgx-h100", "network": "rail-only NDR", "software": off})))  # fmt: skip
    healthy, failed, slow = (float(nccl(rails(8, faults=f)).time_us[0]) for f in (
        [], [{"device": "leaf-03"}], [{"device": "leaf-03", "rate": "100Gbps"}]))  # fmt: skip
    assert healthy < failed < slow


def test_what_stages_and_experts_pass_has_a_floor() -> None:
    """Once 4.15 s: chunks of 4 stages that need 6.01 s to pass a border were hidden behind 2.8 s of compute."""
    network = {"topology": "leaf-spine", "link": "10GbE", "hosts_per_leaf": 2, "oversubscription": "4:1"}
    fabric = build(ClusterSpec.model_validate({"hosts": 4, "host": "dgx-h100", "network": network}))
    batch = {"global": 128, "sequence": 4096, "micro": 1}
    job = load_job({"model": "llama3-8b", "parallel": {"pp": 4, "tp": 8, "virtual": 4}, "batch": batch})
    found = step(fabric, job)
    # 4 chunks forward from the second host, 3 back round from the first, over a quarter of two hosts' 20 GB/s.
    assert found.floor_s == pytest.approx(7 * 128 * 2 * 4096 * 4096 / 5e9)
    assert found.step_time_s == pytest.approx(execute(fabric, found).step_time_s, rel=0.05)
    experts = load_job({"model": "qwen3-30b-a3b", "parallel": {"ep": 32, "zero": "1"}, "batch": batch})
    spread = step(fabric, experts)
    # Every token of 16 ranks goes out once (all 8 experts are on this side in 1 of 256), and as many come in.
    tokens = 16 * 4096 * 4 * 48
    assert spread.floor_s >= 4 * tokens * 2 * 2048 * (1 - 0.5**8) / 5e9
    assert spread.floor_s < spread.step_time_s


def test_experts_stay_at_one_site_or_pay_for_the_line() -> None:
    """Once 2.99 s: groups of 8 cut in two by a line of 12.5 GB/s, which needs 8.5 s for their tokens."""
    site = {"hosts": 2, "host": "dgx-h100", "network": "rail-optimized HDR"}
    data = {"sites": [{"name": name, **site} for name in "ab"], "wan": {"rate": "100Gbps", "latency": "2ms"}}
    fabric = build(ClusterSpec.model_validate(data))
    batch = {"global": 64, "sequence": 4096, "micro": 1}
    split = {"tp": 1, "pp": 4, "zero": "1", "ep": 8}
    together = step(fabric, load_job({"model": "mixtral-8x7b", "parallel": split, "batch": batch}))
    # Arithmetic bounds it, at the datasheet's rate; the line needs 0.17 s each way for activations.
    assert together.floor_s == pytest.approx(0.66, rel=0.02) and together.step_time_s < 2.5
    assert execute(fabric, together).step_time_s == pytest.approx(together.step_time_s, rel=0.05)
    over = step(fabric, load_job({"model": "qwen3-30b-a3b", "parallel": {"ep": 32, "zero": "1"}, "batch": batch}))
    assert over.step_time_s > over.floor_s > 5
    # Once a third below its execution: 30 % of every exchange was hidden, behind a thirtieth of it in compute.
    assert execute(fabric, over).step_time_s == pytest.approx(over.step_time_s, rel=0.05)


def test_gpus_joined_pair_by_pair_have_the_links_to_their_peers() -> None:
    """Once all NVLinks for two ranks of a board of four, and one link for the eight rings of an MI300X host."""
    for host, split in (("polaris", {"tp": 2}), ("mi300x-8", {"tp": 4}), ("mi300x-8", {"tp": 1})):
        network = {"topology": "leaf-spine", "link": "HDR" if host == "polaris" else "NDR"}
        fabric = build(ClusterSpec.model_validate({"hosts": 4, "host": host, "network": network}))
        batch = {"global": 4 * fabric.num_gpus, "sequence": 4096, "micro": 1}
        found = step(fabric, load_job({"model": "llama3-8b", "parallel": {**split, "zero": "1"}, "batch": batch}))
        assert execute(fabric, found).step_time_s == pytest.approx(found.step_time_s, rel=0.05), (host, split)


def test_many_small_messages_cost_their_posting() -> None:
    """Once 4.67 us for 511 messages a GPU."""
    fabric = rails(8)
    placed = place("packed", fabric, 64)
    contest = Contest.of({"direct": find(fabric, Kind.ALL_TO_ALL, 64, "direct")}, placed, FlowNetwork(fabric))
    post_s = transport("rdma").post_s
    assert contest.one("direct", 1024).time_s >= 55.99 * post_s > 50e-6
    ideal = Contest.of({"direct": find(fabric, Kind.ALL_TO_ALL, 64, "direct")}, placed,
                       FlowNetwork(fabric, NetworkOptions(transport="ideal")))  # fmt: skip
    assert ideal.one("direct", 1024).time_s < 10e-6


def test_a_traced_all_reduce_takes_what_the_network_needs() -> None:
    """Once 30 % above the flow and packet levels for the same bytes over the same ports."""
    fabric = rails(8)
    graph = GraphBuilder("sixty-four")
    ops = [
        graph.add(rank, Op.COLLECTIVE, "all_reduce", size_bytes=64 * 2**20, ranks=64, axis="world")
        for rank in range(64)
    ]
    graph.meet(ops)
    found = execute_trace(graph.build(), fabric)
    bound = bound_of(fabric, Kind.ALL_REDUCE, fabric.gpus).at(64 * 2**20)
    # NCCL's rings send 2 x 63/64 of it out of a host, over eight ports of which 95 % is payload.
    ring_s = 2 * 63 / 64 * 64 * 2**20 / (8 * 50e9 * 0.95)
    nccl_s = simulate(fabric, "allreduce", 64 * 2**20, algorithm="nccl").time_s
    assert bound < ring_s < found.step_time_s == pytest.approx(nccl_s, rel=1e-9)
    assert "nic" in str(found.collectives[0].limiting_link)


@pytest.mark.parametrize("name", ["all_to_all", "reduce_scatter", "broadcast"])
def test_any_collective_of_a_trace_has_the_one_price(name: str) -> None:
    fabric, graph = rails(4), GraphBuilder("one")
    graph.meet([graph.add(rank, Op.COLLECTIVE, name, size_bytes=GIB, ranks=32, axis="world") for rank in range(32)])
    nccl_s = simulate(fabric, name.replace("_", ""), GIB, algorithm="nccl").time_s
    for found in (replay(graph.build(), fabric).makespan_s, execute_trace(graph.build(), fabric).step_time_s):
        assert found == pytest.approx(nccl_s, rel=1e-9)


def test_an_all_reduce_of_a_trace_and_of_a_shared_cluster_is_that_of_a_step() -> None:
    """Two hosts send the buffer once, as NCCL's double tree; four as a ring. Once both were laid level by level."""
    for hosts, share in ((2, 1.0), (4, 2 * 31 / 32)):
        fabric = cluster(hosts=hosts)  # eight ports of 100 Gb/s: NVLink is no limit
        graph = GraphBuilder("sums")
        graph.meet([graph.add(rank, Op.COLLECTIVE, "all_reduce", size_bytes=GIB, ranks=8 * hosts, axis="world")
                    for rank in range(8 * hosts)])  # fmt: skip
        traced = graph.build()
        port_s = share * GIB / (8 * 12.5e9)
        nccl_s = simulate(fabric, "allreduce", GIB, algorithm="nccl").time_s
        for found in (replay(traced, fabric).makespan_s, execute_trace(traced, fabric).step_time_s):
            assert found == pytest.approx(nccl_s, rel=1e-9)  # one price
        rail = Rails.of(fabric, 1.0, 1.0)
        given = Allocation(tuple(range(hosts)), (tuple(range(8)),) * hosts, fabric.host_names, "test")
        shared = measured_pattern(fabric, rail, given, StatedStep(compute=1e-3, exchange=GIB))
        busiest_s = (shared.table[0] / np.maximum(rail.capacity_Bps, 1.0)).max() * shared.size_bytes[1]
        assert busiest_s == pytest.approx(port_s, rel=1e-6)


def test_a_step_is_executed_with_what_it_is_priced_with() -> None:
    job = load_job(LLAMA)
    for over in ("1:1", "32:1"):
        found = step(cluster(over), job)
        executed = execute(cluster(over), found)
        assert executed.step_time_s == pytest.approx(found.step_time_s, rel=0.15)
        assert executed.step_time_s > found.floor_s > 0
    assert "out of the rack" in executed.collectives[0].limiting_link


def test_a_time_below_the_bound_is_a_defect_and_no_answer() -> None:
    fabric, job = cluster("32:1"), load_job(LLAMA)
    found = step(fabric, job)
    # Out of a rack over its one uplink: 3/4 of the fp32 gradients are scattered, 1/4 of the bf16 parameters gathered.
    assert found.floor_s == pytest.approx((0.75 * 4 + 0.25 * 2) * 8.03e9 / 12.5e9, rel=0.02)
    with pytest.raises(BelowBoundError, match="where the fabric needs at least"):
        execute(fabric, replace(found, floor_s=10 * found.step_time_s))
    with pytest.raises(BelowBoundError, match="bug of the model"):
        check_floor(0.99, 1.0, "a step")


def test_all_groups_share_the_lines_between_sites() -> None:
    """Each stage's replicas alone need a quarter of what all four need together."""
    fabric = sites("100Gbps", "2ms")
    batch = {"global": 512, "sequence": 4096, "micro": 1}
    four = load_job({"model": "llama3-8b", "parallel": {"tp": 1, "pp": 4, "zero": "none"}, "batch": batch})
    found = step(fabric, four)
    layers = 8.03e9 - 2 * 128_256 * 4096
    assert found.floor_s == pytest.approx(4 * layers / 12.5e9, rel=0.02)  # gradients are reduced in fp32
    assert found.step_time_s > found.floor_s


def test_a_large_gap_between_levels_says_why() -> None:
    """Once 27 % apart here: the closed form sent activations over the lines, with replicas at the sites."""
    fabric = sites("100Gbps", "2ms")
    batch = {"global": 512, "sequence": 4096, "micro": 1}
    found = step(
        fabric, load_job({"model": "llama3-8b", "parallel": {"tp": 1, "pp": 4, "zero": "none"}, "batch": batch})
    )
    ran = execute(fabric, found)
    assert causes(found, ran) == ()
    longer = tuple(replace(one, total_s=2.5 * one.total_s) for one in ran.collectives)
    slower = replace(ran, step_time_s=2 * ran.step_time_s, collectives=longer)
    assert any("they share links out of the site" in text for text in causes(found, slower))
    unshared = replace(slower, collectives=())
    assert causes(found, unshared) == ("stages wait for each other in an order that the closed form does not have",)


def test_uplinks_of_a_leaf_with_one_host_bound_it_whatever_its_ports_are() -> None:
    """Half of what eight GPUs have crosses four uplinks of 25 GB/s: 10.74 ms. Seven NICs alone would take 6.14."""
    network = {"topology": "leaf-spine", "link": "HDR", "oversubscription": "2:1", "hosts_per_leaf": 1}
    data = {"hosts": 2, "host": "dgx-h100", "network": network}
    gone = {"link": "leaf-00 <-> host-00/nic-7", "which": 0}
    slow = {"link": "leaf-01 <-> host-01/nic-3", "which": 0, "rate": "50Gbps"}
    for faults in ([], [gone], [slow], [gone, slow]):
        fabric = build(ClusterSpec.model_validate(data | {"faults": faults}))
        least_s = bound_of(fabric, Kind.ALL_TO_ALL, fabric.gpus).at(1 << 28)
        assert least_s == pytest.approx(8 * (1 << 27) / 100e9), faults


def test_hosts_that_failed_links_part_are_named() -> None:
    """Once a division by zero (`nccl`), an index out of bounds (`step`) and "a bug of the model" (`plan`)."""
    faults = [{"link": "leaf-03 <-> spine-00", "which": 0}]
    network = {"topology": "leaf-spine", "link": "HDR", "oversubscription": "8:1", "hosts_per_leaf": 1}
    data = {"hosts": 4, "host": "dgx-h100", "network": network, "faults": faults}
    parted = build(ClusterSpec.model_validate(data))
    said = "no link joins host-03 to the other hosts"
    with pytest.raises(SimulationError, match=said):
        from_fabric(parted)
    with pytest.raises(SimulationError, match=said):
        step(parted, load_job(LLAMA))
    whole = build(ClusterSpec.model_validate(data | {"faults": []}))
    assert step(whole, load_job(LLAMA)).step_time_s > 0
