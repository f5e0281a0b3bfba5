"""Several jobs, compute spans, classes, failures and other traffic."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import SimulationError
from syncline.fabric import ClusterSpec, Fabric, Tier, build
from syncline.program import Program, given, lower, packed, vendor
from syncline.schedule import Collective, Kind, Schedule, hierarchical, in_network, parameter_server, ring, verify
from syncline.schedule import build as family
from syncline.sim.flow.chronicle import timeline
from syncline.sim.flow.expand import Share
from syncline.sim.flow.flow import Background, FlowJob, LinkEvent, simulate
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions
from syncline.timeline import SourceKind, SpanKind

SIZE = 1 << 26
RATE = 25e9


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    """24 hosts of one GPU and one 200 Gb/s port: 20 behind one leaf, 4 behind another."""
    spec = {"hosts": 24, "host": {"gpu": "H100", "gpus": 1, "scale_up": "none"},
            "network": {"topology": "leaf-spine", "link": "HDR", "switch": "QM8700"}}  # fmt: skip
    return build(ClusterSpec.model_validate(spec))


@pytest.fixture(scope="module")
def network(fabric: Fabric) -> FlowNetwork:
    return FlowNetwork(fabric, NetworkOptions("static", transport="ideal"))


def on(fabric: Fabric, schedule: Schedule, first: int = 0) -> Program:
    return lower(verify(schedule), given(fabric, fabric.gpus[first : first + schedule.num_ranks].tolist()))


def pair(fabric: Fabric, a: int, b: int) -> Program:
    goal = family("direct", 2, kind=Kind.SEND_RECV, root=0, peer=1)
    return lower(verify(goal), given(fabric, [int(fabric.gpus[a]), int(fabric.gpus[b])]))


def test_two_jobs_on_one_link_share_it(fabric: Fabric, network: FlowNetwork) -> None:
    alone = simulate([FlowJob(pair(fabric, 0, 1), SIZE)], network).makespan_s
    both = simulate([FlowJob(pair(fabric, 0, 1), SIZE), FlowJob(pair(fabric, 0, 2), SIZE)], network)
    assert alone == pytest.approx(SIZE / RATE, rel=1e-3)
    assert both.makespan_s == pytest.approx(2 * SIZE / RATE, rel=1e-3)


def test_weights_priorities_and_caps_are_kept(fabric: Fabric, network: FlowNetwork) -> None:
    def ends(*shares: Share) -> list[float]:
        jobs = [FlowJob(pair(fabric, 0, k + 1), SIZE, share=share) for k, share in enumerate(shares)]
        return [end / (SIZE / RATE) for end in simulate(jobs, network).job_end_s]

    assert ends(Share(weight=3), Share()) == pytest.approx([4 / 3, 2], rel=1e-3)
    assert ends(Share(priority=0), Share(priority=1)) == pytest.approx([1, 2], rel=1e-3)
    assert ends(Share(cap_Bps=RATE / 4), Share()) == pytest.approx([4, 4 / 3], rel=1e-3)


def test_a_tenant_with_a_guarantee_keeps_it_against_many_jobs_of_others(fabric: Fabric, network: FlowNetwork) -> None:
    jobs = [FlowJob(pair(fabric, 0, 1), SIZE, share=Share(tenant="A", priority=1))]
    jobs += [FlowJob(pair(fabric, 0, k), 4 * SIZE) for k in (2, 3)]
    end = simulate(jobs, network, guarantees={"A": 0.5}).job_end_s[0]
    assert end == pytest.approx(2 * SIZE / RATE, rel=1e-3)
    assert simulate(jobs, network).job_end_s[0] == pytest.approx(9 * SIZE / RATE, rel=1e-3)
    with pytest.raises(SimulationError, match='tenant "B" has a guarantee but no job; tenants with jobs: A'):
        simulate(jobs, network, guarantees={"B": 0.5})
    with pytest.raises(SimulationError, match=r"1\.5 of every link; a part lies between 0 and 1"):
        simulate(jobs, network, guarantees={"A": 1.5})


def test_jobs_wait_for_time_compute_and_each_other(fabric: Fabric, network: FlowNetwork) -> None:
    first = FlowJob(on(fabric, ring(4)), SIZE, start_s=1.0, compute_s=np.array([0.0, 0.5, 0.0, 0.0]))
    second = FlowJob(on(fabric, ring(4)), SIZE, after=(0,), compute_s=0.25)
    outcome = simulate([first, second], network)
    took = simulate([FlowJob(on(fabric, ring(4)), SIZE)], network).makespan_s
    assert outcome.job_end_s[0] == pytest.approx(1.5 + took, rel=1e-3)
    assert outcome.job_end_s[1] == pytest.approx(1.75 + 2 * took, rel=1e-3)
    with pytest.raises(SimulationError, match="job 0 cannot wait for job 1: only earlier jobs"):
        simulate([FlowJob(first.program, 1, after=(1,)), second], network)


def test_a_straggler_holds_the_whole_ring_back(fabric: Fabric, network: FlowNetwork) -> None:
    even = simulate([FlowJob(on(fabric, ring(8)), SIZE)], network).makespan_s
    slow = simulate([FlowJob(on(fabric, ring(8)), SIZE, slow={3: 2.0})], network).makespan_s
    assert slow == pytest.approx(2 * even, rel=0.02)
    with pytest.raises(SimulationError, match=r"rank 99 cannot be slower by 2.0"):
        simulate([FlowJob(on(fabric, ring(8)), SIZE, slow={99: 2.0})], network)


def test_oversubscription_costs_what_it_should() -> None:
    """All hosts of one leaf send to the other leaf: at r:1 the uplinks carry 1/r of what the hosts offer."""
    times = {}
    for ratio in ("1:1", "3:1"):
        spec = {
            "hosts": 48,
            "host": {"gpu": "H100", "gpus": 1, "scale_up": "none"},
            "network": {"topology": "leaf-spine", "link": "HDR", "switch": "QM8700", "oversubscription": ratio},
        }
        where = build(ClusterSpec.model_validate(spec))
        down = int(np.bincount(where.rack_of_host)[0])
        pairs = [FlowJob(pair(where, i, down + i), SIZE) for i in range(min(down, 48 - down))]
        times[ratio] = simulate(pairs, FlowNetwork(where, NetworkOptions("spray", transport="ideal"))).makespan_s
        used = len(pairs)
        uplinks = int(((where.links.tier == Tier.LEAF_SPINE) & (where.links.src == where.switches[0])).sum())
        assert times[ratio] == pytest.approx(SIZE / RATE * max(1.0, used / uplinks), rel=2e-3)
    assert times["3:1"] > 1.1 * times["1:1"]


def test_a_failed_link_moves_its_traffic_after_a_delay(fabric: Fabric, network: FlowNetwork) -> None:
    across = [FlowJob(pair(fabric, 0, 23), SIZE)]
    before = simulate(across, network, record=True)
    links = before.jobs[0].wired.wires.paths.row(0)
    uplink = int(links[fabric.links.tier[links] == Tier.LEAF_SPINE][0])
    middle = before.makespan_s / 2
    after = simulate(across, network, events=[LinkEvent(middle, uplink, 0.0, reroute_s=1e-3)], record=True)
    assert after.makespan_s == pytest.approx(before.makespan_s + 1e-3, rel=1e-3)
    assert after.course.link_bytes[uplink] == pytest.approx(SIZE / 2, rel=0.01)
    moved = np.flatnonzero((after.course.link_bytes > 0) & (before.course.link_bytes == 0))
    assert len(moved) and (fabric.links.tier[moved] == Tier.LEAF_SPINE).any()
    with pytest.raises(SimulationError, match="never ends"):
        simulate(across, network, events=[LinkEvent(middle, uplink, 0.0, reroute_s=None)])
    repaired = [LinkEvent(middle, uplink, 0.0, reroute_s=None), LinkEvent(middle + 0.01, uplink, 1.0)]
    assert simulate(across, network, events=repaired).makespan_s == pytest.approx(before.makespan_s + 0.01, rel=1e-3)


def test_a_degraded_link_slows_what_crosses_it(fabric: Fabric, network: FlowNetwork) -> None:
    job = FlowJob(pair(fabric, 0, 1), SIZE)
    links = simulate([job], network).jobs[0].wired.wires.paths.row(0)
    out = int(links[fabric.links.tier[links] == Tier.ACCESS][0])
    half = simulate([job], network, events=[LinkEvent(0.0, out, 0.5)]).makespan_s
    assert half == pytest.approx(2 * SIZE / RATE, rel=0.01)


def test_background_traffic_takes_its_share(fabric: Fabric, network: FlowNetwork) -> None:
    noise = Background(int(fabric.gpus[0]), int(fabric.gpus[2]), RATE / 4, duration_s=1.0)
    took = simulate([FlowJob(pair(fabric, 0, 1), SIZE)], network, background=[noise]).makespan_s
    assert took == pytest.approx(SIZE / (RATE * 3 / 4), rel=1e-3)


def test_reducing_switches_are_placed_where_the_ranks_meet(fabric: Fabric, network: FlowNetwork) -> None:
    outcome = simulate([FlowJob(on(fabric, in_network(8, radix=8)), SIZE)], network)
    ringed = simulate([FlowJob(on(fabric, ring(8)), SIZE)], network)
    assert outcome.makespan_s < ringed.makespan_s
    assert outcome.makespan_s >= SIZE / RATE


def test_helpers_without_a_device_are_named(fabric: Fabric, network: FlowNetwork) -> None:
    with pytest.raises(SimulationError, match=r"1 helpers of .* have no device"):
        simulate([FlowJob(on(fabric, parameter_server(4)), SIZE)], network)
    assert simulate([FlowJob(on(fabric, parameter_server(4, colocated=True)), SIZE)], network).makespan_s > 0


def test_a_vendor_step_has_no_flows(fabric: Fabric, network: FlowNetwork) -> None:
    program = vendor(Collective(Kind.ALL_REDUCE, 4), packed(fabric, 4))
    with pytest.raises(SimulationError, match="nccl all_reduce is left to its library"):
        simulate([FlowJob(program, SIZE)], network)


def test_the_timeline_says_what_happened_and_what_it_ignores(fabric: Fabric, network: FlowNetwork) -> None:
    outcome = simulate(
        [FlowJob(on(fabric, hierarchical((2, 2))), 1 << 20, compute_s=1e-3, name="gradients")], network, record=True
    )
    found = timeline(outcome)
    assert found.source.kind is SourceKind.SIMULATED_FLOW
    assert "queues and packet loss" in found.source.ignores
    assert found.makespan_s == pytest.approx(outcome.makespan_s)
    assert set(found.spans.kind.tolist()) == {SpanKind.COMPUTE, SpanKind.SEND, SpanKind.RECV}
    sent = found.spans.size_bytes[found.spans.kind == SpanKind.SEND].sum()
    assert sent == pytest.approx(4 * 1.5 * (1 << 20), rel=1e-3)
    assert found.link_use().peak_utilisation.max() <= 1 + 1e-9


def test_nothing_to_simulate_is_an_error(network: FlowNetwork) -> None:
    with pytest.raises(SimulationError, match="there is no job to simulate"):
        simulate([], network)


def test_every_rank_works_after_each_round(fabric: Fabric, network: FlowNetwork) -> None:
    """A ring of four has six rounds: each adds the pause once."""
    plain, paused = (
        simulate([FlowJob(on(fabric, ring(4)), SIZE, pause_s=pause)], network).makespan_s for pause in (0.0, 1e-3)
    )
    assert paused - plain == pytest.approx(6e-3, rel=1e-6)


def test_spans_of_a_job_without_a_name_carry_its_programs_name(fabric: Fabric, network: FlowNetwork) -> None:
    jobs = [FlowJob(on(fabric, ring(2)), 1 << 20), FlowJob(on(fabric, ring(2), 4), 1 << 20, name="gradients")]
    assert set(timeline(simulate(jobs, network)).names) == {jobs[0].program.name, "gradients"}
