"""One question asked of two verbs or levels has one answer: rows that once contradicted each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syncline
from syncline.errors import SimulationError
from syncline.fabric import Fabric, build, load
from syncline.fabric.catalog import load_catalog
from syncline.fabric.route import Routes
from syncline.fabric.spec import ClusterSpec
from syncline.program import place
from syncline.questions.plan import compare
from syncline.questions.simulated.compare_algorithms import compare_algorithms
from syncline.schedule import Kind
from syncline.sim.candidates import find
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.sim.nccl.constants import default_constants
from syncline.sim.play import play
from syncline.sim.scenario import load_scenario
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.step import step
from syncline.sim.sweep import Contest
from syncline.sim.transport import transport_on
from syncline.workload.read_job import load_job


def leaf_spine(host: str = "dgx-h100", hosts: int = 4, link: str = "NDR", **more: Any) -> Fabric:
    network = {"topology": "leaf-spine", "link": link, "hosts_per_leaf": 2, **more}
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": host, "network": network}))


def test_packets_stand_beside_the_flow_level_that_simulate_prints() -> None:
    """Once 352.2 us without `--level packet` and 333.3 us as its own flow level."""
    fabric = leaf_spine()
    flow = syncline.simulate(fabric, "alltoall", "4MiB", algorithm="direct")
    packets = syncline.simulate(fabric, "alltoall", "4MiB", algorithm="direct", level="packet")
    assert packets.rows[0].flow_time_s == pytest.approx(flow.time_s, rel=1e-9)


def test_packets_are_posted_as_at_flow_level() -> None:
    """Once 21 us packet by packet and 60 us at flow level: 24 messages a GPU leave the host, 2.2 us each."""
    flow, packets = (
        syncline.simulate(leaf_spine(), "alltoall", "1MiB", algorithm="direct", level=level)
        for level in ("flow", "packet")
    )
    assert flow.time_s == pytest.approx(24 * 2.2e-6)
    assert packets.time_s == pytest.approx(flow.time_s, rel=0.02)


def test_connections_that_share_a_port_repeat_nothing() -> None:
    """Once packets took 88 % longer over sockets: who waits for its own port has lost no tail."""
    fabric = leaf_spine("old-server-10gbe", 4, "10GbE")
    flow, packets = (
        syncline.simulate(fabric, "alltoall", "4MiB", algorithm="best", level=level) for level in ("flow", "packet")
    )
    assert packets.time_s == pytest.approx(flow.time_s, rel=0.1)


def test_a_transport_is_what_the_links_carry() -> None:
    """Once RDMA was taken for granted on EFA and on 10 GbE."""
    for host, link, own in (("dgx-h100", "NDR", "rdma"), ("p5", "EFAv2", "efa"), ("dgx-a100", "10GbE", "tcp")):
        fabric = leaf_spine(host, 2, link)
        assert FlowNetwork(fabric).carrier.name == own
        assert transport_on("auto", fabric) == own and transport_on("ideal", fabric) == "ideal"
    with pytest.raises(SimulationError, match="10GbE links carry no RDMA"):
        transport_on("rdma", leaf_spine("dgx-a100", 2, "10GbE"))
    with pytest.raises(SimulationError, match="EFA's own transport"):
        transport_on("rdma", leaf_spine("p5", 2, "EFAv2"))
    with pytest.raises(SimulationError, match="no host of cluster is on EFA links"):
        transport_on("efa", leaf_spine())


def posting_s(fabric: Fabric, transport: str = "auto") -> float:
    """Return how long the busiest rank of a direct all-to-all posts."""
    direct = {"direct": find(fabric, Kind.ALL_TO_ALL, fabric.num_gpus, "direct")}
    network = FlowNetwork(fabric, NetworkOptions(transport=transport))
    busy_s = Contest.of(direct, place("packed", fabric), network).wired["direct"].posting_s(0, 0)
    return 0.0 if busy_s is None else float(busy_s.max())


def test_a_message_costs_what_its_card_says() -> None:
    """Once one figure for RDMA, whatever the card."""
    assert posting_s(leaf_spine()) == pytest.approx(24 * 2.2e-6)
    assert posting_s(leaf_spine("p5", 4, "EFAv2")) == pytest.approx(24 * 4e-6)
    assert posting_s(leaf_spine("p5en", 4, "EFAv3")) == pytest.approx(24 * 4e-6)
    assert posting_s(leaf_spine("polaris", 4, "Slingshot-11")) == pytest.approx(12 * 3.9e-6)
    assert posting_s(leaf_spine(), "tcp") == pytest.approx(24 * 15e-6)  # another way through the same card
    assert posting_s(leaf_spine(), "ideal") == 0


def test_a_card_that_eight_share_may_be_slower_than_they_are() -> None:
    """LogGP's g: 8 GPUs send 24 messages each through one card that takes 1 us for each."""
    card = {"name": "slow", "vendor": "x", "num_ports": 1, "links": ["NDR"], "max_Bps": "400Gbps", "pcie": "PCIe5 x16",
            "latency_s": "1us", "power_w": 1, "source": "a test", "overhead_s": "2us", "gap_s": "1us",
            "message_source": "a test"}  # fmt: skip
    network = {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 2}
    data = {"hosts": 4, "host": {"model": "dgx-h100", "nic": "slow", "nics": 1}, "parts": {"nic": [card]}}
    assert posting_s(build(ClusterSpec.model_validate({**data, "network": network}))) == pytest.approx(8 * 24e-6)


def test_cards_and_published_rows_agree() -> None:
    """The catalogue rounds what every remote peer adds to published all-to-all rows."""
    networks = default_constants().networks
    for card, kind in (
        ("ConnectX-7", "infiniband"),
        ("EFA-v3 adapter", "efa-v3"),
        ("Cassini", "slingshot"),
        ("X710", "tcp"),
    ):
        assert load_catalog().nic(card).overhead_s == pytest.approx(networks[kind].alltoall_peer_us * 1e-6, rel=0.25)


def test_packets_of_efa_are_sprayed_at_both_levels() -> None:
    """Once 41 to 56 % apart: one path a flow at flow level, all of them packet by packet."""
    fabric = build(ClusterSpec.model_validate(
        {"hosts": 4, "host": "p5", "network": {"topology": "leaf-spine", "link": "EFAv2"}}))  # fmt: skip
    flow, packets = (
        syncline.simulate(fabric, "allgather", "4MiB", algorithm="best", level=level) for level in ("flow", "packet")
    )
    assert flow.routing == "spray" and packets.time_s == pytest.approx(flow.time_s, rel=0.1)


def test_the_routing_of_the_cluster_file_is_obeyed() -> None:
    """Once a key that nobody read."""
    assert FlowNetwork(leaf_spine()).options.routing == "ecmp"
    assert FlowNetwork(leaf_spine(routing="adaptive")).options.routing == "adaptive"
    assert FlowNetwork(leaf_spine(routing="adaptive"), NetworkOptions("static")).options.routing == "static"


def test_auto_is_the_winner_where_switches_choose_paths() -> None:
    """Once 76.9 us, where `compare-algorithms` found 71.8: guesses that are too long for all hid the fastest."""
    network = {"topology": "leaf-spine", "link": "400GbE", "hosts_per_leaf": 2, "routing": "adaptive"}
    fabric = build(ClusterSpec.model_validate({"hosts": 4, "host": "dgx-h100", "network": network}))
    told = syncline.simulate(fabric, "allgather", "16MiB", algorithm="best")
    assert told.contest is not None
    compared = compare_algorithms(fabric, "allgather", "16MiB")
    assert told.time_s <= 1.01 * min(row.time_s for row in compared.rows)


def test_a_scenario_answers_like_simulate() -> None:
    """Once RDMA on EFA and a ring of 8 chunks, whatever `simulate` took."""
    fabric = leaf_spine("p5", 2, "EFAv2")
    for collective, size in (("allreduce", "16MiB"), ("alltoall", "1MiB")):
        told = syncline.simulate(fabric, collective, size)
        data = {"jobs": [{"name": "a", "collective": collective, "size": size}]}
        played = play(load_scenario(data), fabric).jobs[0]
        assert played.library_s == told.time_s
        best = told.rows[-1].best
        assert best is not None
        assert played.took_s == pytest.approx(best.time_s, rel=0.2)


def test_intervals_of_nccl_are_printed() -> None:
    found = syncline.simulate("h100-64-rail", "allreduce", "1GiB", algorithm="nccl")
    assert found.interval_s is not None and "90 %" in str(found)


def test_five_hundred_messages_a_gpu_are_posted_one_after_the_other() -> None:
    """Once 4.67 us for 511 messages: 504 of them leave the host, 2.2 us each (nics.yaml)."""
    fabric = load("h100-64-rail")
    direct = {"direct": find(fabric, Kind.ALL_TO_ALL, 512, "direct")}
    contest = Contest.of(direct, place("packed", fabric, 512), FlowNetwork(fabric))
    posting_s = contest.wired["direct"].posting_s(0, 0)
    assert posting_s is not None and float(posting_s.max()) == pytest.approx(504 * 2.2e-6)


def test_one_site_alone_and_meeting_rarely_are_offered() -> None:
    """Once a pipeline over 10 Gb/s lines that were free: 4.3 s, where 2.75 min are needed."""
    site = {"hosts": 2, "host": "dgx-h100", "network": "rail-optimized NDR"}
    two = {"sites": [{"name": "a", **site}, {"name": "b", **site}], "wan": {"rate": "10Gbps", "latency": "80ms"}}
    found: Any = syncline.plan(two, {"model": "llama3-8b", "batch": {"global": 64, "sequence": 8192}}).to_json()
    assert found["best"]["gpus_used"] == 16 and found["gpus"] == 32
    assert any("one site alone" in note for note in found["notes"])
    assert any(action["name"] == "diloco" for action in found["actions"])


def test_a_thin_fabric_is_never_advised_for_less_than_prices_tell_apart(tmp_path: Path) -> None:
    """A pipeline hardly uses the network: 32:1 costs 0.6 % less a token, which nobody can tell, and is no faster."""
    file = tmp_path / "c.yaml"
    file.write_text("hosts: 4\nhost: dgx-h100\nnetwork: {topology: leaf-spine, link: 100GbE, hosts_per_leaf: 2}\n")
    job = {"model": "llama3-70b", "batch": {"global": 64, "sequence": 4096}}
    found: Any = compare(job, clusters=(str(file),), sweep=("network.oversubscription", ("32:1", "1:1"))).to_json()
    assert found["fastest"] == found["advised"] == "network.oversubscription 1:1"


@pytest.mark.parametrize(("host", "link"), [("p5", "EFAv2"), ("p5en", "EFAv3")])
def test_a_gpu_with_several_nics_sends_over_all_of_them(host: str, link: str) -> None:
    """Once a quarter (p5) or half (p5en) of what NCCL, the closed form and the bound count on: steps 54 % slower."""
    fabric = leaf_spine(host, hosts=2, link=link, hosts_per_leaf=1)
    for routing in ("static", "spray"):
        found = syncline.simulate(fabric, "allreduce", "256MiB", algorithm="hierarchical", routing=routing)
        assert found.time_s < 2.5 * (found.rows[0].bound_s or 0.0), routing
    job = load_job({"model": "llama3-8b", "parallel": {"tp": 1, "zero": "fsdp"},
                    "batch": {"global": 16, "sequence": 4096, "micro": 1}})  # fmt: skip
    closed = step(fabric, job)
    assert execute(fabric, closed).step_time_s == pytest.approx(closed.step_time_s, rel=0.05)


def test_all_planes_of_a_nic_carry_what_its_gpu_sends() -> None:
    """Once one plane for each pair of GPUs, by hash: half of what the closed form and the bound count on."""
    plane = {"topology": "leaf-spine", "link": "NDR200", "hosts_per_leaf": 1}
    network = {"topology": "multi-plane", "planes": 2, "link": "NDR200", "plane": plane}
    host = {"model": "dgx-h100", "nic": "ConnectX-7 2x200G", "ports_per_nic": 2}
    fabric = build(ClusterSpec.model_validate({"hosts": 2, "host": host, "network": network}))
    times = [
        syncline.simulate(fabric, "allreduce", "256MiB", algorithm="hierarchical", routing=routing).time_s
        for routing in ("static", "spray", "adaptive")
    ]
    assert times[1] == pytest.approx(times[0], rel=0.01) and times[2] < 1.4 * times[0]
    flow, packets = (
        syncline.simulate(fabric, "alltoall", "4MiB", algorithm="direct", level=level).time_s
        for level in ("flow", "packet")
    )
    assert packets == pytest.approx(flow, rel=0.3)


def test_a_lost_nic_leaves_a_gpu_its_others() -> None:
    """Of four NICs one is lost at one end: its part goes over a neighbour that lives at both ends."""
    network = {"topology": "leaf-spine", "link": "EFAv2", "hosts_per_leaf": 1}
    data = {"hosts": 2, "host": "p5", "network": network, "faults": [{"link": "host-00/nic-1 <-> leaf-00"}]}
    fabric = build(ClusterSpec.model_validate(data))
    inside = Routes(fabric).inside
    ends = np.array([fabric.gpus[0]]), np.array([fabric.gpus[8]])
    nics = [inside.to_nics(*ends, "fabric", stripe)[2][0] for stripe in range(inside.num_stripes)]
    names = [tuple(fabric.device_name(int(nic)).split("/")[1] for nic in pair) for pair in nics]
    assert names == [("nic-0", "nic-0"), ("nic-2", "nic-2"), ("nic-2", "nic-2"), ("nic-3", "nic-3")]


def test_packets_are_cut_over_the_nics_of_a_gpu() -> None:
    fabric = leaf_spine("p5", hosts=2, link="EFAv2")
    flow, packets = (
        syncline.simulate(fabric, "alltoall", "4MiB", algorithm="direct", level=level) for level in ("flow", "packet")
    )
    assert packets.time_s == pytest.approx(flow.time_s, rel=0.15)


def test_packets_pass_a_nic_no_faster_than_its_way_into_the_host() -> None:
    """Polaris: 19.2 of a port's 25 GB/s reach the host; once packets had them all, 27 % too fast."""
    fabric = leaf_spine("polaris", 2, "HDR")
    flow, packets = (
        syncline.simulate(fabric, "allgather", "4MiB", algorithm="best", level=level).rows[0]
        for level in ("flow", "packet")
    )
    assert packets.flow_time_s == flow.time_s and packets.difference is not None
    parts = {name: part.s for name, part in packets.difference.items()}
    assert sum(parts.values()) == pytest.approx(packets.time_s - flow.time_s)
    assert packets.time_s - parts["rounds"] == pytest.approx(flow.time_s, rel=0.1)
