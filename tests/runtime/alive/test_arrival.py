"""Ranks that must come together: who is missing is named, and who differs at the end is too; nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
import torch.distributed as dist

from syncline.errors import LostRankError, ReplicaError
from syncline.runtime.alive import arrival, replicas


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Threads of this process as ranks: each says who it is."""
    own = threading.local()
    store: Any = dist.HashStore()
    counts: dict[tuple[int, str], int] = {}

    class Calls:
        def __getitem__(self, name: str) -> int:
            return counts.get((own.rank, name), 0)

        def __setitem__(self, name: str, count: int) -> None:
            counts[own.rank, name] = count

    monkeypatch.setattr(arrival, "_calls", Calls())
    monkeypatch.setattr(arrival.dist, "get_rank", lambda group=None: own.rank)
    monkeypatch.setattr(arrival.dist, "get_process_group_ranks", lambda group: [0, 1, 2])
    monkeypatch.setattr(arrival.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(arrival, "host_name", lambda: f"host-{own.rank}")

    def run(who: list[int], work: Any) -> dict[int, BaseException | None]:
        found: dict[int, BaseException | None] = {}

        def one(rank: int) -> None:
            own.rank = rank
            try:
                work(rank)
                found[rank] = None
            except Exception as error:
                found[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in who]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return found

    yield run


def test_a_rank_that_does_not_call_synchronize_is_named(ranks: Any) -> None:
    found = ranks([0, 2], lambda rank: arrival.meet_to_start(None, 0.2))
    for rank in (0, 2):
        error = found[rank]
        assert isinstance(error, LostRankError)
        assert error.message == f"rank 1 has not called synchronize, and rank {rank} on host-{rank} has."
        assert (error.rank, error.phase) == (1, "start")


def test_all_who_come_go_on_and_may_come_again(ranks: Any) -> None:
    for _ in range(2):
        assert ranks([0, 1, 2], lambda rank: arrival.meet_to_start(None, 60.0)) == dict.fromkeys((0, 1, 2))


def test_weights_that_differ_at_the_end_are_named_and_nobody_is_waited_for_for_ever(ranks: Any) -> None:
    team: Any = SimpleNamespace(names=(0, 1, 2))
    prints = {0: [5, 7, 9], 1: [5, 8, 9], 2: [5, 7, 9]}

    def compare(rank: int) -> None:
        replicas.compare_at_end(torch.tensor(prints[rank]), ["a", "b", "c"], team, 40, 60.0)

    for error in ranks([0, 1, 2], compare).values():
        assert isinstance(error, ReplicaError)
        assert error.message == 'replicas of "b" differ at step 40: rank 1 is not like the others.'
    prints[1] = prints[0]
    assert ranks([0, 1, 2], compare) == dict.fromkeys((0, 1, 2)), "all alike"
    alone = ranks([0], lambda rank: replicas.compare_at_end(torch.tensor([1]), ["a"], team, 40, 0.1))
    assert alone == {0: None}, "the others never come"
