"""Algorithm and bucket: what a choice costs more than the best, in the step and in the search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.planning.one_configuration import evaluate

from syncline.errors import PlanError, SynclineError
from syncline.fabric import load
from syncline.planning.answer import make_plan
from syncline.planning.block import RowBlock, price
from syncline.planning.decision import decision_of
from syncline.planning.exchange import exchange_of
from syncline.planning.fix import read_fix
from syncline.planning.space import Axes, rows_for, rows_of, switches_of
from syncline.sim.step.constants import default_constants
from syncline.sim.step.exchange import ALGORITHMS, BUCKETS, MIB
from syncline.sim.step.step import StepResult, step
from syncline.workload.read_job import load_job

FABRIC = load("h100-64-rail")


def priced(cluster: str = "h100-64-rail", zero: Any = "none", **sync: Any) -> StepResult:
    data = {
        "model": "llama3-8b", "parallel": {"tp": 2, "zero": zero}, "batch": {"global": 256, "sequence": 4096},
        "recompute": "full", "sync": sync,
    }  # fmt: skip
    return step(FABRIC if cluster == "h100-64-rail" else load(cluster), load_job(data))


def test_no_choice_is_cheaper_than_none_fixed_and_the_best_costs_nothing() -> None:
    free = priced()
    best = exchange_of(free, default_constants())
    assert best is not None
    times = {}
    for algorithm in ALGORITHMS:
        for bucket in BUCKETS:
            times[algorithm, bucket] = priced(algorithm=algorithm, bucket=bucket).step_time_s
    assert min(times.values()) == free.step_time_s
    assert times[best.algorithm, best.bucket_bytes] == free.step_time_s
    assert len(set(times.values())) > 20
    usual = times["ring", 25 * MIB] - free.step_time_s
    assert best.saved_s == pytest.approx(usual, rel=1e-6) and usual > 0
    for algorithm in ALGORITHMS:
        least = min(times[algorithm, bucket] for bucket in BUCKETS) - free.step_time_s
        assert best.extra_s[algorithm] == pytest.approx(least, abs=1e-9)


def test_small_buckets_pay_latency_and_large_ones_end_late() -> None:
    """256 replicas sum 15 GiB of fp32 gradients in rings: a round of 256 is long, so that large buckets win."""
    whole = 16 * 1024 * MIB
    extra = {b: priced(algorithm="ring", bucket=b).parts_s["dp"] for b in (MIB // 4, *BUCKETS, 4 * BUCKETS[-1], whole)}
    chosen = min(extra, key=lambda b: extra[b])
    assert BUCKETS[0] < chosen < whole
    assert extra[MIB // 4] > extra[BUCKETS[0]] > extra[chosen] < extra[whole]
    assert priced(algorithm="ring", bucket="0.25MiB").parts_s["dp"] == extra[MIB // 4]


def test_latency_favours_trees() -> None:
    near, far = priced(bucket=4 * MIB), priced("two-sites-wan", bucket=4 * MIB)
    at_home, abroad = exchange_of(near, default_constants()), exchange_of(far, default_constants())
    assert at_home is not None and abroad is not None
    assert abroad.algorithm == "tree"
    assert abroad.extra_s["ring"] > 5 * at_home.extra_s["ring"]


def test_a_tree_and_a_sharded_state_exclude_each_other() -> None:
    with pytest.raises(SynclineError, match="tree all-reduces"):
        priced(zero="1", algorithm="tree")
    job = load_job({"model": "llama3-8b", "batch": {"global": 256, "sequence": 4096}})
    with pytest.raises(PlanError, match="tree all-reduces"):
        make_plan(FABRIC, job, fix=read_fix("algorithm=tree,zero=1"))
    planned = make_plan(FABRIC, job, fix=read_fix("algorithm=tree"), with_actions=False)
    assert planned.best.decision.zero == "none" and planned.best.decision.algorithm == "tree"


def test_nothing_is_chosen_where_nothing_is_exchanged_at_once() -> None:
    assert exchange_of(priced(zero="fsdp"), default_constants()) is None
    assert exchange_of(priced(method="parameter-server"), default_constants()) is None


def test_a_fixed_choice_changes_the_plan_and_its_worth_is_an_action() -> None:
    job = load_job({"model": "llama3-70b", "batch": {"global": 1024, "sequence": 8192}})
    free = make_plan(FABRIC, job, with_actions=False)
    fixed = make_plan(FABRIC, job, fix=read_fix("algorithm=ring,bucket=2MiB"))
    assert free.best.decision.algorithm and free.best.exchange is not None
    assert fixed.best.predicted.step_time_s > free.best.predicted.step_time_s
    assert (fixed.best.decision.algorithm, fixed.best.decision.bucket_bytes) == ("ring", 2 * MIB)
    assert fixed.best.exchange is not None and fixed.best.exchange.saved_s < 0, "PyTorch's own bucket would be better"
    action = next(a for a in fixed.actions if a.name == "exchange")
    assert action.saving > 0 and action.price_usd == 0.0


@pytest.mark.parametrize(("text", "words"), [("bucket=big", "bucket"), ("bucket=0", "at least 1 byte"),
                                             ("algorithm=star", "one of ring")])  # fmt: skip
def test_a_wrong_choice_says_so(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        read_fix(text)


def test_columns_and_single_steps_agree_on_fixed_choices(asked) -> None:
    question, num_gpus = asked("two-sites-wan", "gpt3-175b", 1024, 2048)
    rows = rows_of(question.job, num_gpus, question.machine.domain)
    axes = Axes(
        zero=("1",), schedule=("1f1b",), recompute=("full",), algorithm=("hierarchical",), bucket_bytes=(7 * MIB,)
    )
    compared = 0
    for words in switches_of(question.job, axes):
        mine = rows_for(rows, words)
        if not len(mine):
            continue
        block = price(question, [RowBlock(words, mine)])
        for i in np.linspace(0, len(block.kept) - 1, 5).astype(int) if len(block.kept) else []:
            alone = evaluate(question, decision_of(words, block.rows, int(block.kept[i])))
            assert alone.cost is not None and float(alone.cost.total) == block.step_s[i]
            compared += 1
    assert compared >= 10
