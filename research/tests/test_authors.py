"""Published layouts are ranked among what their software could do."""

from __future__ import annotations

import pytest
from research.published import training_rows
from research.training.authors import RankedRun, one_per_setting, rank_run, within
from research.training.observed import ObservedRun, observe
from research.training.systems import load_systems


@pytest.fixture(scope="module")
def runs() -> list[ObservedRun]:
    return one_per_setting(observe(training_rows(0), load_systems(None))[0])


def ranked(runs: list[ObservedRun], source: str) -> RankedRun:
    found = rank_run(next(run for run in runs if run.source.startswith(source)))
    assert found is not None
    return found


def test_settings_are_distinct(runs: list[ObservedRun]) -> None:
    assert 100 < len(runs) < 250


def test_a_layout_of_2021_is_compared_with_what_2021_could_do(runs: list[ObservedRun]) -> None:
    row = ranked(runs, "Megatron-LM SC21")
    assert row.ours_s <= row.theirs_s
    assert 1 <= row.rank <= row.num_fitting
    assert "cp " not in row.ours
    assert "sequence parallel" not in row.ours
    assert "ZeRO 1" not in row.ours
    assert row.why
    assert row.to_json()["gain"] == pytest.approx(1 - row.ours_s / row.theirs_s)


def test_rows_are_counted_by_what_they_could_gain(runs: list[ObservedRun]) -> None:
    row = ranked(runs, "Korthikanti")
    assert within([row], 1.0) == 1
    assert within([row], -1.0) == 0
