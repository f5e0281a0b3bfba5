"""Which ranks of a script are run, in which order, and that none is left behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from syncline.preview import ranks
from syncline.preview.child import EarlyWord, PreviewError
from syncline.preview.ranks import Runner

LAUNCH: Any = SimpleNamespace(world=8)
GPU: Any = None


class Stage:
    """A child of a ring of four: it speaks at the second look and ends at the fourth; `breaks` ends with an error."""

    made: list[Stage]
    breaks: int

    def __init__(self, launch: object, rank: int, gpu: object, *, stages: dict[str, int], **_: object) -> None:
        self.rank, self.knows, self.looks, self.is_open = rank, dict(stages), 0, True
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
    assert not any(s.is_open for s in Stage.made)


def test_ranks_that_are_only_compared_lead_to_no_others(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, 2)
    known: Any = [SimpleNamespace(facts={"stages": {"0": 7}})]
    found = runner.others(LAUNCH, [5, 2, 3], known)
    assert [c.rank for c in found] == [2, 3, 5]
    assert [s.knows for s in Stage.made] == [{"0": 7}] * 3


def test_an_error_leaves_no_rank_running(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, 9)
    Stage.breaks = 0
    with pytest.raises(PreviewError, match="rank 0 crashed"):
        runner.stages(LAUNCH)
    assert len(Stage.made) > 1
    assert not any(s.is_open for s in Stage.made)
