"""The threads of a handle: what is given ahead, what keeps its order, what a failure ends."""

from __future__ import annotations

import queue

import pytest

from syncline.runtime.sync.conveyor import BucketJob, Conveyor


class Piece:
    """Notes what is called, in which thread; `fails` says which stage raises."""

    def __init__(self, number: int, notes: list[tuple[str, int]], *, ordered: bool = False, fails: str = "") -> None:
        self.number, self.ordered = number, ordered
        self._notes, self._fails = notes, fails

    def _note(self, stage: str) -> None:
        self._notes.append((stage, self.number))
        if stage == self._fails:
            raise ValueError(f"{stage} of {self.number}")

    def prepare(self) -> None:
        self._note("prepare")

    def send(self) -> None:
        self._note("send")

    def fail(self) -> None:
        self._note("fail")

    def sum_up(self) -> None:
        self._note("sum_up")

    def post(self) -> None:
        self._note("post")

    def collect(self) -> None:
        self._note("collect")


def run(pieces: list[Piece], ahead: int) -> list[BaseException | None]:
    """Run two jobs of these pieces and return how they ended."""
    ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    conveyor, half = Conveyor("test", ahead=ahead), len(pieces) // 2
    jobs = [BucketJob(list(part), ends.put) for part in (pieces[:half], pieces[half:])]
    for job in jobs:
        conveyor.submit(job)
    found = [ends.get(timeout=60) for _ in jobs]
    conveyor.close()
    return found


@pytest.mark.parametrize("ahead", [0, 2])
def test_every_piece_goes_through_its_stages_in_order(ahead: int) -> None:
    notes: list[tuple[str, int]] = []
    assert run([Piece(k, notes) for k in range(6)], ahead) == [None, None]
    for stage in ("prepare", "send", "sum_up", "post", "collect"):
        assert [number for name, number in notes if name == stage] == list(range(6))
    for number in range(6):
        own = [name for name, n in notes if n == number]
        assert own == ["prepare", "send", "sum_up", "post", "collect"]


def test_a_device_is_given_pieces_before_the_first_is_waited_for() -> None:
    notes: list[tuple[str, int]] = []
    run([Piece(k, notes) for k in range(6)], 2)
    first = notes.index(("send", 0))
    assert {("prepare", 0), ("prepare", 1), ("prepare", 2)} <= set(notes[:first])


@pytest.mark.parametrize("ahead", [0, 2])
def test_an_ordered_piece_is_collected_before_the_next_is_summed(ahead: int) -> None:
    notes: list[tuple[str, int]] = []
    assert run([Piece(k, notes, ordered=True) for k in range(4)], ahead) == [None, None]
    for number in range(3):
        assert notes.index(("collect", number)) < notes.index(("sum_up", number + 1))


@pytest.mark.parametrize("stage", ["prepare", "send", "sum_up", "post", "collect"])
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_failure_ends_its_job_and_all_later_ones(ahead: int, stage: str) -> None:
    notes: list[tuple[str, int]] = []
    pieces = [Piece(k, notes, fails=stage if k == 1 else "") for k in range(6)]
    ended = run(pieces, ahead)
    assert [str(failure) for failure in ended] == [f"{stage} of 1"] * 2
    if stage in ("prepare", "send"):
        assert ("fail", 1) in notes
