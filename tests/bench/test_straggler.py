"""Stragglers stand out; noise and a single hiccup do not."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.bench.straggler import findings, stragglers


def table(seed: int, ranks: int = 16, times: int = 20, noise: float = 0.03) -> np.ndarray:
    return 0.1 * np.exp(np.random.default_rng(seed).normal(0, noise, (ranks, times)))


def test_planted_stragglers_are_found_and_nobody_else() -> None:
    hits, extra = 0, 0
    for seed in range(200):
        times = table(seed)
        rank = seed % 16
        times[rank] *= 1.25 + seed / 400
        found = stragglers(times)
        hits += rank in [one.rank for one in found]
        extra += len([one for one in found if one.rank != rank])
    assert hits == 200 and extra == 0


def test_clean_tables_raise_no_alarm() -> None:
    assert sum(len(stragglers(table(seed, noise=noise))) for seed in range(200) for noise in (0.001, 0.03, 0.2)) == 0


def test_one_hiccup_is_no_straggler() -> None:
    times = table(1)
    times[3, 4] *= 50
    assert stragglers(times) == []


@pytest.mark.parametrize(("times_slow", "is_named"), [(13, False), (14, True)])
def test_a_straggler_is_slow_in_seven_of_ten_repetitions(times_slow: int, is_named: bool) -> None:
    times = np.full((8, 20), 0.1)
    times[3, :times_slow] = 0.2
    assert [one.rank for one in stragglers(times)] == ([3] if is_named else [])


def test_an_excess_nobody_cares_about_is_left_out() -> None:
    times = table(3) * 1e-6
    times[0] *= 2
    assert stragglers(times) and not stragglers(times, least_s=1e-3)


def test_a_finding_names_rank_and_host() -> None:
    times = table(4)
    times[2] *= 1.5
    (finding,) = findings(stragglers(times), [f"host-{i}" for i in range(16)], "its step")
    assert finding.place == "rank 2 on host-2" and 0.5 < finding.confidence <= 1
    assert "of the repetitions" in finding.observed


@pytest.mark.parametrize("shape", [(2, 5), (4, 0)])
def test_too_little_to_tell(shape: tuple[int, int]) -> None:
    assert stragglers(np.ones(shape)) == []


def test_a_rank_that_is_always_late_by_very_different_amounts() -> None:
    others = np.tile([0.31, 0.27, 0.29, 0.30, 0.31, 0.32, 0.33, 0.30, 0.31], (5, 1)) + np.arange(5)[:, None] * 0.004
    late = np.array([[0.40, 0.68, 1.24, 0.78, 0.63, 0.47, 0.47, 0.92, 1.20]])
    (found,) = stragglers(np.concatenate([others, late]), least_s=1e-3)
    assert found.rank == 5 and found.share_of_times == 1.0
    now_and_then = np.array([[0.31, 0.27, 1.24, 0.30, 0.31, 0.32, 0.47, 0.92, 1.20]])
    assert stragglers(np.concatenate([others, now_and_then]), least_s=1e-3) == []
