from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")

from syncline.errors import LostRankError, SynchronizationError
from syncline.runtime.alive.heartbeat import LEFT, Beat, read_beat
from syncline.runtime.alive.roll import Roll
from syncline.runtime.alive.verdict import Member
from syncline.runtime.alive.watchdog import Watchdog
from syncline.runtime.sync.step import Step

MEMBERS = tuple(Member(rank, f"host-{rank}") for rank in range(3))


class Post:
    """Beats of others as a test wants them, and what was said to them."""

    def __init__(self) -> None:
        self.refused: dict[int, int] = {}
        self.said: list[bytes] = []
        self._gone = threading.Event()

    def lose(self, rank: int) -> None:
        self.refused[rank] = 2

    def say(self, data: bytes) -> None:
        self.said.append(data)

    def hear(self, wait_s: float) -> list[bytes]:
        self._gone.wait(max(0.0, wait_s))
        return [Beat(rank).to_bytes("t") for rank in (1, 2) if rank not in self.refused]

    def close(self) -> None:
        pass

    @property
    def causes(self) -> set[str]:
        beats = [read_beat(data, "t", 3) for data in self.said]
        return {beat.cause for beat in beats if beat is not None and beat.cause}


class Handle:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.failures: list[BaseException] = []

    def break_off(self, failure: BaseException) -> None:
        self.failures.append(failure)


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("words that this version of a backend happens to use"),
        ConnectionResetError("Connection reset by peer"),
        SynchronizationError("a collective of FSDP2 did not finish."),
    ],
)
def test_who_meets_a_broken_connection_does_not_blame_itself_but_the_rank_that_is_gone(failure: Exception) -> None:
    post, handle = Post(), Handle()
    watchdog = Watchdog(handle, Roll(0, MEMBERS, "t", post), watch_s=10.0)
    losing = threading.Timer(0.1, post.lose, (2,))
    losing.start()
    explained = watchdog.explain(failure)
    watchdog.close()
    losing.join()
    assert isinstance(explained, LostRankError)
    assert explained.message == "rank 2 on host-2 is dead: its host answers that the process is gone."
    assert post.causes == {explained.message}


def test_a_rank_that_ends_of_a_broken_connection_tells_who_was_lost() -> None:
    post, handle = Post(), Handle()
    watchdog = Watchdog(handle, Roll(0, MEMBERS, "t", post), watch_s=10.0)
    losing = threading.Timer(0.1, post.lose, (1,))
    losing.start()
    try:
        exec("raise RuntimeError('some words of a backend')", {"__name__": "torch.distributed.distributed_c10d"})
    except RuntimeError:
        watchdog.close()
    losing.join()
    assert post.causes == {"rank 1 on host-1 is dead: its host answers that the process is gone."}


def test_a_failure_of_its_own_is_told_at_once() -> None:
    post, handle = Post(), Handle()
    watchdog = Watchdog(handle, Roll(0, MEMBERS, "t", post), watch_s=10.0)
    failure = ValueError("shard 17 is not there")
    assert watchdog.explain(failure) is failure
    watchdog.close()
    assert post.causes == {"rank 0 on host-0 failed: ValueError: shard 17 is not there"}


def test_a_goodbye_that_was_lost_is_heard_from_another() -> None:
    """Rank 2 ended as it should and only rank 1 heard it say so: it is not dead."""

    class Lossy(Post):
        def hear(self, wait_s: float) -> list[bytes]:
            self._gone.wait(max(0.0, wait_s))
            self.refused[2] = 5
            return [Beat(1, ages={0: 0.1, 2: LEFT}).to_bytes("t")]

    post, handle = Lossy(), Handle()
    watchdog = Watchdog(handle, Roll(0, MEMBERS, "t", post), watch_s=1.0)
    while sum(1 for _ in post.said) < 10:
        threading.Event().wait(0.02)
    verdict, own = watchdog.verdict, watchdog.own()
    watchdog.close()
    assert verdict is None
    assert own.ages[2] == LEFT
    assert post.causes == set()


def test_who_only_lost_its_peer_does_not_say_that_it_failed() -> None:
    post, handle = Post(), Handle()
    watchdog = Watchdog(handle, Roll(0, MEMBERS, "t", post), watch_s=0.5)
    watchdog.explain(SynchronizationError("rank 2 did not answer."))
    watchdog.close()
    assert post.causes == {"rank 0 on host-0 reports: rank 2 did not answer."}


@pytest.mark.parametrize("still_s", [0.0, 1.5])
def test_a_broken_connection_and_a_rank_that_is_not_heard_are_one_thing(still_s: float) -> None:
    """Also where this process itself stands still at first, for longer than others are listened for."""

    class Silent(Post):
        still_s = 0.0

        def hear(self, wait_s: float) -> list[bytes]:
            self._gone.wait(max(self.still_s, wait_s, 0.0))
            self.still_s = 0.0
            return [Beat(1).to_bytes("t")]  # nobody answers for rank 2 either: its link loses packets

    post, handle = Silent(), Handle()
    post.still_s = still_s
    watchdog = Watchdog(handle, Roll(0, MEMBERS, "t", post), watch_s=1.0, patience_s=600.0)
    explained = watchdog.explain(SynchronizationError("a collective of FSDP2 did not finish."))
    watchdog.close()
    assert isinstance(explained, LostRankError)
    assert explained.message.startswith("rank 2 on host-2 is lost: no rank has heard from it for ")
    assert post.causes == {explained.message}


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:17304"),
        SynchronizationError("a collective of FSDP2 did not finish.", detail="Read error: Connection reset by peer"),
    ],
)
def test_whose_connection_was_closed_is_gone_and_another_that_is_not_heard_is_not_blamed(failure: Exception) -> None:
    class Busy(Post):
        def hear(self, wait_s: float) -> list[bytes]:
            self._gone.wait(max(0.0, wait_s))
            return [Beat(1).to_bytes("t") for _ in range(1) if 1 not in self.refused]

    post, handle = Busy(), Handle()
    watchdog = Watchdog(handle, Roll(0, MEMBERS, "t", post), watch_s=2.0, patience_s=600.0)
    while watchdog.waits_for is None:
        threading.Event().wait(0.02)
    assert watchdog.waits_for.rank == 2
    losing = threading.Timer(0.1, post.lose, (1,))
    losing.start()
    explained = watchdog.explain(failure)
    watchdog.close()
    losing.join()
    assert isinstance(explained, LostRankError)
    assert explained.message == "rank 1 on host-1 is dead: its host answers that the process is gone."
