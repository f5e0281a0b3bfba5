from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import ScheduleError
from syncline.schedule.collective import ALL, OWNED, PAIRED, ROOTED, Collective, Kind, read_kind, split_bytes


def any_collective(kind: Kind, n: int) -> Collective:
    sizes = (1,) * n * n if kind is Kind.ALL_TO_ALLV else ()
    return Collective(kind, n, root=1 if kind in ROOTED else 0, peer=2 if kind is Kind.SEND_RECV else -1, sizes=sizes)


def test_givers_and_takers() -> None:
    assert Collective(Kind.ALL_REDUCE, 3).givers(2).tolist() == [ALL, ALL]
    assert Collective(Kind.REDUCE_SCATTER, 3).takers(6).tolist() == [0, 0, 1, 1, 2, 2]
    assert Collective(Kind.ALL_GATHER, 3).givers(3).tolist() == [0, 1, 2]
    assert Collective(Kind.ALL_TO_ALL, 2).givers(4).tolist() == [0, 0, 1, 1]
    assert Collective(Kind.ALL_TO_ALL, 2).takers(4).tolist() == [0, 1, 0, 1]
    assert Collective(Kind.SEND_RECV, 4, root=3, peer=1).takers(2).tolist() == [1, 1]
    assert Collective(Kind.GATHER, 2, root=1).takers(2).tolist() == [1, 1]


@pytest.mark.parametrize("kind", list(Kind))
def test_parties_of_some_chunks_are_those_of_all(kind: Kind) -> None:
    goal = any_collective(kind, 3)
    chunks = 2 * goal.num_blocks
    some = np.asarray([0, chunks - 1])
    assert goal.givers(chunks, some).tolist() == goal.givers(chunks)[some].tolist()
    assert goal.takers(chunks, some).tolist() == goal.takers(chunks)[some].tolist()
    assert goal.reduces == (goal.givers(chunks)[0] == ALL)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Collective(Kind.ALL_REDUCE, 0), "at least one rank, not 0"),
        (lambda: Collective(Kind.ALL_REDUCE, 10**9), "1,000,000,000 ranks are more than the 1,048,576"),
        (lambda: Collective(Kind.BROADCAST, 4, root=4), "root 4 is not a rank: there are 4"),
        (lambda: Collective(Kind.SEND_RECV, 4, root=1, peer=1), "needs another rank as peer, not 1"),
        (lambda: Collective(Kind.ALL_REDUCE, 4, peer=1), "all_reduce has no peer"),
        (lambda: Collective(Kind.ALL_TO_ALLV, 4), "needs sizes"),
        (lambda: Collective(Kind.ALL_GATHER, 4, sizes=(1, 2)), "has 4 blocks, not 2 sizes"),
        (lambda: Collective(Kind.ALL_GATHER, 2, sizes=(0, 0)), "add up to between 1"),
        (lambda: Collective(Kind.ALL_GATHER, 3).blocks(4), "which 4 chunks do not fill evenly"),
        (lambda: Collective(Kind.ALL_GATHER, 3).blocks(0), "a strand of 0 chunks"),
        (lambda: read_kind("gossip"), "One of: all_reduce"),
    ],
)
def test_impossible_collectives_are_refused(make: object, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)


def test_kinds_by_name() -> None:
    assert read_kind("All-Reduce") is Kind.ALL_REDUCE
    assert OWNED.isdisjoint(PAIRED)


@given(size=st.integers(0, 1 << 50), weights=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=20))
def test_splitting_is_exact_and_fair(size: int, weights: list[int]) -> None:
    if sum(weights) == 0:
        return
    parts = split_bytes(size, np.cumsum(weights)).tolist()
    assert sum(parts) == size
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * sum(weights) - size * weight) <= sum(weights)
