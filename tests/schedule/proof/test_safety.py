"""Buffer safety, round by round: what meets in a later repetition is found as well as what meets in the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.errors import NotProvedError
from syncline.schedule import Kind
from syncline.schedule.collective import Collective
from syncline.schedule.kernel import Kernel
from syncline.schedule.moves import MoveOp, Moves, Round
from syncline.schedule.proof import safety

RANKS, CHUNKS = 4, 4


def rows(*moves: tuple[int, int, int, MoveOp], block: tuple[int, ...] = (), **options: Any) -> Round:
    """Return a round of moves (source, destination, chunk, what it does) of one chunk each."""
    src, dst, chunk, op = (np.array(column) for column in zip(*moves, strict=True))
    blocks = np.array(block or (0,) * len(moves))
    return Round(src, dst, chunk, np.ones(len(moves), np.int64), op.astype(np.uint8), blocks, **options)


def check(*rounds: Round) -> None:
    kernel = Kernel("by hand", Collective(Kind.ALL_REDUCE, RANKS), CHUNKS, rounds)
    safety.check_safety(kernel, kernel.num_chunks)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list that gets (round, moves) of everything that is looked at."""
    seen: list[tuple[int, int]] = []
    real = safety._check_round

    def noted(kernel: Kernel, moves: Moves, number: int) -> None:
        seen.append((number, len(moves.src)))
        real(kernel, moves, number)

    monkeypatch.setattr(safety, "_check_round", noted)
    return seen


def test_what_repeats_alike_is_looked_at_once(looks: list[tuple[int, int]]) -> None:
    check(rows((0, 1, 0, MoveOp.COPY), (1, 2, 1, MoveOp.COPY), repeat=3, chunk_step=1))
    assert looks == [(0, 2)]


def test_reductions_alone_and_what_never_happens_are_not_looked_at(looks: list[tuple[int, int]]) -> None:
    check(rows((0, 2, 0, MoveOp.REDUCE), (1, 2, 0, MoveOp.REDUCE), repeat=2, dst_step=1))
    check(
        rows((0, 2, 0, MoveOp.COPY), (1, 2, 0, MoveOp.COPY), repeat=0),
        rows((0, 1, 0, MoveOp.COPY), repeat=0, at_once=True),
    )
    assert looks == []


def test_no_more_moves_are_looked_at_together_than_a_slice(
    looks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safety, "SLICE", 2)
    check(rows((0, 1, 0, MoveOp.COPY), repeat=4, chunk_step=1, at_once=True))  # four moves of four chunks: two and two
    assert looks == [(0, 2), (0, 2)]
    looks.clear()
    check(rows((0, 1, 0, MoveOp.COPY), (2, 3, 1, MoveOp.COPY), repeat=4, chunk_step=1))  # two at a time: in one piece
    assert looks == [(0, 2)]
    looks.clear()
    six = [*((0, 1, chunk, MoveOp.COPY) for chunk in range(CHUNKS)), (2, 3, 0, MoveOp.COPY), (2, 3, 1, MoveOp.COPY)]
    check(rows(*six, repeat=2, dst_step=2))  # six moves: a chunk at a time, and both repetitions of each
    assert looks == [(0, 2), (1, 2), (0, 2), (1, 2), (0, 1), (1, 1), (0, 1), (1, 1)]


def test_a_copy_to_a_walking_destination_meets_a_read_in_a_later_repetition() -> None:
    moves = ((0, 1, 2, MoveOp.COPY), (3, 2, 2, MoveOp.COPY))
    check(rows(*moves))  # ranks 1 and 2 get it, from ranks 0 and 3
    with pytest.raises(NotProvedError, match=r"rank 3 gets a copy of chunk 2 in round 1, .* also sent on\."):
        check(rows(*moves, repeat=2, dst_step=1))  # then rank 3 gets what it sends on


def test_a_walking_source_meets_a_copy_in_a_later_repetition() -> None:
    with pytest.raises(NotProvedError, match=r"rank 1 gets a copy of chunk 0 in round 1, .* also sent on\."):
        check(rows((0, 1, 0, MoveOp.COPY), (0, 2, 0, MoveOp.COPY), repeat=2, src_step=1))


def test_circles_of_chunks_that_do_not_lie_on_each_other_meet_in_a_later_repetition() -> None:
    moves = ((0, 2, 0, MoveOp.COPY), (1, 2, 1, MoveOp.COPY))
    options: dict[str, Any] = {"chunk_step": 1, "window": 2}
    check(rows(*moves, repeat=2, **options))  # the same circle: never on the same chunk
    with pytest.raises(NotProvedError, match=r"rank 2 gets a copy of chunk 1 in round 1, .* written by another move\."):
        check(rows(*moves, repeat=2, block=(0, 1), **options))


def test_a_pipeline_that_fills_meets_in_the_repetition_in_which_it_begins() -> None:
    moves = ((0, 2, -1, MoveOp.COPY), (1, 2, -1, MoveOp.COPY))
    with pytest.raises(NotProvedError, match=r"rank 2 gets a copy of chunk 0 in round 1, .* written by another move\."):
        check(rows(*moves, repeat=2, chunk_step=1, window=CHUNKS, wrap=False))


def test_rounds_are_counted_over_all_entries() -> None:
    quiet = rows((0, 1, 0, MoveOp.COPY), repeat=3, chunk_step=1)
    with pytest.raises(NotProvedError, match="rank 2 gets a copy of chunk 3 in round 3,"):
        check(quiet, rows((0, 2, 3, MoveOp.COPY), (1, 2, 3, MoveOp.COPY)))


def test_repetitions_at_once_are_one_round() -> None:
    moves = ((0, 1, 0, MoveOp.COPY),)
    check(rows(*moves, repeat=4, src_step=0, chunk_step=1, at_once=True))
    with pytest.raises(NotProvedError, match="written by another move"):
        check(rows(*moves, repeat=CHUNKS + 1, chunk_step=1, at_once=True))  # the fifth lands on the first


@pytest.mark.parametrize(
    ("other", "is_safe"),
    [
        ((1, 2, 0, MoveOp.REDUCE), False),  # added to what the copy replaces
        ((2, 3, 0, MoveOp.REDUCE), False),  # read where the copy lands
        ((2, 3, 1, MoveOp.REDUCE), True),  # another chunk
        ((1, 3, 0, MoveOp.REDUCE), True),  # another rank
    ],
)
def test_a_copy_meets_a_reduction(other: tuple[int, int, int, MoveOp], is_safe: bool) -> None:
    both = rows((0, 2, 0, MoveOp.COPY), other)
    if is_safe:
        check(both)
    else:
        with pytest.raises(NotProvedError, match="rank 2 gets a copy of chunk 0"):
            check(both)


def test_reductions_may_meet_reads_and_each_other() -> None:
    check(rows((0, 2, 0, MoveOp.REDUCE), (1, 2, 0, MoveOp.REDUCE), (2, 3, 0, MoveOp.REDUCE)))


def test_slices_of_chunks_find_what_the_whole_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "SLICE", 1)
    with pytest.raises(NotProvedError, match="rank 2 gets a copy of chunk 3 in round 0"):
        check(rows((0, 2, 3, MoveOp.COPY), (1, 2, 3, MoveOp.COPY)))
    check(rows((0, 2, 3, MoveOp.COPY), (1, 2, 2, MoveOp.COPY)))
