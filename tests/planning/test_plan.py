"""The plan as a noun: saved, read back, damaged."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from syncline.describe.plain import plain
from syncline.errors import PlanError
from syncline.fabric import load
from syncline.planning.answer import PlanResult, make_plan
from syncline.planning.plan import Plan, save_plan
from syncline.workload.read_job import load_job


@pytest.fixture(scope="module")
def answer() -> PlanResult:
    job = load_job({"model": "llama3-8b", "batch": {"global": 128, "sequence": 4096}, "gpus": 64})
    return make_plan(load("h100-64-rail"), job)


@pytest.fixture
def plan(answer: PlanResult) -> Plan:
    return answer.best


def test_a_saved_plan_has_its_fields(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(plan, path)
    saved = json.loads(path.read_text())
    assert saved["predicted"].pop("exposed_comm_s") == plan.predicted.exposed_comm_s
    assert saved == plain({"format": "syncline plan 1", **asdict(plan)})


def test_the_decision_is_complete(plan: Plan) -> None:
    decision = plan.decision
    assert decision.algorithm in ("ring", "tree", "hierarchical")
    assert decision.bucket_bytes > 0
    assert decision.placement == "packed"
    assert f"tp {decision.tp}, pp {decision.pp}, dp {decision.dp}" in decision.label


def test_parts_of_time_and_memory_add_up(plan: Plan) -> None:
    predicted = plan.predicted
    assert sum(predicted.parts_s.values()) == pytest.approx(predicted.step_time_s)
    assert sum(predicted.memory_by.values()) == pytest.approx(predicted.memory_bytes)
    assert predicted.memory_bytes <= 0.92 * predicted.memory_available_bytes


def test_memory_that_must_be_used_up_is_used_up() -> None:
    job = load_job({"model": "llama3-8b", "batch": {"global": 128, "sequence": 4096}, "gpus": 64})
    tight = make_plan(load("h100-64-rail"), job, headroom=0.0, with_actions=False)
    roomy = make_plan(load("h100-64-rail"), job, headroom=0.5, with_actions=False)
    assert tight.best.predicted.step_time_s <= roomy.best.predicted.step_time_s
    assert roomy.best.predicted.memory_bytes <= 0.5 * roomy.best.predicted.memory_available_bytes


def test_headroom_is_given_up_before_the_job_is() -> None:
    job = load_job({"model": "llama3-70b", "batch": {"global": 128, "sequence": 4096}, "gpus": 64})
    answer = make_plan(load("h100-64-rail"), job, headroom=0.9, with_actions=False)
    assert answer.best.predicted.memory_bytes > 0.1 * answer.best.predicted.memory_available_bytes


def test_a_list_of_layers_has_nothing_to_choose() -> None:
    job = load_job({"model": "resnet-50", "batch": {"global": 4096}})
    with pytest.raises(PlanError, match="is a list of layers"):
        make_plan(load("h100-64-rail"), job)


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    job = load_job({"model": "llama3-8b", "batch": {"global": 4096, "sequence": 4096}, "gpus": 4096})
    with pytest.raises(PlanError, match="the job asks for 4,096 GPUs, but h100-64-rail has 512"):
        make_plan(load("h100-64-rail"), job)


def test_an_unknown_objective_is_refused() -> None:
    job = load_job({"model": "llama3-8b", "batch": {"global": 128, "sequence": 4096}})
    with pytest.raises(PlanError, match='there is no objective "beauty"'):
        make_plan(load("h100-64-rail"), job, objective="beauty")


def test_a_cluster_without_prices_is_planned_all_the_same() -> None:
    job = load_job({"model": "llama3-8b", "batch": {"global": 4096, "sequence": 4096}, "gpus": 256})
    few = load({"hosts": 64, "host": "mi250x-blade", "network": "dragonfly Slingshot-11"})
    answer = make_plan(few, job, with_actions=False)
    assert answer.best.predicted.step_time_s > 0
    assert (answer.best.cost is None) == (answer.money is None)


def test_gpus_that_do_not_divide_stay_idle() -> None:
    job = load_job({"model": "llama3-8b", "batch": {"global": 1024, "sequence": 4096}, "gpus": 520})
    answer = make_plan(load("dgx-h100-superpod"), job, with_actions=False)
    assert answer.best.decision.num_gpus == 512
    assert answer.best.cost is not None
    assert answer.best.cost.num_gpus == 520, "idle GPUs are paid for"


def test_a_label_names_the_virtual_stages_only_where_there_are_several(plan: Plan) -> None:
    pipeline = replace(plan.decision, pp=4, schedule="interleaved", virtual=2)
    assert ", interleaved x 2" in f", {pipeline.label}"
    assert "1f1b" in replace(pipeline, schedule="1f1b", virtual=1).label
    assert " x 1" not in replace(pipeline, schedule="1f1b", virtual=1, micro=2, num_micro=8).label


def test_one_site_alone_is_named_where_a_thin_line_makes_both_slower() -> None:
    site = {"hosts": 2, "host": "dgx-h100", "network": "rail-optimized NDR"}
    sites = [{"name": "east", **site}, {"name": "west", **site}]
    fabric = load({"sites": sites, "wan": {"rate": "1Gbps", "latency": "80ms"}})
    job = load_job({"model": "llama3-8b", "batch": {"global": 32, "sequence": 4096}})
    answer = make_plan(fabric, job, with_actions=False)
    assert answer.best.decision.num_gpus == 16
    assert answer.notes[0].startswith("one site alone, 16 of 32 GPUs, is faster than all of them (")
