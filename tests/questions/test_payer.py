"""What a payer asks, asked of two verbs: goodput, date, money, buy or rent and spare hosts agree to the digit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.errors import UsageError
from syncline.fabric import save
from syncline.planning.cost.owning import HOURS_PER_YEAR
from syncline.planning.cost.statement import Statement
from syncline.questions.cost import CostAnswer
from syncline.questions.plan import ClusterAnswer, PlanAnswer
from syncline.questions.serve import ServingComparisonAnswer
from syncline.watch.prediction import Prediction

TOKENS, TOKENS_PER_STEP = 524_288_000_000, 256 * 8192
CLUSTER = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
JOB = {
    "model": "llama3-8b", "batch": {"global": 256, "sequence": 8192}, "tokens": TOKENS, "start": "2027-01-15",
    "deadline": "90 days", "budget": 500_000,
}  # fmt: skip
PLAIN = {"model": "llama3-8b", "batch": {"global": 64, "sequence": 4096}}
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


def test_the_cheaper_network_is_the_same_in_design_and_compare(tmp_path: Path) -> None:
    """Every alternative that is designed, written and compared: order, step, price of a token, GPU-hour and bill."""
    asked = syncline.design(
        PLAIN, gpus=32, links=("NDR",), topologies=("rail-optimized", "fat-tree", "rail-only"), ratios=(1, 4)
    )
    named = {str(tmp_path / f"{number}.yaml"): point for number, point in enumerate(asked.front)}
    for path, point in named.items():
        save(point.choice.build().spec, path)
    found = syncline.compare(PLAIN, clusters=list(named))
    assert isinstance(found, ClusterAnswer) and len(found.result.clusters) == len(asked.front) > 2
    for row in found.result.clusters:
        point = named[row.name]
        assert (row.label, row.step_time_s, row.capital_usd) == (point.plans[0], *point.step_s, point.capital_usd)
        assert row.cost_per_token_usd == pytest.approx(point.usd_per_token, rel=1e-12)
        assert row.usd_per_gpu_hour == pytest.approx(
            point.usd_per_year / (HOURS_PER_YEAR * point.utilisation * point.num_gpus), rel=1e-12
        )
    cheapest = min(asked.front, key=lambda point: point.usd_per_token)
    assert found.result.clusters[0].cost_per_token_usd == pytest.approx(cheapest.usd_per_token, rel=1e-12)


def test_a_gpu_hour_is_the_same_in_plan_cost_serve_compare_and_watch(
    cluster: Path, planned: PlanAnswer, tmp_path: Path
) -> None:
    load = {"kind": "serve", "model": "llama3-8b", "load": {"rate": 4, "prompt": 1000, "answer": 200}}
    usd, account = _cost(cluster).owned.usd_per_gpu_hour, planned.report.cost
    served = syncline.serve(cluster, load).result
    compared = syncline.compare(load, clusters=[str(cluster)])
    assert isinstance(compared, ServingComparisonAnswer)
    (row,) = compared.result.clusters
    assert account is not None and account.usd_per_gpu_hour == usd
    assert (served.basis, served.best.usd_per_gpu_hour) == (row.basis, row.usd_per_gpu_hour) == ("owned", usd)
    planned.save(tmp_path / "plan.json")
    expected = Prediction.read(tmp_path / "plan.json")
    assert (expected.usd_per_gpu_hour, expected.step_s) == (usd, planned.step_time_s)
    assert expected.exposed_s == planned.result.best.predicted.exposed_comm_s
    assert expected.num_gpus == planned.result.best.num_gpus


def test_chances_are_those_of_the_runs_that_are_drawn(planned: PlanAnswer) -> None:
    run = planned.report.run
    assert run is not None and run.chance_deadline is not None and run.deadline_days is not None
    within = sum(days <= run.deadline_days for days in run.days_percentiles) / 20
    assert run.chance_deadline == pytest.approx(within, abs=0.06)
    assert run.days_90 == (run.days_percentiles[0], run.days_percentiles[-1])


def test_the_chance_of_deadline_and_budget_and_what_is_bought_are_the_same_in_plan_compare_and_cost(
    cluster: Path,
) -> None:
    found = syncline.compare(JOB, clusters=[str(cluster)])
    assert isinstance(found, ClusterAnswer)
    (row,), run = found.result.clusters, syncline.plan(cluster, JOB, workers=1).report.run
    assert row.run is not None and run is not None and run.chance_deadline is not None
    assert (row.run.chance_deadline, row.run.chance_budget) == (run.chance_deadline, run.chance_budget)
    assert row.run.days_percentiles == run.days_percentiles and "deadline" in str(found)
    paid = syncline.cost(cluster, JOB)
    assert isinstance(paid, CostAnswer) and paid.forecast is not None
    asked = paid.forecast.report()
    assert (asked.chance_deadline, asked.chance_budget) == (run.chance_deadline, run.chance_budget)
    assert (asked.days, asked.usd, asked.usd_90) == (run.days, run.usd, run.usd_90)
    assert paid.statement.charges[0].usd_per_run == pytest.approx(run.usd, rel=1e-12)
    assert "deadline 90 days" in str(paid) and "budget $500 k" in str(paid)
    assert paid.to_json()["forecast"] is not None
    owned = paid.statement.owned
    assert row.capital_usd == owned.to_buy_usd == pytest.approx(5 / 4 * owned.capital_usd)
    assert "1 spare host with it" in str(found) and "1 spare host with it" in str(syncline.cost(cluster, JOB))


def test_a_measured_step_is_taken_as_it_is_in_the_chance_of_a_deadline(cluster: Path) -> None:
    seen = []
    for step_time in ("1s", "60s"):
        found = syncline.cost(cluster, JOB, step_time=step_time)
        assert isinstance(found, CostAnswer) and found.forecast is not None
        assert found.forecast.work_days == float(step_time[:-1]) * TOKENS / TOKENS_PER_STEP / 86_400
        assert found.statement.charges[0].usd_per_run == pytest.approx(found.forecast.usd, rel=1e-12)
        seen.append(found.forecast.chance_deadline)
    assert seen == [1.0, 0.0]


def test_a_run_that_fits_nowhere_is_said_so_beside_what_the_cluster_costs() -> None:
    found = syncline.cost(CLUSTER, JOB | {"model": "deepseek-v3"})
    assert isinstance(found, CostAnswer) and found.forecast is None
    assert "not planned: " in str(found) and "a GPU-hour costs" in str(found)


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
