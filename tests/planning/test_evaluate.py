"""The one evaluator: closed forms shorten the list, execution decides, and a better network is never slower."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from syncline.fabric import Fabric, load
from syncline.planning import evaluate
from syncline.planning.answer import ask, make_plan
from syncline.planning.evaluate import RESOLUTION, Evaluator
from syncline.planning.search import SearchCandidate, search
from syncline.planning.upgrade import faster_links
from syncline.questions.step import step
from syncline.sim.step.executed.execute import StepRun
from syncline.workload.read_job import load_job

EXPERTS = {"model": "qwen3-30b-a3b", "batch": {"global": 64, "sequence": 4096}}


@pytest.fixture(scope="module")
def cluster() -> Fabric:
    return load({"hosts": 4, "host": "dgx-h100", "network": "rail-optimized 200GbE"})


@pytest.fixture
def listed(
    cluster: Fabric, monkeypatch: pytest.MonkeyPatch
) -> tuple[Evaluator, list[SearchCandidate], dict[int, float]]:
    """Return an evaluator whose executions take what the test says, by the number of stages, and its candidates."""
    question, num_gpus = ask(cluster, load_job({"model": "llama3-8b", "batch": {"global": 64, "sequence": 4096}}))
    found = search(question, num_gpus)
    evaluator = Evaluator(cluster, question, None, num_gpus)
    gaps: dict[int, float] = {}
    closed = {candidate.decision: candidate.step_s for candidate in found.best}

    priced = cache(evaluator.closed)

    def timed(self: Evaluator, decision: Any) -> Any:
        result, took_s = priced(decision), closed[decision] * gaps.get(decision.pp, 1.0)
        parts = {part: seconds * took_s / result.step_time_s for part, seconds in result.parts_s.items()}
        return result, StepRun(took_s, (), 0, "spray", parts)

    monkeypatch.setattr(evaluate.Evaluator, "_timed", timed)
    return evaluator, list(found.best), gaps


def test_a_depth_that_closed_forms_have_wrong_does_not_win(listed: Any) -> None:
    evaluator, candidates, gaps = listed
    first = candidates[0].decision.pp
    gaps[first] = 3.0
    best = evaluator.ranked(candidates)[0].plan
    others = [candidate.step_s for candidate in candidates if candidate.decision.pp != first]
    assert best.decision.pp != first
    assert best.predicted.step_time_s <= min(others) * (1 + RESOLUTION)


def test_what_is_left_could_not_have_won(listed: Any) -> None:
    """Whatever the gaps by depth, no candidate is faster than the winner by more than the resolution."""
    evaluator, candidates, gaps = listed
    depths = sorted({candidate.decision.pp for candidate in candidates})
    for turn in range(4):
        gaps.update({depth: 1.0 + 0.2 * ((number + turn) % 3) for number, depth in enumerate(depths)})
        best_s = evaluator.ranked(candidates)[0].plan.predicted.step_time_s
        least_s = min(candidate.step_s * gaps[candidate.decision.pp] for candidate in candidates)
        assert least_s <= best_s <= least_s / (1 - RESOLUTION)
        evaluator._known.clear()


def test_parts_sum_to_the_executed_time_and_step_says_the_same(cluster: Fabric) -> None:
    best = make_plan(cluster, load_job(EXPERTS), with_actions=False)
    p = best.best.predicted
    assert p.level == "flow" and p.closed_form_s != p.step_time_s
    assert sum(p.parts_s.values()) == pytest.approx(p.step_time_s)
    assert step(cluster, best.result.job).to_json()["step_time_s"] == p.step_time_s


def test_a_better_network_is_never_slower_and_advice_is_what_planning_again_says(cluster: Fabric) -> None:
    """What the plan says of twice the ports is what a plan on twice the ports says."""
    job = load_job(EXPERTS)
    answer = make_plan(cluster, job)
    step_s = [answer.best.predicted.step_time_s]
    for factor in (1.5, 2.0, 4.0):
        faster = make_plan(faster_links(cluster, factor), job, with_actions=False, also=[answer.best.decision])
        step_s.append(faster.best.predicted.step_time_s)
    assert step_s == sorted(step_s, reverse=True)
    assert answer.network_bound is not None
    tried = [action for action in answer.actions if action.tried]
    assert {action.name for action in answer.worthwhile} <= {action.name for action in tried}
    for action in tried:
        if action.kind == "hardware" and action.name != "domain":
            assert action.saving <= answer.network_bound + 1e-9


def test_the_best_of_another_cluster_is_a_candidate(cluster: Fabric) -> None:
    job = load_job(EXPERTS)
    own = make_plan(cluster, job, with_actions=False)
    worse = replace(own.best.decision, micro=1, num_micro=own.best.decision.num_micro * own.best.decision.micro)
    again = make_plan(cluster, job, with_actions=False, also=[worse])
    assert again.best.predicted.step_time_s <= own.best.predicted.step_time_s
