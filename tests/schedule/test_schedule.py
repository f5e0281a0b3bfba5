from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from syncline.errors import ScheduleError
from syncline.schedule import Collective, Kind, Schedule, Strand, hierarchical, parameter_server, ring
from syncline.schedule.collective import Ints
from syncline.schedule.kernel import Kernel, Stage, digits, numbering, whole


def test_the_moves_of_one_rank_are_those_of_all_that_name_it() -> None:
    for schedule in (ring(5, channels=2), hierarchical((3, 4)), parameter_server(4, servers=2)):
        for rank in (0, 3):
            want = 0
            for strand in schedule.strands:
                for moves in strand.steps():
                    want += int(((moves.src == rank) | (moves.dst == rank)).sum())
            found = list(schedule.rank_moves(rank))
            assert sum(len(moves) for _, _, moves in found) == want
            rounds = [number for strand, number, _ in found if strand == 0]
            assert rounds == sorted(rounds)


def test_digits_number_chunks() -> None:
    assert digits(((2, 3), (3, 1))).tolist() == [0, 1, 2, 3, 4, 5]
    assert digits(((2, 1), (3, 2))).tolist() == [0, 2, 4, 1, 3, 5]
    assert digits(()).tolist() == [0]
    assert numbering(((2, 3), (3, 1))) is None
    assert numbering(((2, 1), (3, 2))) is not None


def test_levels_expand_to_moves_inside_hosts_and_across() -> None:
    schedule = hierarchical((2, 3))
    inside, across, back = schedule.strands[0].stages
    for moves in inside.steps():
        assert (moves.src // 3 == moves.dst // 3).all()
    for moves in across.steps():
        assert (moves.src % 3 == moves.dst % 3).all()
    assert (inside.kernel.num_rounds, across.kernel.num_rounds, back.kernel.num_rounds) == (2, 2, 2)
    assert schedule.num_moves == sum(len(moves) for moves in schedule.strands[0].steps())


def test_uneven_chunks_follow_their_weights() -> None:
    kernel = ring(2).strands[0].stages[0].kernel
    strand = Strand((whole(kernel),), 2, weights=(1, 3))
    schedule = Schedule("uneven", Collective(Kind.ALL_REDUCE, 2), (strand,))
    assert schedule.chunk_bytes(0, 100).tolist() == [25, 75]
    assert schedule.chunk_bytes(0, 7).tolist() == [1, 6]
    assert schedule.chunk_layout(0, 100)[0].tolist() == [0, 25]


def test_uneven_blocks_follow_the_collective() -> None:
    schedule = ring(2, Kind.ALL_GATHER)
    uneven = replace(schedule, collective=Collective(Kind.ALL_GATHER, 2, sizes=(1, 9)))
    assert uneven.chunk_bytes(0, 1000).tolist() == [100, 900]


def stage(members: Ints, base: Ints, index: tuple[tuple[int, int], ...]) -> Schedule:
    kernel = ring(2).strands[0].stages[0].kernel
    return Schedule("test", Collective(Kind.ALL_REDUCE, 4), (Strand((Stage(kernel, members, base, index),), 4),))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: stage(np.array([[0, 1, 2]]), np.array([0]), ((2, 1),)), "has shape"),
        (lambda: stage(np.array([[0, 9]]), np.array([0]), ((2, 1),)), "rank 9 of a group is outside 0 to 3"),
        (lambda: stage(np.array([[1, 1]]), np.array([0]), ((2, 1),)), "same vertex twice"),
        (lambda: stage(np.array([[0, 1]]), np.array([3]), ((2, 1),)), "are outside the strand's 4"),
        (lambda: stage(np.array([[0, 1]]), np.array([0]), ((2, 0),)), "map to the same chunk"),
        (lambda: stage(np.array([[0, 1]]), np.array([0]), ((2, -1),)), "no negative strides"),
        (lambda: Schedule("none", Collective(Kind.ALL_REDUCE, 2), ()), "add up to 1, not 0"),
        (lambda: replace(ring(2), num_helpers=-1), "helpers are outside"),
        (lambda: replace(ring(2), num_helpers=1, homes=(5,)), "homes must name a rank"),
        (lambda: ring(2).chunk_bytes(0, -1), "cannot have -1 bytes"),
        (lambda: ring(4, channels=0), "1 to 1024 channels and one or two directions"),
        (lambda: ring(4, channels=10**20), "1 to 1024 channels"),
        (lambda: ring(4, order=[0, 1, 1, 2]), "must name each of the ranks"),
        (lambda: ring(4, Kind.ALL_GATHER, order=[0, 2, 1, 3]), "takes the ranks in their own order"),
        (lambda: Kernel("none", Collective(Kind.ALL_REDUCE, 2), 0, ()), "a strand of 0 chunks"),
    ],
)
def test_what_cannot_be_is_refused(make: object, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)


def test_shares_must_add_up() -> None:
    part = ring(2).strands[0]
    with pytest.raises(ScheduleError, match="add up to 1, not 5/6"):
        Schedule("x", ring(2).collective, (replace(part, share=Fraction(1, 2)), replace(part, share=Fraction(1, 3))))
