"""Steps and traces packet by packet: the same graph as at flow level, or a refusal that says what it would take."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.errors import SimulationError, UsageError
from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.schedule import Kind
from syncline.sim.bound import bound_of
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.executed.execute_trace import execute_trace
from syncline.sim.step.step import step
from syncline.workload.graph import GraphBuilder, Op, Workload
from syncline.workload.read_job import load_job

MIB = 2**20


def cluster(hosts: int = 2) -> Fabric:
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": "dgx-h100", "network": "rail-optimized NDR"}))


def job(**split: Any) -> Any:
    model = {"name": "tiny", "layers": 4, "hidden": 512, "heads": 8, "ffn": 2048, "vocab": 32000}
    batch = {"global": 16, "sequence": 128, "micro": 1}
    return load_job({"model": model, "parallel": split, "batch": batch})


@pytest.mark.parametrize("split", [{"tp": 1, "zero": "1"}, {"tp": 2, "pp": 2, "zero": "none"}])
def test_packets_take_what_flows_take_where_nothing_collides(split: dict[str, Any]) -> None:
    fabric = cluster()
    found = step(fabric, job(**split))
    flow, packet = execute(fabric, found), execute(fabric, found, level="packet")
    assert packet.step_time_s == pytest.approx(flow.step_time_s, rel=0.02)
    assert packet.packets is not None and packet.packets.data_packets > 1000 and packet.packets.drops == 0
    assert [each.name for each in packet.collectives] == [each.name for each in flow.collectives]
    for ours, theirs in zip(packet.collectives, flow.collectives, strict=True):
        # A message crosses switches one packet after the other: microseconds that flows do not have.
        assert ours.calls == theirs.calls
        assert ours.total_s == pytest.approx(theirs.total_s, rel=0.1, abs=ours.calls * 3e-6)


def test_a_step_ends_where_too_many_packets_were_run_whatever_is_counted() -> None:
    fabric = cluster()
    found = step(fabric, load_job({"model": "llama3-70b", "batch": {"global": 64, "sequence": 4096}}))
    ran = execute(fabric, found, level="packet", max_packets=50_000_000).packets
    assert ran is not None and ran.data_packets > 50_000_000 > ran.data_packets - ran.skipped_packets
    with pytest.raises(SimulationError, match=r"has run [\d,]+ packets of 4,096 bytes for [\d.]+% .* limit is 10\."):
        execute(fabric, found, level="packet", max_packets=10)
    with pytest.raises(UsageError, match='not routed as "static"'):
        execute(fabric, step(fabric, job(tp=1)), routing="static", level="packet")


def traced(ranks: int, size: int) -> Workload:
    graph = GraphBuilder("traced")
    graph.meet([
        graph.add(rank, Op.COLLECTIVE, "all_reduce", size_bytes=size, ranks=ranks, axis="world")
        for rank in range(ranks)
    ])  # fmt: skip
    return graph.build()


def test_a_trace_goes_packet_by_packet() -> None:
    """A 16 MiB all-reduce over two hosts: once 30 % off between verbs."""
    fabric, size = cluster(), 16 * MIB
    flow, packet = (execute_trace(traced(16, size), fabric, level=level) for level in ("flow", "packet"))
    assert packet.level == "packet" and packet.packets is not None
    assert packet.step_time_s == pytest.approx(flow.step_time_s, rel=0.15)
    bound = bound_of(fabric, Kind.ALL_REDUCE, fabric.gpus).at(size)
    assert packet.floor_s == pytest.approx(bound) and packet.step_time_s > bound
    # Level by level, each of two hosts sends half the buffer to the other, scattered and gathered.
    assert packet.packets.data_packets == pytest.approx(2 * 2 * 0.5 * size / 4096, rel=0.01)
