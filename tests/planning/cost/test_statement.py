from __future__ import annotations

import pytest

from syncline.describe.plain import json_text, plain
from syncline.errors import CostError
from syncline.fabric import Fabric, load
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.statement import CostedRun, statement


def test_the_parts_agree_with_each_other(rail: Fabric) -> None:
    account = statement(rail, run=CostedRun(2.1, 4e6, 250_000), budget_usd=1e6, upgrade=(500e3, 1.9))
    assert [charge.basis for charge in account.charges] == ["owned", *(quote.label for quote in account.quotes)]
    owned = account.charges[0]
    assert owned.usd_per_token is not None
    assert owned.usd_per_run == pytest.approx(owned.usd_per_token * 4e6 * 250_000)
    assert owned.usd_per_step == pytest.approx(account.owned.usd_per_gpu_hour * 512 * 2.1 / 3600)
    assert account.run_days == pytest.approx(2.1 * 250_000 / account.failures.goodput / 86400)
    # A budget is cash: a million does not buy 512 GPUs, so what it buys is rent.
    assert [basis for basis, _ in account.bought] == [quote.label for quote in account.quotes]
    assert account.bought[0][1].gpu_hours == pytest.approx(1e6 / account.quotes[0].usd_per_used_gpu_hour(0.7))
    assert statement(rail, budget_usd=30e6).bought[0][0] == "owned"
    assert account.upgrades[0][1].time_saved == pytest.approx(1 - 1.9 / 2.1)


def test_json_has_every_part_and_is_strict(rail: Fabric) -> None:
    data = plain(statement(rail, run=CostedRun(2.1)).to_json())
    json_text(data)
    assert data["run"] == {
        "step_time_s": 2.1,
        "tokens_per_step": None,
        "num_steps": None,
        "replica_gpus": 0,
        "days": None,
    }
    assert data["charges"][0]["usd_per_token"] is None
    assert "data leaving the cloud (egress)" in data["ignores"]
    assert {row["name"] for row in data["assumptions"]} == set(Assumptions.model_fields)
    assert data["break_even_rent_usd_per_gpu_hour"] == pytest.approx(data["owned"]["usd_per_gpu_hour"])


def test_failures_are_counted_over_the_hours_of_a_year_that_are_used(rail: Fabric) -> None:
    account = statement(rail, Assumptions(utilisation=0.5))
    lost = account.failures
    assert lost.days == pytest.approx(365.25 / 2)
    assert lost.lost_usd == pytest.approx((1 - lost.goodput) * account.owned.usd_per_year)


def test_an_upgrade_without_a_step_time_is_refused(rail: Fabric) -> None:
    with pytest.raises(CostError, match="an upgrade is judged by the step time it changes"):
        statement(rail, upgrade=(1.0, 1.0))
    with pytest.raises(CostError, match="must be positive, got -1 s"):
        statement(rail, run=CostedRun(-1.0))


def test_a_hundred_thousand_gpus() -> None:
    fabric = load("h100-131k-3tier")
    assert statement(fabric).num_gpus == 131_072
