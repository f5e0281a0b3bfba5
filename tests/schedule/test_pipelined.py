"""Chunks in pieces that follow each other: the same collective, proved move by move and executed."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.program.replay import replay
from tests.schedule.proof.reference import performs

from syncline.errors import NotProvedError, ScheduleError
from syncline.fabric import Fabric
from syncline.fabric.build import build as build_fabric
from syncline.fabric.spec import ClusterSpec
from syncline.program import lower, packed
from syncline.schedule import Kind, Schedule, build, hierarchical, ring, sent_bytes, traffic, verify
from syncline.schedule.collective import Collective
from syncline.schedule.family.all_rails import all_rails
from syncline.schedule.formats.json_file import dumps, loads
from syncline.schedule.kernel import Kernel, whole
from syncline.schedule.moves import MoveOp, moves_round
from syncline.schedule.proof.flatten import flatten
from syncline.schedule.schedule import Strand, pipelined, reordered


def schedules() -> list[Schedule]:
    return [
        ring(6),
        build("tree", 7, kind=Kind.BROADCAST, root=3, chunks=1),
        hierarchical((3, 4), families=("direct", "direct")),
        hierarchical((2, 4), Kind.ALL_GATHER, families=("halving-doubling", "direct")),
        hierarchical((2, 2, 2), families=("one-shot",) * 3),
        all_rails((3, 4), Kind.REDUCE, root=5),
    ]


@pytest.mark.parametrize("schedule", schedules(), ids=lambda s: s.name)
@pytest.mark.parametrize("pieces", [2, 5])
def test_every_move_of_a_pipeline_is_right(schedule: Schedule, pieces: int) -> None:
    cut = pipelined(schedule, pieces)
    verify(cut, method="flat")
    assert performs(flatten(cut, cut.strands[0]))
    assert cut.num_rounds == schedule.num_rounds + pieces - 1
    assert cut.num_moves == pieces * schedule.num_moves == sum(len(m) for s in cut.strands for m in s.steps())
    assert sent_bytes(cut, 9999 * pieces).sum() == traffic(cut, 9999 * pieces).nbytes.sum()


def test_pieces_are_in_flight_together() -> None:
    cut = pipelined(hierarchical((2, 2), families=("direct", "direct")), 4)
    busy = [len(np.unique(moves.chunk % 4)) for moves in cut.strands[0].steps()]
    assert busy == [1, 2, 3, 4, 3, 2, 1]


def test_a_pipeline_says_the_same_to_a_rank_as_to_all() -> None:
    cut = pipelined(hierarchical((2, 3), families=("direct", "direct")), 3)
    steps = list(cut.strands[0].steps())
    for rank in range(6):
        mine = {k: moves for _, k, moves in cut.rank_moves(rank)}
        for k, moves in enumerate(steps):
            want = np.flatnonzero((moves.src == rank) | (moves.dst == rank))
            assert len(want) == (len(mine[k]) if k in mine else 0)


def test_a_wrong_schedule_stays_wrong_in_pieces() -> None:
    goal = Collective(Kind.BROADCAST, 3)
    work = Kernel("stops early", goal, 1, (moves_round(0, 1, 0, MoveOp.COPY),))
    wrong = pipelined(Schedule("stops early", goal, (Strand((whole(work),), 1),)), 4)
    for method in ("auto", "flat"):
        with pytest.raises(NotProvedError, match="rank 2 does not end with the right chunk 0"):
            verify(wrong, method=method)


def test_a_file_keeps_the_pieces() -> None:
    cut = pipelined(build("tree", 5, chunks=1), 7)
    again = loads(dumps(cut))
    assert [strand.pieces for strand in again.strands] == [7]
    assert again.num_rounds == cut.num_rounds


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ScheduleError, match="at least one chunk, not 0"):
        pipelined(ring(4), 0)
    with pytest.raises(ScheduleError, match="only ranks that own no block can change places"):
        reordered(ring(4, Kind.ALL_GATHER), np.array([1, 0, 2, 3]))


@given(
    shape=st.sampled_from([(2, 3), (3, 2), (2, 2, 2), (1, 4), (4, 1), (2, 3, 2)]),
    kind=st.sampled_from([Kind.BROADCAST, Kind.REDUCE]),
    family=st.sampled_from(["scatter-allgather", "tree", "ring", "direct"]),
    root=st.integers(0, 100),
    pieces=st.integers(1, 4),
)
@settings(max_examples=30, deadline=None)
def test_all_rails_from_any_root(shape: tuple[int, ...], kind: Kind, family: str, root: int, pieces: int) -> None:
    schedule = all_rails(shape, kind, root=root % prod(shape), families=(family,) * len(shape))
    verify(schedule, method="factored")
    verify(pipelined(schedule, pieces), method="flat")


def test_all_rails_sends_a_share_across() -> None:
    """Across 4 hosts of 8 nobody sends more than an eighth, and the root sends the buffer once inside its host."""
    moved = traffic(all_rails((4, 8)), 8 * 7 * 3 * 1000)
    buffer = 8 * 7 * 3 * 1000
    across = moved.src // 8 != moved.dst // 8
    out = np.bincount(moved.src[across], weights=moved.nbytes[across], minlength=32)
    assert out.max() == buffer / 8
    inside = np.bincount(moved.src[~across], weights=moved.nbytes[~across], minlength=32)
    assert inside[0] == buffer
    assert inside.max() == buffer


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return build_fabric(ClusterSpec.model_validate({"hosts": 3, "host": "4 x H100", "network": "fat-tree NDR"}))


@pytest.mark.parametrize("kind", [Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE])
def test_a_pipelined_program_executes(kind: Kind, fabric: Fabric) -> None:
    made = (
        hierarchical((3, 4), families=("direct", "direct"))
        if kind is Kind.ALL_REDUCE
        else all_rails((3, 4), kind, root=6)
    )
    program = lower(verify(pipelined(made, 3)), packed(fabric))
    size = 101
    start = {rank: np.arange(size) * (rank + 1) for rank in range(12)}
    end = replay(program, start, size, seed=4)
    total = sum(start.values())
    for rank in range(12):
        if kind is Kind.BROADCAST:
            assert (end[rank] == start[6]).all()
        elif kind is Kind.ALL_REDUCE or rank == 6:
            assert (end[rank] == total).all()
