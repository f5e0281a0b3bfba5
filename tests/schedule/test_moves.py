from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import ScheduleError
from syncline.schedule.moves import MoveOp, Moves, check_round, moves_round


def listed(moves: Moves) -> set[tuple[int, int, int, int]]:
    rows = zip(moves.src.tolist(), moves.dst.tolist(), moves.chunk.tolist(), moves.op.tolist(), strict=True)
    return set(rows)


@given(
    n=st.integers(2, 6),
    chunks=st.integers(1, 7),
    low=st.integers(-9, 9),
    count=st.integers(0, 7),
    step=st.integers(-3, 3),
    hop=st.integers(-2, 2),
    repeat=st.integers(0, 6),
    j=st.integers(0, 9),
)
@settings(max_examples=80, deadline=None)
def test_a_repetition_is_what_the_formula_says(
    n: int, chunks: int, low: int, count: int, step: int, hop: int, repeat: int, j: int
) -> None:
    count = min(count, chunks)
    made = moves_round([0], [1], [low], MoveOp.COPY, count=count, repeat=repeat, chunk_step=step, dst_step=hop)
    entry = check_round(made, n, chunks, "test")
    want = {(0, (1 + j * hop) % n, (low + j * step + i) % chunks, 0) for i in range(count)}
    assert listed(entry.step(j)) == want
    assert entry.num_moves() == count * repeat
    inside = entry.runs(j).within(1, chunks - 1).singles()
    assert listed(inside) == {move for move in want if 1 <= move[2] < chunks - 1}


@given(chunks=st.integers(1, 6), low=st.integers(-8, 8), step=st.integers(-2, 2), repeat=st.integers(0, 12))
@settings(max_examples=80, deadline=None)
def test_a_pipeline_fills_and_drains(chunks: int, low: int, step: int, repeat: int) -> None:
    made = moves_round([0], [1], [low], MoveOp.REDUCE, repeat=repeat, chunk_step=step, wrap=False)
    entry = check_round(made, 2, chunks, "test")
    moved = [low + j * step for j in range(repeat) if 0 <= low + j * step < chunks]
    assert entry.num_moves() == len(moved)
    assert [c for j in range(repeat) for c in entry.step(j).chunk.tolist()] == moved


def test_repetitions_at_once_are_one_round() -> None:
    entry = moves_round([0], [1], [0], MoveOp.COPY, repeat=5, at_once=True)
    assert entry.num_rounds == 1
    assert [list(part) for part in entry.rounds()] == [[0, 1, 2, 3, 4]]


def test_single_numbers_stand_for_columns() -> None:
    entry = moves_round(np.arange(4), (np.arange(4) + 1) % 4, 7, MoveOp.COPY)
    assert entry.chunk.tolist() == [7] * 4
    assert moves_round([], [], [], []).num_rows == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": [9]}, "src 9 in row 0 is outside 0 to 1"),
        ({"dst": [0]}, "from vertex 0 to itself"),
        ({"count": 9}, "count 9 in row 0 is outside 0 to 3"),
        ({"op": 4}, "op 4 in row 0 is outside 0 to 1"),
        ({"window": 9}, "window of 9 chunks; the kernel has 3"),
        ({"dst_circle": (1, 9)}, "dst walks 1 to 9; there are 2 vertices"),
        ({"block": 2, "window": 2}, "block 2 in row 0 is outside 0 to 1"),
        ({"src": [0, 1], "dst": [1, 0, 1]}, "columns of 3 and of 2 rows"),
        ({"repeat": -1}, "cannot repeat -1 times"),
    ],
)
def test_rows_out_of_range_are_refused(change: dict[str, object], message: str) -> None:
    columns: dict[str, object] = {"src": [0], "dst": [1], "chunk": [0], "op": 0} | change
    with pytest.raises(ScheduleError, match=message):
        check_round(moves_round(**columns), 2, 3, "test")  # type: ignore[arg-type]
