"""What a payer asks, asked of two verbs: goodput, date, money, buy or rent and spare hosts agree to the digit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.errors import UsageError
from syncline.planning.cost.statement import Statement
from syncline.questions.cost import CostAnswer
from syncline.questions.plan import ClusterAnswer, PlanAnswer

TOKENS, TOKENS_PER_STEP = 524_288_000_000, 256 * 8192
CLUSTER = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
JOB = {
    "model": "llama3-8b", "batch": {"global": 256, "sequence": 8192}, "tokens": TOKENS, "start": "2027-01-15",
    "deadline": "90 days", "budget": 500_000,
}  # fmt: skip
FIX = "tp=1,pp=1,cp=1,micro=1,recompute=none,zero=1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("payer") / "ours.yaml"
    path.write_text("hosts: 4\nhost: dgx-h100\nnetwork: rail-optimized NDR\nspares: 1\nrepair: 36h\n")
    return path


@pytest.fixture(scope="module")
def planned(cluster: Path) -> PlanAnswer:
    return syncline.plan(cluster, JOB, fix=FIX, workers=1)


def _cost(cluster: Any, **options: Any) -> Statement:
    found = syncline.cost(cluster, JOB, **options)
    assert isinstance(found, CostAnswer)
    return found.statement


def test_goodput_date_and_cost_of_the_run_are_the_same_in_plan_and_cost(cluster: Path, planned: PlanAnswer) -> None:
    run, account = planned.report.run, planned.report.cost
    assert run is not None and account is not None
    asked = _cost(
        cluster, step_time=f"{planned.step_time_s!r}s", tokens_per_step=TOKENS_PER_STEP,
        steps=TOKENS // TOKENS_PER_STEP,
    )  # fmt: skip
    assert asked.failures.goodput == account.goodput == run.goodput
    assert asked.run_days == pytest.approx(run.days, rel=1e-12)
    assert asked.charges[0].usd_per_run == pytest.approx(run.usd, rel=1e-12)
    assert asked.charges[0].usd_per_step == pytest.approx(account.usd_per_step, rel=1e-12)
    assert asked.failures.recovery.report() == planned.report.recovery


def test_buy_or_rent_has_one_price_of_a_gpu_hour(cluster: Path, planned: PlanAnswer) -> None:
    asked, run = _cost(cluster), planned.report.run
    assert run is not None
    prices = {"owned": asked.owned.usd_per_gpu_hour}
    prices |= {f"rented: {quote.label}": quote.usd_per_used_gpu_hour(0.7) for quote in asked.quotes}
    here = [option for option in run.options if option.gpus == 32]
    assert {option.basis for option in here} == set(prices)
    for option in here:  # the spare host is paid for as well
        assert option.usd == pytest.approx(option.days * 24 * 40 * prices[option.basis], rel=1e-12)
    words = asked.owned.hour_words
    assert words in str(syncline.cost(cluster, JOB)).replace("\n", " ") and words in str(planned)


def test_spare_hosts_are_worth_the_same_wherever_they_are_stated(planned: PlanAnswer) -> None:
    run = planned.report.run
    assert run is not None and [each.spares for each in run.spares] == [0, 1]
    for each in run.spares:
        stated = _cost(CLUSTER | {"spares": each.spares, "repair": "36h"})
        assert stated.failures.goodput == each.goodput
    shares = [each.goodput for each in run.spares]
    assert shares == sorted(shares) and run.goodput == shares[1]


def test_chances_are_those_of_the_runs_that_are_drawn(planned: PlanAnswer) -> None:
    run = planned.report.run
    assert run is not None and run.chance_deadline is not None and run.deadline_days is not None
    within = sum(days <= run.deadline_days for days in run.days_percentiles) / 20
    assert run.chance_deadline == pytest.approx(within, abs=0.06)
    assert run.days_90 == (run.days_percentiles[0], run.days_percentiles[-1])


def test_the_answer_is_about_ten_lines_and_the_rest_is_one_option_away(planned: PlanAnswer) -> None:
    lines = str(planned).splitlines()
    labels = [line.split()[0] for line in lines[2:] if line[2:3].strip()]
    assert labels[:2] == ["run", "advice"] and {"fits", "layout", "limit", "do"} < set(labels)
    assert len(labels) <= 12
    more = str(replace(planned, more=True))
    assert more.startswith("\n".join(lines[:-1])) and "spares" in more and "goodput" in more


def test_a_budget_that_does_not_buy_never_says_own(cluster: Path) -> None:
    text = str(syncline.cost(cluster, JOB, budget="500k"))
    assert "Rent it: $500 k does not buy the cluster" in text and "Own it" not in text
    assert "Own it" in str(syncline.cost(cluster, JOB, budget="5M"))


def test_two_offers_are_compared_at_their_own_prices(tmp_path: Path) -> None:
    path = tmp_path / "offer.yaml"
    path.write_text("hosts: 1\nhost: dgx-h100\nnetwork: rail-optimized NDR\n")
    job = {"model": "llama3-8b", "batch": {"global": 64, "sequence": 1024}}
    found = syncline.compare(job, clusters=[f"{path}@2.40", f"{path}@$1.99"])
    assert isinstance(found, ClusterAnswer)
    rows = found.result.clusters
    assert [row.usd_per_gpu_hour for row in rows] == [1.99, 2.40]
    costs = [row.cost_per_token_usd or 0.0 for row in rows]
    assert costs[1] / costs[0] == pytest.approx(2.40 / 1.99)
    with pytest.raises(UsageError, match=r"asks for \$-1 a GPU-hour"):
        syncline.compare(job, clusters=[f"{path}@-1", str(path)])
