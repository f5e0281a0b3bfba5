from __future__ import annotations

import pytest

from syncline.planning.cost.growth import fit, fitted, rates, to_json


def test_a_trend_is_found_again() -> None:
    trend = fit([2010, 2013, 2019], [1.0, 2.0**1.5, 2.0**4.5])
    assert trend.factor == pytest.approx(2)
    assert trend.after(10) == pytest.approx(32)


def test_rates_come_from_the_parts_catalogue() -> None:
    assert [round(rate * 8 / 1e9) for rate in rates()["network"]] == [50, 200, 400, 400, 800]
    assert rates()["compute"][2] == pytest.approx(989.4e12)


def test_the_projection_is_the_fit_and_gaps_are_ratios() -> None:
    data, trends = to_json(2.0), fitted()
    assert data["after"] == pytest.approx({name: trend.factor for name, trend in trends.items()})
    assert data["gap_compute_to_network"] == pytest.approx(trends["compute"].factor / trends["network"].factor)
