from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import CostError
from syncline.planning.cost.checkpoint import best_interval_s, daly_s, goodput, young_s


@given(write=st.floats(0.01, 1e4), mttf=st.floats(60, 1e8), restart=st.floats(0, 1e3))
def test_no_other_interval_leaves_more(write: float, mttf: float, restart: float) -> None:
    best = float(best_interval_s(write, mttf))
    assert 0 < best <= mttf
    others = best * np.array([0.5, 0.9, 0.999, 1.001, 1.1, 2.0])
    assert np.all(goodput(others, write, mttf, restart) <= goodput(best, write, mttf, restart) * (1 + 1e-9))


@given(write=st.floats(1, 100), mttf=st.floats(1e5, 1e8))
def test_young_and_daly_are_close_where_failures_are_rare(write: float, mttf: float) -> None:
    best = float(best_interval_s(write, mttf))
    assert daly_s(write, mttf) == pytest.approx(best, rel=2e-3)
    assert young_s(write, mttf) == pytest.approx(best, rel=0.05)


def test_daly_is_nearer_than_young_where_failures_are_common() -> None:
    best = float(best_interval_s(100, 2000))
    assert abs(daly_s(100, 2000) - best) < 0.02 * abs(young_s(100, 2000) - best)
    assert daly_s(5000, 2000) == 2000


def test_free_checkpoints_are_written_all_the_time() -> None:
    assert list(best_interval_s([0, 100], 1e4)) == pytest.approx([0, 1348.35], abs=0.01)


def test_goodput_is_what_random_failures_leave() -> None:
    """Play 100,000 pieces of work with failures drawn at random, restarts among them."""
    rng = np.random.default_rng(7)
    work, write, mttf, restart = 3000.0, 200.0, 8000.0, 600.0
    spent = 0.0
    waiting = np.full(100_000, work + write)
    while len(waiting):
        failure = rng.exponential(mttf, len(waiting))
        spent += np.minimum(failure, waiting).sum()
        failed = int((failure < waiting).sum())
        # A restart that is interrupted begins again.
        restarts = failed
        while restarts:
            failure = rng.exponential(mttf, restarts)
            spent += np.minimum(failure, restart).sum()
            restarts = int((failure < restart).sum())
        waiting = np.full(failed, work + write)
    assert 100_000 * work / spent == pytest.approx(float(goodput(work, write, mttf, restart)), rel=5e-3)


def test_hopeless_jobs_get_nothing_done_and_sure_ones_lose_only_checkpoints() -> None:
    assert goodput(1e6, 100, 10) == 0
    assert goodput(900, 100, 1e12, 600) == pytest.approx(0.9)


def test_times_that_cannot_be_are_refused() -> None:
    with pytest.raises(CostError, match="the time of a checkpoint"):
        young_s(-1, 100)
    with pytest.raises(CostError, match="mean time to failure"):
        best_interval_s(1, 0)
    with pytest.raises(CostError, match="interval must be positive"):
        goodput(0, 1, 100)
