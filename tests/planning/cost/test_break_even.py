from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.break_even import break_even, break_even_rent, break_even_utilisation, break_even_years
from syncline.planning.cost.owning import Owning
from syncline.planning.cost.prices import Price, load_prices
from syncline.planning.cost.renting import Lease, Quote, rent


def quote(usd_per_gpu_hour: float, discount: float = 0.0) -> Quote:
    price = Price("instance", "X", "x", "H100-SXM5-80GB", 8, usd_per_gpu_hour * 8, "", "2026-08", "current", "test", "")
    return Quote("X", (Lease(price, 64),), 512, discount)


@given(rent_usd=st.floats(2, 30), years=st.floats(0.5, 10))
def test_at_the_break_even_use_both_cost_the_same(owned: Owning, rent_usd: float, years: float) -> None:
    use = break_even_utilisation(owned, quote(rent_usd), years)
    assert owned.cost_usd(years, use) == pytest.approx(quote(rent_usd).cost_usd(years, use), rel=1e-9)


@given(rent_usd=st.floats(2, 30), use=st.floats(0.2, 1), rate=st.floats(0, 0.2))
def test_at_the_break_even_time_both_cost_the_same(owned: Owning, rent_usd: float, use: float, rate: float) -> None:
    financed = Owning(**{**vars(owned), "assumptions": Assumptions(financing_rate=rate)})
    years = break_even_years(financed, quote(rent_usd), use)
    if math.isfinite(years):
        assert financed.cost_usd(years, use) == pytest.approx(quote(rent_usd).cost_usd(years, use), rel=1e-6)
    else:
        assert financed.cost_usd(40, use) > quote(rent_usd).cost_usd(40, use)


@given(years=st.floats(0.5, 10), use=st.floats(0.1, 1))
def test_the_break_even_rent_breaks_even(owned: Owning, years: float, use: float) -> None:
    usd = break_even_rent(owned, years, use)
    assert break_even_utilisation(owned, quote(usd), years) == pytest.approx(use, rel=1e-6)


def test_rent_below_the_power_bill_is_never_beaten(owned: Owning) -> None:
    point = break_even(owned, quote(0.01))
    assert (point.utilisation, point.years) == (math.inf, math.inf)
    assert point.saving < -1
    assert point.to_json()["utilisation"] is None
    assert break_even(owned, quote(0)).saving == -math.inf


def test_a_commitment_breaks_even_at_any_use_or_none(owned: Owning) -> None:
    assert break_even_utilisation(owned, quote(6.88, 0.3), 4) == 0
    assert break_even_utilisation(owned, quote(6.88, 0.9), 4) == math.inf


def test_resale_does_not_shorten_the_time(owned: Owning) -> None:
    resold = Owning(**{**vars(owned), "assumptions": Assumptions(resale=0.5)})
    assert break_even_years(resold, quote(4), 0.7) == break_even_years(owned, quote(4), 0.7)


def test_dearer_clouds_break_even_sooner(owned: Owning) -> None:
    points = [break_even(owned, each) for each in rent({"H100-SXM5-80GB": 512}, load_prices())]
    assert [p.utilisation for p in points] == sorted((p.utilisation for p in points), reverse=True)
    assert [p.years for p in points] == sorted((p.years for p in points), reverse=True)
    assert [p.saving for p in points] == sorted(p.saving for p in points)
