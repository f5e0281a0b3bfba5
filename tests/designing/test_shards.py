"""A design's search in shards finds what one search finds, goes on where it was interrupted, and runs on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from syncline.designing.choice import space
from syncline.designing.point import DesignPoint, DesignSearch
from syncline.designing.search import Designer
from syncline.designing.shards import Shard, ShardResult, run_spread
from syncline.errors import PlanError, UsageError
from syncline.planning.named_job import named_job
from syncline.planning.rayrun import ray_tasks
from syncline.questions.design import design

CHOICES = tuple(space(("dgx-h100",), (64,), ("NDR", "400GbE")))[::3]
Look = Callable[[Shard], ShardResult]


def _designer(state: Path | None = None) -> Designer:
    return Designer(((named_job("llama3-70b"), 1.0),), state=state)


@pytest.fixture(scope="module")
def whole() -> DesignSearch:
    """Return what one search finds."""
    return _designer().run(CHOICES)


def _front(points: Iterable[DesignPoint]) -> list[tuple[str, float]]:
    return [(point.choice.label, point.s_per_token) for point in points]


def test_shards_find_the_same_front_and_go_on_after_an_interrupt(whole: DesignSearch, tmp_path: Path) -> None:
    state = tmp_path / "state.json"

    def interrupted(look: Look, shards: Iterable[Shard]) -> Iterator[ShardResult]:
        yield look(next(iter(shards)))
        raise KeyboardInterrupt

    first = run_spread(_designer(state), CHOICES, interrupted)
    assert not first.complete and 0 < first.num_planned < whole.num_choices
    seen: list[Shard] = []

    def all_of_them(look: Look, shards: Iterable[Shard]) -> Iterator[ShardResult]:
        for shard in shards:
            seen.append(shard)
            yield look(shard)

    again = run_spread(_designer(state), CHOICES, all_of_them)
    assert again.complete and again.num_choices == whole.num_choices
    assert len(seen) > 1 and seen[0].kept and not seen[0].rivals and seen[1].rivals  # known results bound later shards
    assert _front(again.front()) == _front(whole.front())


def test_an_interrupt_before_anything_was_planned_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Designer, "_look", at_once)
    with pytest.raises(PlanError, match="interrupted before one of"):
        design("llama3-70b", gpus=64, links=("NDR",))


def test_another_place_is_refused() -> None:
    with pytest.raises(UsageError, match='`on` "spark" is not known'):
        design("llama3-70b", gpus=64, on="spark")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_real_local_ray_designs_the_same(whole: DesignSearch) -> None:
    ray = pytest.importorskip("ray", reason='Ray is an extra: pip install "syncline[ray]"')
    try:
        there = run_spread(_designer(), CHOICES, lambda look, shards: ray_tasks(ray, look, shards, num_cpus=1))
    finally:
        ray.shutdown()
    assert _front(there.front()) == _front(whole.front())
