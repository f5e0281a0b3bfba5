"""Every way to price a program gives the same time as simulating every flow."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import SimulationError
from syncline.fabric import ClusterSpec, Fabric, build
from syncline.program import lower, packed, rail_aware
from syncline.schedule import FAMILIES, Kind, Schedule, hierarchical, ring, verify
from syncline.schedule import build as family
from syncline.sim.analytic import bounds
from syncline.sim.candidates import rail_rings
from syncline.sim.flow import fold as folding
from syncline.sim.flow.estimate import estimate
from syncline.sim.flow.fold import barrier_s, price
from syncline.sim.flow.maxplus import contention_free, max_plus_end_s
from syncline.sim.flow.routing import FlowNetwork, NetworkOptions, Routing
from syncline.sim.flow.symmetry import fold
from syncline.sim.flow.wired import WiredProgram, wire

FABRICS: dict[str, dict[str, object]] = {
    "rail": {"hosts": 8, "host": "8 x H100", "network": "rail-optimized NDR"},
    "leaf-spine": {"hosts": 8, "host": "8 x H100", "network": {"topology": "leaf-spine", "link": "NDR"}},
    "fat-tree": {
        "hosts": 64,
        "host": {"gpu": "H100", "gpus": 1, "scale_up": "none"},
        "network": {"topology": "fat-tree", "link": "HDR", "switch": "QM8700", "tiers": 3},
    },
    "oversubscribed": {
        "hosts": 64,
        "host": {"gpu": "H100", "gpus": 1, "scale_up": "none"},
        "network": {"topology": "leaf-spine", "link": "HDR", "switch": "QM8700", "oversubscription": "3:1"},
    },
    "dragonfly": {"hosts": 64, "host": {"gpu": "H100", "gpus": 1, "scale_up": "none"}, "network": "dragonfly HDR"},
    "torus": {
        "hosts": 64,
        "host": {"gpu": "H100", "gpus": 1, "scale_up": "none"},
        "network": {"topology": "torus", "link": "NDR", "shape": [4, 4, 4]},
    },
}  # fmt: skip


@cache
def fabric(name: str) -> Fabric:
    return build(ClusterSpec.model_validate(FABRICS[name]))


def wired(
    schedule: Schedule, name: str, routing: Routing = "ecmp", transport: str = "rdma", seed: int = 0
) -> WiredProgram:
    where = fabric(name)
    return wire(
        lower(verify(schedule), packed(where, schedule.num_ranks)),
        FlowNetwork(where, NetworkOptions(routing, seed, transport)),
    )


def schedules() -> list[Schedule]:
    reducing = [
        f
        for f in FAMILIES.values()
        if Kind.ALL_REDUCE in f.kinds and f.name not in ("parameter-server", "in-network", "balanced")
    ]
    made = [family(f.name, 32, kind=Kind.ALL_REDUCE) for f in reducing]
    return [
        *made,
        ring(32, channels=3),
        ring(32, channels=2, directions=2),
        hierarchical((4, 8), channels=2),
        rail_rings(4, 8),
    ]


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("schedule", schedules(), ids=lambda s: f"{s.name}-{len(s.strands)}")
@pytest.mark.parametrize("routing", ["ecmp", "static"])
def test_folding_equals_the_unfolded_run(schedule: Schedule, name: str, routing: Routing) -> None:
    size = 1 << 24
    program = wired(schedule, name, routing)
    exact_s = folding._simulated(program, size).time_s
    if contention_free(program):
        assert max_plus_end_s(program, size).max() == pytest.approx(exact_s, rel=1e-9)
    small = fold(program)
    if small is not None:
        assert small.num_vertices < program.num_vertices * len(program.lanes)
        assert folding._simulated(small, size).time_s == pytest.approx(exact_s, rel=1e-9)
    found = price(program, size)
    assert found.exact and found.time_s == pytest.approx(exact_s, rel=1e-9)
    assert bounds(program, size).lower_s <= exact_s * (1 + 1e-9)


def test_the_steady_state_equals_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "FIRST_ROUNDS", 6)
    found = []
    for seed in range(6):
        order = [17 * i % 64 for i in range(64)]  # every hop leaves its leaf
        program = wired(ring(64, order=order), "oversubscribed", "ecmp", seed=seed)
        assert not contention_free(program)
        if (time_s := folding._periodic(program, 1 << 26)) is not None:
            found.append(time_s)
            assert time_s == pytest.approx(folding._simulated(program, 1 << 26).time_s, rel=1e-9)
    assert found


def test_folding_shrinks_a_symmetric_ring_to_one_leaf() -> None:
    small = fold(wired(ring(64, channels=4), "rail", "static"))
    assert small is not None
    assert small.num_vertices == 8  # eight GPUs of a host; hosts and channels cannot be told apart


def test_the_barrier_is_used_and_labelled_when_nothing_else_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FLOWS", "MAX_FLOWS", "MAX_PERIODIC_FLOWS"):
        monkeypatch.setattr(folding, name, 10)
    program = wired(family("tree", 64), "oversubscribed")
    found = price(program, 1 << 26)
    assert (found.method, found.exact) == ("barrier", False)
    assert found.time_s == barrier_s(program, 1 << 26)
    assert found.time_s >= bounds(program, 1 << 26).lower_s


def test_a_crowded_round_is_bounded_rather_than_simulated_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "MAX_TOGETHER", 100)
    monkeypatch.setattr(folding, "FEW_FLOWS", 100)
    found = price(wired(family("direct", 16), "rail", "ecmp", seed=3), 1 << 24)
    assert found.method in ("barrier", "folded flows", "folded recurrence", "recurrence")
    monkeypatch.setattr("syncline.sim.flow.estimate.MAX_TOGETHER", 100)
    where = fabric("rail")
    program = lower(verify(family("direct", 16)), packed(where, 16))
    with pytest.raises(SimulationError, match="240 flows in one round are too many to route adaptively"):
        estimate(program, FlowNetwork(where, NetworkOptions("adaptive")), 1 << 20)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 32), st.integers(1, 6), st.sampled_from([1, 2]), st.integers(10, 30))
def test_a_ring_meets_the_closed_form_for_every_chunking_and_channel_count(
    ranks: int, channels: int, directions: int, log_size: int
) -> None:
    """Hosts of one port at full bisection: 2(n-1) latencies, and 2(n-1)/n of the buffer over the line rate.

    A second direction does not help a host with one port: both leave by it.
    """
    size = 1 << log_size
    program = wired(ring(ranks, channels=channels, directions=directions), "fat-tree", "static", "ideal")
    got = price(program, size).time_s
    rate = float(program.solo_Bps.min())
    bytes_s = 2 * (ranks - 1) / ranks * size / rate
    latency = 2 * (ranks - 1) * float(program.latency_s.max())
    assert bytes_s * (1 - 1e-9) <= got <= (bytes_s + latency) * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["ring", "tree", "double-tree", "halving-doubling", "recursive-doubling"]),
    st.integers(1, 16), st.integers(1, 8), st.sampled_from(["ecmp", "static", "spray"]), st.integers(0, 3),
)  # fmt: skip
def test_no_setting_beats_line_rate(name: str, chunks: int, channels: int, routing: Routing, seed: int) -> None:
    size = 1 << 26
    program = wired(family(name, 32, chunks=chunks, channels=channels), "leaf-spine", routing, "ideal", seed)
    got = price(program, size).time_s
    assert got >= bounds(program, size).bandwidth_s * (1 - 1e-9)


def test_matched_rails_beat_mismatched_ones_where_the_spine_is_thin() -> None:
    spec = {"hosts": 16, "host": "8 x H100", "network": {"topology": "rail-optimized", "link": "NDR"}}
    where = build(ClusterSpec.model_validate(spec))
    network = FlowNetwork(where, NetworkOptions("ecmp", 1))
    proved = verify(ring(128))
    matched, mixed = (
        price(wire(lower(proved, place(where)), network), 1 << 30).time_s for place in (rail_aware, packed)
    )
    assert matched < 0.8 * mixed
