from __future__ import annotations

import pytest

from syncline.errors import CostError
from syncline.planning.cost.charge import buy, cost_per_run, cost_per_step, cost_per_token, payback


def test_costs_by_hand() -> None:
    assert cost_per_step(3.6, 2.0, 1000) == pytest.approx(2.0)
    assert cost_per_token(3.6, 4e6, 2.0, 1000) == pytest.approx(0.5e-6)
    assert cost_per_run(3.6, 1000, 2.0, 1000, goodput=0.5) == pytest.approx(4000)


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_time_that_is_not_positive_is_refused(time: float) -> None:
    with pytest.raises(CostError, match="must be positive, got"):
        cost_per_step(time, 2.0, 8)


def test_nothing_trained_is_refused() -> None:
    with pytest.raises(CostError, match="the tokens of a step must be positive, got 0"):
        cost_per_token(1.0, 0, 2.0, 8)
    with pytest.raises(CostError, match="the number of steps must be positive, got 0"):
        cost_per_run(1.0, 0, 2.0, 8)
    with pytest.raises(CostError, match="at most 1, got 0"):
        cost_per_run(1.0, 1, 2.0, 8, goodput=0)


def test_an_upgrade_pays_back_when_the_freed_time_is_worth_its_price() -> None:
    found = payback(72_000, 2.0, 1.5, usd_per_gpu_hour=2.0, num_gpus=100, utilisation=0.5)
    assert found.time_saved == 0.25
    assert found.usd_per_day == pytest.approx(0.25 * 2 * 100 * 24 * 0.5)
    assert found.months == pytest.approx(120 / (365.25 / 12))


def test_an_upgrade_that_slows_never_pays_back_and_a_free_one_at_once() -> None:
    assert payback(1, 2.0, 2.1, usd_per_gpu_hour=2.0, num_gpus=8).to_json()["months"] is None
    assert payback(0, 2.0, 1.9, usd_per_gpu_hour=2.0, num_gpus=8).months == 0
    with pytest.raises(CostError, match=r"must not be negative, got \$-5"):
        payback(-5, 2.0, 1.9, usd_per_gpu_hour=2.0, num_gpus=8)


def test_a_budget_buys_hours_steps_and_tokens() -> None:
    bought = buy(7200, 2.0, 100, step_time_s=3.6, tokens_per_step=1e6, goodput=0.5)
    assert (bought.gpu_hours, bought.days, bought.num_steps, bought.tokens) == (3600, 1.5, 18_000, 18e9)


@pytest.mark.parametrize("budget", [0, -5, float("nan"), 0.1])
def test_a_budget_that_buys_nothing_says_what_would(budget: float) -> None:
    with pytest.raises(CostError, match=r"a budget of -?\$?[\d.na]+ buys nothing") as caught:
        buy(budget, 2.0, 100, step_time_s=3.6)
    assert caught.value.detail == "The least that does something is one step on 100 GPUs: $0.20."
    with pytest.raises(CostError, match=r"an hour of 100 GPUs: \$200.00"):
        buy(199, 2.0, 100)
