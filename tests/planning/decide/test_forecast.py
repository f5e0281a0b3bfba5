"""The end and the cost of a run against a plain computation of the same sums, and the chances against closed forms."""

from __future__ import annotations

import math

import pytest

from syncline.fabric import load
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.owning import own
from syncline.planning.cost.recovery import Parts, recovery
from syncline.planning.decide.forecast import Forecast, forecast, owned_interval
from syncline.planning.decide.uncertain import Uncertain, owned_prices
from syncline.report.text.check.run import goal_lines
from syncline.workload.job import Job
from syncline.workload.read_job import load_job

BASE = {"model": "llama3-8b", "batch": {"global": 512, "sequence": 8192}, "tokens": "2T", "start": "2027-01-15"}


def _seen(job: Job, *inputs: Uncertain, usd: float = 2.5, work_s: float = 40 * 86400.0) -> Forecast:
    found = recovery(job, 5.0, Parts(256, 32, 256), Assumptions())
    return forecast(job, work_s, found, usd, inputs)


def _step(spread: float) -> Uncertain:
    return Uncertain("step_time", "step", "step", 1 / spread, 1.0, spread, "x", "test", 1 / spread, spread)


def test_days_and_dollars_are_what_a_spreadsheet_says() -> None:
    seen = _seen(load_job(BASE))
    mttf_s = 3600 / (419 / (16_384 * 54 * 24) * 256)
    write_s = 14 * 8.03e9 / (32 * 0.625e9)
    interval = max(60, 2 * write_s, math.sqrt(2 * 14 * 8.03e9 / 256 / 10e9 * mttf_s))
    lost_per_failure = 600 + 2 * write_s + interval / 2
    goodput = 1 / (1 + lost_per_failure / mttf_s) / (1 + 14 * 8.03e9 / 256 / 10e9 / interval)
    assert seen.goodput == pytest.approx(goodput, abs=2e-4)
    assert seen.days == pytest.approx(40 / goodput, rel=2e-4)
    assert seen.usd == pytest.approx(40 / goodput * 24 * 256 * 2.5, rel=2e-4)
    assert seen.end is not None and seen.end.isoformat() == "2027-02-24"


def test_without_anything_uncertain_only_luck_is_left() -> None:
    seen = _seen(load_job(BASE | {"deadline": "60 days", "budget": "$1M"}))
    assert seen.days_90[1] - seen.days_90[0] < 0.2
    assert (seen.chance_deadline, seen.chance_budget, seen.chance) == (1.0, 1.0, 1.0)
    assert _seen(load_job(BASE | {"deadline": "39 days"})).chance_deadline == 0.0


def test_chance_of_a_deadline_is_that_of_the_normal_distribution() -> None:
    spread = 1.1  # eight of ten within 10 %
    sigma = math.log(spread) / 1.2816
    days = _seen(load_job(BASE)).days
    for slack in (0.9, 1.0, 1.05, 1.2):
        seen = _seen(load_job(BASE | {"deadline": f"{days * slack:.4f} days"}), _step(spread))
        assert seen.chance_deadline == pytest.approx(0.5 * (1 + math.erf(math.log(slack) / sigma / 2**0.5)), abs=0.025)
    assert seen.days_50[1] / days == pytest.approx(math.exp(0.6745 * sigma), rel=0.01)
    assert seen.days_90[1] / days == pytest.approx(math.exp(1.6449 * sigma), rel=0.01)


def test_a_price_moves_the_cost_alone_and_its_swing_is_exact() -> None:
    rent = Uncertain("rent", "rent", "price", 2.0, 2.5, 2.75, "$", "test", 0.8, 1.1)
    seen = _seen(load_job(BASE | {"budget": "$500k"}), rent, _step(1.05))
    swing = next(s for s in seen.swings if s.name == "rent")
    assert swing.usd == pytest.approx((0.8 * seen.usd, 1.1 * seen.usd))
    assert swing.days == pytest.approx((seen.days, seen.days))
    assert seen.swings[0] is swing  # it moves the cost most
    assert 0.0 < (seen.chance_budget or 0.0) < 1.0


def test_same_question_same_answer() -> None:
    job = load_job(BASE | {"deadline": "42 days"})
    assert _seen(job, _step(1.1)).report() == _seen(job, _step(1.1)).report()


def test_an_owned_gpu_hour_has_one_interval_in_cost_and_in_a_run() -> None:
    owned = own(load("h100-64-rail"), Assumptions())
    seen = _seen(load_job(BASE), *owned_prices(owned), usd=owned.usd_per_gpu_hour)
    known = owned_interval(owned)
    for share, ends in ((known.p50, seen.usd_50), (known.p90, seen.usd_90)):
        hours = [end / (seen.days * 24 * 256) for end in ends]
        assert share == pytest.approx(hours, rel=0.005)  # luck with failures is the rest


def test_a_deadline_or_budget_below_the_floor_is_impossible_whatever_is_uncertain() -> None:
    job = load_job(BASE | {"deadline": "12 days", "budget": "$100k"})
    found = recovery(job, 5.0, Parts(256, 32, 256), Assumptions())
    seen = forecast(job, 40 * 86400.0, found, 2.5, (_step(5.0),), least_s=14 * 86400.0)
    assert seen.chance_deadline == 0.0 and seen.days_90[0] >= seen.least_days == 14
    assert seen.usd_90[0] >= seen.least_usd == pytest.approx(14 * 24 * 256 * 2.5)
    deadline, budget = goal_lines(seen)
    assert "12 days (2027-01-26): impossible" in deadline and "at the GPUs' peak it takes 14 days" in deadline
    assert "impossible" in budget and "it costs $215 k" in budget
