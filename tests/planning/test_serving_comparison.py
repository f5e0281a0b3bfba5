"""Clusters side by side for a load: the same figures as `plan`, what serves first, and questions that refuse a load."""

from __future__ import annotations

from typing import Any

import pytest

import syncline
from syncline.errors import UsageError
from syncline.fabric.fabric import Fabric
from syncline.fabric.load import load
from syncline.planning.decide.side_by_side import Candidate
from syncline.planning.serving_comparison import ServingComparison, compare_serving
from syncline.questions.cost import cost
from syncline.questions.design import design
from syncline.questions.plan import compare, compare_named
from syncline.questions.serve import ServingComparisonAnswer
from syncline.workload.job import Job
from syncline.workload.read_job import load_job


def _cluster(host: str, hosts: int = 2) -> Fabric:
    return load({"name": host, "hosts": hosts, "host": host, "network": "rail-optimized NDR"})


def _job(**more: Any) -> Job:
    given = {"rate": 4, "prompt": 1000, "answer": 200}
    return load_job({"kind": "serve", "model": "llama3-8b", "parallel": {"tp": 1}, "load": given, **more})


H100, B200 = _cluster("dgx-h100"), _cluster("dgx-b200")


@pytest.fixture(scope="module")
def found() -> ServingComparison:
    return compare_serving([(Candidate("h", H100), _job()), (Candidate("b", B200), _job())])


def test_a_row_is_what_plan_says_and_the_order_of_names_is_nothing(found: ServingComparison) -> None:
    alone = syncline.serve(H100, _job()).result
    row = next(row for row in found.clusters if row.name == "h")
    assert row.usd_per_million_tokens == alone.best.usd_per_million
    assert (row.num_gpus, row.label) == (alone.best.num_gpus, alone.best.label)
    turned = compare_serving([(Candidate("b", B200), _job()), (Candidate("h", H100), _job())])
    assert [one.name for one in turned.clusters] == [one.name for one in found.clusters]
    assert found.cheapest == min(found.clusters, key=lambda one: one.usd_per_million_tokens or 0).name


def test_what_cannot_serve_comes_last_and_is_never_the_cheapest() -> None:
    fast = _job(slo={"between_tokens": "6ms"})
    both = compare_serving([(Candidate("a", _cluster("dgx-a100")), fast), (Candidate("b", B200), fast)])
    assert [row.serves for row in both.clusters] == [True, False] and both.cheapest == "b"
    none = compare_serving([(Candidate("h", H100), _job(slo={"first_token": "1ms"}))])
    assert none.cheapest is None and ServingComparisonAnswer(none).exit_status == 1
    assert "NONE serves" in str(ServingComparisonAnswer(none)).splitlines()[1]


def test_owning_and_renting_are_the_same_load_at_other_prices() -> None:
    answer = cost(H100, _job())
    assert isinstance(answer, ServingComparisonAnswer)
    rows = {row.name: row for row in answer.result.clusters}
    assert rows["owned"].basis == "owned" and len(rows) > 1
    for row in rows.values():
        assert row.num_gpus == rows["owned"].num_gpus and row.usd_per_gpu_hour and row.usd_per_million_tokens
        assert row.usd_per_million_tokens == pytest.approx(row.num_gpus * row.usd_per_gpu_hour / 3600 / 800 * 1e6)
    with pytest.raises(UsageError, match="`budget` is for a training job"):
        cost(H100, _job(), budget="1M")


def test_fabrics_and_sweeps_of_a_load_are_loads() -> None:
    answer = compare(_job(), gpus=16, fabrics=("rail-optimized", "fat-tree 2:1"))
    assert isinstance(answer, ServingComparisonAnswer)
    assert {row.name for row in answer.result.clusters} == {"rail-optimized", "fat-tree 2:1"}


def test_a_sweep_keeps_its_order(tmp_path: Any) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "{kind: serve, model: llama3-8b, parallel: {tp: 1}, load: {rate: 4, prompt: 1000, answer: 200}}", "utf-8"
    )
    answer = compare_named(["h100-64-rail", str(job)], settings=["job.load.rate=40,4"])
    assert isinstance(answer, ServingComparisonAnswer)
    assert [row.value for row in answer.result.clusters] == [40.0, 4.0]
    assert answer.result.clusters[0].num_gpus >= answer.result.clusters[1].num_gpus


@pytest.mark.parametrize("ask", [lambda job: syncline.step("h100-64-rail", job), lambda job: design(job, gpus=64)])
def test_questions_about_training_refuse_a_load_and_say_where_to_ask(ask: Any) -> None:
    with pytest.raises(UsageError, match="is a load to serve") as refused:
        ask(_job())
    assert "syncline plan CLUSTER JOB" in str(refused.value)
