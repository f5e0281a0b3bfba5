"""Lowering keeps the meaning: programs are executed rank by rank, in random order, and compared with the collective."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.program.replay import replay

from syncline.codec.codec import Codec
from syncline.errors import ProgramError
from syncline.fabric import ClusterSpec, Fabric, build
from syncline.program import ProgramStep, lower, packed, spread, vendor
from syncline.schedule import Collective, Kind, Schedule, hierarchical, verify
from syncline.schedule import build as family

FABRIC = build(ClusterSpec.model_validate({"hosts": 4, "host": "4 x H100", "network": "leaf-spine NDR"}))


@pytest.fixture
def fabric() -> Fabric:
    return FABRIC


ALL_REDUCE = ["ring", "tree", "double-tree", "recursive-doubling", "halving-doubling", "in-network", "parameter-server"]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(ALL_REDUCE), st.integers(2, 9), st.integers(1, 200), st.integers(1, 3), st.integers(0, 5))
def test_an_all_reduce_adds_up_whatever_the_order_of_ranks(
    name: str, ranks: int, size: int, channels: int, seed: int
) -> None:
    schedule = family(name, ranks, kind=Kind.ALL_REDUCE, channels=channels)
    program = lower(verify(schedule), packed(FABRIC, ranks))
    rng = np.random.default_rng(seed)
    buffers = {rank: rng.integers(0, 1000, size) for rank in range(ranks)}
    after = replay(program, buffers, size, seed=seed)
    total = sum(buffers.values())
    assert all((after[rank] == total).all() for rank in range(ranks))


@pytest.mark.parametrize(("shape", "families"), [((3, 2), ()), ((2, 3), ("bruck", "direct"))])
def test_an_all_to_all_in_levels_lands_where_it_belongs(shape: tuple[int, int], families: tuple[str, ...]) -> None:
    ranks, block = 6, 5
    program = lower(verify(hierarchical(shape, Kind.ALL_TO_ALL, families=families)), packed(FABRIC, ranks))
    rng = np.random.default_rng(2)
    buffers = {rank: rng.integers(0, 1000, ranks * ranks * block) for rank in range(ranks)}
    after = replay(program, buffers, ranks * block)
    for giver in range(ranks):
        for taker in range(ranks):
            there = slice((giver * ranks + taker) * block, (giver * ranks + taker + 1) * block)
            assert (after[taker][there] == buffers[giver][there]).all()


@pytest.mark.parametrize(
    ("kind", "name"), [(Kind.ALL_GATHER, "ring"), (Kind.ALL_GATHER, "bruck"), (Kind.REDUCE_SCATTER, "ring")]
)
def test_owned_blocks_land_where_they_belong(kind: Kind, name: str) -> None:
    ranks, size = 6, 60
    program = lower(verify(family(name, ranks, kind=kind)), packed(FABRIC, ranks))
    rng = np.random.default_rng(1)
    buffers = {rank: rng.integers(0, 1000, size) for rank in range(ranks)}
    after = replay(program, buffers, size)
    total = np.sum(list(buffers.values()), axis=0)
    for rank in range(ranks):
        mine = slice(10 * rank, 10 * rank + 10)
        if kind is Kind.REDUCE_SCATTER:
            assert (after[rank][mine] == total[mine]).all()
        else:
            assert all((after[other][mine] == buffers[rank][mine]).all() for other in range(ranks))


def test_a_hierarchical_all_reduce_on_sixteen_ranks_adds_up(fabric: Fabric) -> None:
    program = lower(verify(hierarchical((4, 4), channels=2)), packed(fabric))
    buffers = {rank: np.arange(100) * (rank + 1) for rank in range(16)}
    after = replay(program, buffers, 100, seed=3)
    assert all((after[rank] == np.arange(100) * 136).all() for rank in range(16))


def test_sends_and_receives_of_a_pair_match_in_order_and_size(fabric: Fabric) -> None:
    program = lower(verify(hierarchical((4, 4))), spread(fabric))
    sent: dict[tuple[int, int, int], list[int]] = {}
    got: dict[tuple[int, int, int], list[int]] = {}
    for rank in range(16):
        for entry in program.rank_rounds(rank, 12_345):
            for peer, size in zip(entry.sends.peer.tolist(), entry.sends.size_bytes.tolist(), strict=True):
                sent.setdefault((rank, peer, entry.strand), []).append(size)
            for peer, size in zip(entry.receives.peer.tolist(), entry.receives.size_bytes.tolist(), strict=True):
                got.setdefault((peer, rank, entry.strand), []).append(size)
    assert sent == got


def test_a_wrong_program_is_seen_by_the_replay(fabric: Fabric) -> None:
    """The replay must be able to fail: a schedule for another collective does not add up."""
    gathered = lower(verify(family("ring", 4, kind=Kind.ALL_GATHER)), packed(fabric, 4))
    after = replay(gathered, {rank: np.full(8, rank + 1) for rank in range(4)}, 8)
    assert not (after[0] == 10).all()


def test_only_proved_schedules_are_lowered(fabric: Fabric) -> None:
    with pytest.raises(ProgramError, match="only a proved schedule can be lowered"):
        lower(family("ring", 4), packed(fabric, 4))  # type: ignore[arg-type]


def test_placement_and_schedule_must_have_the_same_ranks(fabric: Fabric) -> None:
    with pytest.raises(ProgramError, match="ring is for 4 ranks, but 5 are placed"):
        lower(verify(family("ring", 4)), packed(fabric, 5))


def test_a_vendor_collective_is_a_step_without_rounds(fabric: Fabric) -> None:
    program = vendor(Collective(Kind.ALL_REDUCE, 16), packed(fabric))
    assert program.to_json()["steps"] == [
        {"name": "nccl all_reduce", "collective": {"kind": "all_reduce", "num_ranks": 16}, "library": "nccl"}
    ]
    with pytest.raises(ProgramError, match="nccl all_reduce has no rounds of its own"):
        list(program.rank_rounds(0, 100))


def test_programs_follow_each_other_on_one_placement(fabric: Fabric) -> None:
    scatter = lower(verify(family("ring", 4, kind=Kind.REDUCE_SCATTER)), packed(fabric, 4))
    gather = lower(verify(family("ring", 4, kind=Kind.ALL_GATHER)), packed(fabric, 4), Codec("half", 0.5))
    both = scatter.then(gather)
    assert len(both.steps) == 2
    assert isinstance(both.steps[1], ProgramStep) and both.steps[1].codec.name == "half"
    after = replay(both, {rank: np.full(8, rank + 1) for rank in range(4)}, 8)
    assert all((after[rank] == 10).all() for rank in range(4))
    with pytest.raises(ProgramError, match="different placements"):
        scatter.then(lower(verify(family("ring", 4, kind=Kind.ALL_GATHER)), spread(fabric, 4)))


def test_a_program_keeps_its_schedule_factored(fabric: Fabric) -> None:
    schedule = hierarchical((4, 4))
    program = lower(verify(schedule), packed(fabric))
    step = program.steps[0]
    assert isinstance(step, ProgramStep)
    kept: Schedule = step.proved.schedule
    assert kept is schedule
