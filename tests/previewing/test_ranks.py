"""Which ranks of a script are run, in which order, and that none is left behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from syncline.previewing import ranks
from syncline.previewing.child import EarlyWord, PreviewError
from syncline.previewing.ranks import Runner
from syncline.previewing.record import FEWER, STEPS, Capture, CapturedOp, steps_alike

LAUNCH: Any = SimpleNamespace(world=8)
GPU: Any = None


class Stage:
    """A child of a ring of four: it speaks at the second look and ends at the fourth; `breaks` ends with an error."""

    made: list[Stage]
    breaks: int

    def __init__(
        self, launch: object, rank: int, gpu: object, *, stages: dict[str, int], steps: int, **_: object
    ) -> None:
        self.rank, self.knows, self.looks, self.is_open, self.steps = rank, dict(stages), 0, True, steps
        self.beside = sum(other.is_open for other in Stage.made)
        Stage.made.append(self)

    @property
    def word(self) -> EarlyWord:
        return EarlyWord(((self.rank + 1) % 4, (self.rank - 1) % 4), {str(self.rank): self.rank})

    def ended(self) -> bool:
        self.looks += 1
        return self.looks > 3

    def early(self) -> EarlyWord | None:
        return self.word if self.looks > 1 else None

    def step(self) -> int:
        return 0

    def capture(self, keep: object) -> Any:
        if self.rank == Stage.breaks:
            raise PreviewError(f"rank {self.rank} crashed.")
        return SimpleNamespace(rank=self.rank, peers=self.word.peers, facts={"stages": self.word.stages})

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Runner:
    Stage.made, Stage.breaks = [], -1
    monkeypatch.setattr(ranks, "RankProcess", Stage)
    monkeypatch.setattr(ranks, "LOOK_S", 0.0)
    monkeypatch.setattr(ranks, "steps_alike", lambda _: True)
    return Runner(GPU, 1.0, 1)


def room(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(ranks, "_has_room", lambda running: running < most)


@pytest.mark.parametrize(("most", "beside"), [(1, [0, 0, 0, 0]), (2, [0, 1, 1, 1]), (9, [0, 1, 1, 1])])
def test_each_stage_begins_when_the_one_before_it_has_spoken(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, most: int, beside: list[int]
) -> None:
    room(monkeypatch, most)
    found = runner.stages(LAUNCH)
    assert [c.rank for c in found] == [s.rank for s in Stage.made] == [0, 1, 2, 3]
    assert [s.knows for s in Stage.made] == [{str(k): k for k in range(rank)} for rank in range(4)]
    assert [s.beside for s in Stage.made] == beside
    assert [s.steps for s in Stage.made] == [STEPS, FEWER, FEWER, FEWER]
    assert not any(s.is_open for s in Stage.made)


def test_where_the_first_ranks_steps_differ_all_run_every_step(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, 9)
    monkeypatch.setattr(ranks, "steps_alike", lambda _: False)
    assert [c.rank for c in runner.stages(LAUNCH)] == [0, 1, 2, 3]
    assert [s.steps for s in Stage.made[4:]] == [STEPS] * 4


def captured(*waits: tuple[int, list[int]], steps: int = STEPS, boundaries: tuple[int, ...] = (0, 2, 4, 6)) -> Capture:
    """Return three steps of a product and a sum; `waits` says what some of the six wait for."""
    waiting = dict(waits)
    ops = tuple(
        CapturedOp("kernel", 0, number % 2, 0, 0, "forward", waiting.get(number, []), [0, [number], [number]])
        for number in range(boundaries[-1])
    )
    return Capture(0, 1, ops, (), (), {}, (), (), (), boundaries, facts={"steps": steps})


def test_steps_are_alike_where_they_do_and_wait_for_the_same() -> None:
    assert steps_alike(captured())
    assert steps_alike(captured((3, [2]), (5, [4])))
    assert not steps_alike(captured((5, [4])))
    assert not steps_alike(captured(boundaries=(0, 2, 4, 7)))
    assert not steps_alike(captured(boundaries=(0, 2)))  # a script that ended early


def test_one_step_stands_for_both_only_where_one_was_asked_for() -> None:
    assert captured().laid == ((2, 4), (4, 6))
    assert captured(steps=FEWER, boundaries=(0, 2, 4)).laid == ((2, 4), (2, 4))
    assert captured(boundaries=(0, 2)).laid == ((0, 2),)


def test_ranks_that_are_only_compared_lead_to_no_others(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, 2)
    known: Any = [SimpleNamespace(rank=0, facts={"stages": {"0": 7}})]
    found = runner.others(LAUNCH, known, 3)
    last, middle, quarter = LAUNCH.world - 1, LAUNCH.world // 2, LAUNCH.world // 4
    assert [c.rank for c in found] == [quarter, middle, last]
    assert [s.knows for s in Stage.made] == [{"0": 7}] * 3


def test_an_error_leaves_no_rank_running(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, 9)
    Stage.breaks = 0
    with pytest.raises(PreviewError, match="rank 0 crashed"):
        runner.stages(LAUNCH)
    assert len(Stage.made) > 1
    assert not any(s.is_open for s in Stage.made)
