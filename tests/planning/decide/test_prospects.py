"""Which options come first, and which comes nearest where none meets the goal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.recovery import Parts, recovery
from syncline.planning.decide.forecast import forecast
from syncline.planning.decide.prospects import Option, Prospects
from syncline.planning.sensitivity import Improvement
from syncline.report.text.check.run import advice, option_table
from syncline.report.text.lines import folded
from syncline.workload.read_job import load_job

BASE = {"model": "llama3-8b", "batch": {"global": 512, "sequence": 8192}, "tokens": "2T"}


def _option(num_gpus: int, days: float, usd: float, goal: dict[str, Any], capital: float = 0.0) -> Option:
    job = load_job(BASE | goal)
    found = recovery(job, 5.0, Parts(num_gpus, num_gpus // 8, num_gpus), Assumptions())
    return Option(num_gpus, "owned", 5.0, "", forecast(job, days * 86400, found, usd, (), False), capital)


def test_a_budget_that_nothing_holds_is_missed_least_by_the_cheapest() -> None:
    goal = {"budget": "$1"}
    now, fewer, more = (_option(n, d, 2.5, goal) for n, d in ((64, 100), (8, 790), (80, 90)))
    run = Prospects(now, (now, fewer), (more,), 0.06)
    assert run.nearest is fewer  # 8 x 790 < 64 x 100 < 80 x 90 GPU-days
    assert run.ranked == [now, fewer, more]
    assert "nearest: 8 GPUs (owned)" in advice(run) and "under 1 % likely" in advice(run)


def test_a_deadline_that_nothing_holds_is_missed_least_by_the_fastest() -> None:
    goal = {"deadline": "1 days"}
    now, fewer, more = (_option(n, d, 2.5, goal) for n, d in ((64, 100), (8, 790), (80, 90)))
    assert Prospects(now, (now, fewer), (more,), 0.06).nearest is more


def test_what_meets_the_goal_comes_cheapest_first() -> None:
    goal = {"deadline": "60 days"}
    now, slow, fast = (_option(n, d, 2.5, goal) for n, d in ((64, 100), (128, 52), (512, 15)))
    assert slow.meets and fast.meets
    assert Prospects(now, (now,), (fast, slow), 0.06).ranked == [now, slow, fast]


def test_between_prices_that_cannot_be_told_apart_the_fastest_is_advised() -> None:
    now, fewer, faster = (_option(n, d, 2.5, {}) for n, d in ((256, 19.5), (32, 150.0), (512, 15.0)))
    run = Prospects(now, (now, fewer), (), 0.06)  # 4,992 and 4,800 GPU-days
    assert run.cheapest is fewer and run.advised is now
    assert advice(run).startswith("as planned: 256 GPUs") and advice(run).endswith("or faster")
    run = Prospects(now, (now, fewer, faster), (), 0.06)  # 7,680
    assert run.advised is now and "; fastest: 512 GPUs" in advice(run)
    dear = _option(256, 30.0, 2.5, {})
    assert Prospects(dear, (dear, fewer), (), 0.06).advised is fewer


def test_a_change_that_costs_nothing_is_said_before_what_must_be_bought() -> None:
    now, changed, more = (_option(n, d, 2.5, {"deadline": "90 days"}) for n, d in ((64, 100), (64, 70), (96, 68)))
    fp8 = Improvement("fp8", "matrix products in fp8", 3.5, 0.3, 1e6, 0.0, "", "numerics", "check convergence", 0.7)
    bought = replace(more, capital_usd=1e6)
    run = Prospects(now, (now,), (bought,), 0.06, (replace(changed, change=fp8),))
    assert run.advised is None and run.free is not None and run.free.change is fp8
    words = advice(run)
    assert words.startswith("nothing here meets the goal as it is; matrix products in fp8 would (check")
    assert "; else buy $1 M of hosts and network: 96 GPUs" in words
    assert run.report().changed[0].works == 0.7
    slow = replace(run, changed=(replace(now, change=fp8),))
    assert slow.free is None and advice(slow).startswith("nothing here meets the goal; buy $1 M")


def test_columns_line_up_whatever_the_numbers() -> None:
    goal = {"budget": "$1"}
    now, fewer = _option(1024, 100, 2.5, goal), _option(8, 12_900, 2.5, goal)
    head, *rows = option_table(Prospects(now, (now, fewer), (), 0.06))[:-1]
    assert {row.index(")") for row in rows} == {head.index("days") + len("days") - 1}
    assert len({len(row) for row in rows}) == 1


def test_a_number_keeps_its_unit() -> None:
    line = "  memory     " + "x" * 101 + " 50 %: 71.1 GiB to 116.6 GiB"
    assert folded(line)[1].strip() == "50 %: 71.1 GiB to 116.6 GiB"


def test_hardware_dearer_than_the_budget_is_not_near_to_it() -> None:
    goal = {"budget": "$2M", "deadline": "60 days"}
    now, more = _option(256, 100, 2.0, goal), _option(512, 50, 2.0, goal, capital=20e6)
    assert more.forecast.chance > now.forecast.chance and more.chance == 0.0 and not more.meets
    run = Prospects(now, (now,), (more,), 0.06)
    said, table = advice(run), "\n".join(option_table(run))
    assert "nothing that was tried meets the goal" in said
    assert "buy first" in table and "$20 M" in table
