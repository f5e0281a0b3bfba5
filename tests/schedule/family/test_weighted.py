from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import ScheduleError
from syncline.schedule import balanced, build, ring, verify, weighted
from syncline.schedule.counts import counted_cost, sent_bytes
from syncline.schedule.family.weighted import owned_shares, rail_bound, rate_shares, speed_bound


def test_rails_of_100_and_400_finish_together() -> None:
    rates = [12.5e9, 50e9]
    for make in (lambda: ring(8), lambda: build("tree", 8), lambda: build("hierarchical", 16, shape=(2, 8))):
        schedule = verify(weighted(make, rates)).schedule
        assert {strand.rail: strand.share for strand in schedule.strands} == {0: Fraction(1, 5), 1: Fraction(4, 5)}
        found = rail_bound(schedule, rates, 1 << 30)
        assert found.time_s == pytest.approx(found.bound_s)


def test_equal_shares_on_unequal_rails_miss_the_bound() -> None:
    found = rail_bound(weighted(lambda: ring(8), [1.0, 1.0]), [12.5e9, 50e9], 1 << 30)
    assert found.time_s == pytest.approx(2.5 * found.bound_s)


@given(rates=st.lists(st.floats(1e8, 1e11), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_shares_follow_rates(rates: list[float]) -> None:
    shares = rate_shares(rates)
    assert sum(shares) == 1
    for share, rate in zip(shares, rates, strict=True):
        assert float(share) == pytest.approx(rate / sum(rates), rel=1e-3)


@given(speeds=st.lists(st.floats(1.0, 50.0), min_size=2, max_size=9))
@settings(max_examples=80, deadline=None)
def test_ranks_of_different_speed_finish_as_early_as_the_bound_allows(speeds: list[float]) -> None:
    schedule = verify(balanced(speeds)).schedule
    found = speed_bound(schedule, speeds, 1 << 20)
    assert found.time_s >= found.bound_s * (1 - 1e-9)
    assert found.time_s <= found.bound_s * (1 + 1e-4)
    sent = sent_bytes(schedule, 1 << 20)
    total = sum(schedule.strands[0].weights)
    for rank, weight in enumerate(schedule.strands[0].weights):
        exact = (1 + (len(speeds) - 2) * weight / total) * (1 << 20)
        assert abs(int(sent[rank]) - exact) <= len(speeds) + 1


def test_shares_of_ranks_add_up() -> None:
    assert sum(owned_shares([1, 2, 3, 4, 5])) == 1 << 20
    assert owned_shares([7.0, 1.0]) == (1, 1)
    assert counted_cost(balanced([3.0])).sent_total == 0


def test_wrong_rates_are_refused() -> None:
    for rates in ([], [0.0], [1.0, -1.0]):
        with pytest.raises(ScheduleError, match="above zero"):
            rate_shares(rates)
    with pytest.raises(ScheduleError, match="speed above zero"):
        owned_shares([0.0, 1.0])
