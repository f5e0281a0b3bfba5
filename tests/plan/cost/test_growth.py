from __future__ import annotations

import pytest

from syncline.plan.cost.growth import Trend, fit, fitted, gap, generations, to_json


def test_a_trend_is_found_again() -> None:
    trend = fit("x", [2010, 2013, 2019], [1.0, 2.0**1.5, 2.0**4.5])
    assert trend.factor == pytest.approx(2)
    assert trend.after(10) == pytest.approx(32)
    assert trend.years_to(32) == pytest.approx(10)
    assert Trend("flat", 1.0).years_to(2) == float("inf")


def test_gaps_compound() -> None:
    assert gap(Trend("a", 2), Trend("b", 1.5), 4) == pytest.approx((2 / 1.5) ** 2)


def test_generations_come_from_the_parts_catalogue() -> None:
    rows = generations()
    assert [round(row.network_Bps * 8 / 1e9) for row in rows] == [50, 200, 400, 400, 800]
    assert rows[2].flops_per_byte == pytest.approx(989.4e12 / 50e9)


def test_the_projection_is_the_fit() -> None:
    assert to_json(2.0)["after"] == pytest.approx({name: trend.factor for name, trend in fitted().items()})
