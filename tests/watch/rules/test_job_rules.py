"""Which collectives of a job are compared with its plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from syncline.watch.rules.job_rules import RECENT, SlowerThanPlanned


def test_a_collective_is_compared_once_it_ran_often_enough_and_is_predicted() -> None:
    def collective(key: str, num: int, is_told: bool = True) -> SimpleNamespace:
        return SimpleNamespace(key=key, num=num, is_told=is_told, recent_s=0.2, predicted_s=0.1)

    seen = [collective("few", RECENT - 1), collective("enough", RECENT), collective("unknown", RECENT, False)]
    context: Any = SimpleNamespace(frame=SimpleNamespace(job=SimpleNamespace(collectives=seen, steps=[])))
    assert list(SlowerThanPlanned().cases(context)) == [("enough", 0.2, 0.1)]
