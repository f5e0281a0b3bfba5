from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline.errors import NotProvedError, ScheduleError
from syncline.schedule import Collective, Kind, Schedule, Strand, hierarchical, ring, verify
from syncline.schedule.kernel import Kernel, whole
from syncline.schedule.moves import MoveOp, moves_round
from syncline.schedule.proof.field import Counts, Residues
from syncline.schedule.proof.verify import _check_all, prove_kernel


def schedule_of(kernel: Kernel) -> Schedule:
    return Schedule(kernel.name, kernel.goal, (Strand((whole(kernel),), kernel.num_chunks),))


def test_ring_that_reduces_twice_fails() -> None:
    right = ring(8).strands[0].stages[0].kernel
    scatter, gather = right.rounds
    wrong = replace(right, rounds=(replace(scatter, repeat=1), scatter, gather))
    with pytest.raises(NotProvedError) as caught:
        verify(schedule_of(wrong))
    assert "rank 0 does not end with the right chunk" in str(caught.value)
    assert "twice" in caught.value.detail


def test_missing_contributor_is_named_with_rounds() -> None:
    goal = Collective(Kind.REDUCE, 3)
    kernel = Kernel("two of three", goal, 1, (moves_round([1], [0], [0], MoveOp.REDUCE),))
    with pytest.raises(NotProvedError) as caught:
        prove_kernel(kernel)
    assert caught.value.detail == (
        "Expected one contribution of every rank 0 to 2; found rank 2 missing. Written in round 0 (reduce from 1)."
    )


def test_reducing_into_data_nobody_gave_fails() -> None:
    goal = Collective(Kind.BROADCAST, 2)
    kernel = Kernel("added", goal, 1, (moves_round([0], [1], [0], MoveOp.REDUCE),))
    with pytest.raises(NotProvedError, match="what its buffer held before"):
        prove_kernel(kernel)


def test_copy_into_a_chunk_that_is_sent_in_the_same_round_is_unsafe() -> None:
    goal = Collective(Kind.BROADCAST, 3)
    rounds = (moves_round([0, 1], [1, 2], [0, 0], MoveOp.COPY), moves_round([0], [2], [0], MoveOp.COPY))
    with pytest.raises(NotProvedError, match=r"rank 1 gets a copy of chunk 0 in round 0.*also sent on"):
        prove_kernel(Kernel("race", goal, 1, rounds))


def test_two_copies_into_one_chunk_are_unsafe() -> None:
    goal = Collective(Kind.BROADCAST, 2)
    rounds = (moves_round([0, 0], [1, 1], [0, 0], MoveOp.COPY),)
    with pytest.raises(NotProvedError, match="also written by another move"):
        prove_kernel(Kernel("race", goal, 1, rounds))


@pytest.mark.parametrize("numbers", [Counts(24), Residues(3)])
@pytest.mark.parametrize("width", [24, 7, 1])
def test_numbers_and_slices_agree(numbers: Counts | Residues, width: int) -> None:
    right = ring(24).strands[0].stages[0].kernel
    _check_all(right, numbers, width)
    wrong = replace(right, rounds=(right.rounds[0], replace(right.rounds[1], repeat=22)))
    with pytest.raises(NotProvedError):
        _check_all(wrong, numbers, width)


def test_large_ring_is_proved_and_a_large_wrong_one_is_refused() -> None:
    right = ring(500).strands[0].stages[0].kernel
    assert "symmetry" in prove_kernel(right)
    wrong = replace(right, rounds=(replace(right.rounds[0], chunk_step=1), right.rounds[1]))
    with pytest.raises(NotProvedError, match="rank 0 does not end with the right chunk 0"):
        prove_kernel(wrong)


def test_counts_cannot_come_back_to_one() -> None:
    doubling = [moves_round([0], [1], [0], MoveOp.REDUCE), moves_round([1], [0], [0], MoveOp.REDUCE)] * 70
    kernel = Kernel("doubling", Collective(Kind.ALL_REDUCE, 2), 1, tuple(doubling))
    with pytest.raises(NotProvedError):
        prove_kernel(kernel)


def test_stages_that_do_not_add_up_are_refused() -> None:
    right = hierarchical((3, 4))
    stages = right.strands[0].stages
    for wrong in (stages[:2], stages[1:], stages[::-1], (stages[0], stages[1], stages[1], stages[2])):
        broken = Schedule("broken", right.collective, (Strand(wrong, right.strands[0].num_chunks),))
        for method in ("flat", "factored"):
            with pytest.raises(NotProvedError):
                verify(broken, method=method)


def test_two_groups_on_one_rank_and_chunk_are_refused() -> None:
    right = hierarchical((2, 2)).strands[0]
    stage = right.stages[0]
    overlapping = replace(stage, members=np.array([[0, 1], [1, 2]]))
    broken = Schedule("overlap", Collective(Kind.ALL_REDUCE, 4), (Strand((overlapping,), right.num_chunks),))
    with pytest.raises(NotProvedError, match="share a rank and a chunk"):
        verify(broken, method="factored")


def test_unknown_method_is_refused() -> None:
    with pytest.raises(ScheduleError, match="One of: auto, flat, factored"):
        verify(ring(2), method="magic")
