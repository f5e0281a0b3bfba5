"""Runs of several phases: what they share, their own plans, and one bill."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from syncline.errors import DescriptionError
from syncline.fabric import load
from syncline.planning.phase.phases import PlannedRun, plan_run
from syncline.planning.phase.reinforce import _fastest
from syncline.questions.within.phases import plan_phases
from syncline.sim.serve.engine import Engine, Split
from syncline.sim.serve.steady import rollout_s
from syncline.workload.load import Length
from syncline.workload.phases import Phase, Rollout, has_phases, load_run
from syncline.workload.read_job import load_job

FABRIC = load("h100-64-rail")
RUN = """
model: llama3-8b
start: 2027-01-15
deadline: 40 days
budget: $500k
gpus: 64
phases:
  - {name: pre-training, tokens: 300B, batch: {global: 512, sequence: 8192}}
  - {name: instructions, tokens: 1B, frozen: true, gpus: 8, batch: {global: 64, sequence: 8192}}
  - {name: reinforcement, steps: 100, rollout: {prompts: 128, answers: 4, prompt: 500, answer: 1500}}
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> PlannedRun:
    path = tmp_path_factory.mktemp("phases") / "job.yaml"
    path.write_text(RUN)
    assert has_phases(path)
    return plan_run(FABRIC, load_run(path))


def test_one_bill_of_all_phases(planned: PlannedRun) -> None:
    pre, sft, rl = planned.phases
    assert planned.days == pytest.approx(pre.days + sft.days + rl.days)
    assert planned.usd is not None and pre.forecast is not None and sft.forecast is not None
    # By hand: days x 24 h x GPUs x dollars a GPU-hour.
    assert sft.forecast.usd == pytest.approx(sft.days * 24 * 8 * sft.forecast.usd_per_gpu_hour)
    assert planned.usd == pytest.approx(sum(p.forecast.usd for p in planned.phases if p.forecast))
    work = 300e9 / (512 * 8192) * pre.step_s / 86400
    assert pre.days == pytest.approx(work / pre.forecast.goodput, rel=1e-6)
    assert planned.days_90 is not None
    assert planned.days_90[0] < planned.days < planned.days_90[1]
    first, *_, last = planned.starts
    assert first is not None and last is not None
    assert first.isoformat() == "2027-01-15"
    assert (last - first).days == math.ceil(planned.days) - 1  # the first day counts


def test_phases_have_their_own_network_needs(planned: PlannedRun) -> None:
    pre, sft, rl = planned.phases
    assert (pre.num_gpus, sft.num_gpus) == (64, 8)
    assert sft.nic_bytes_per_step == 0  # eight GPUs are one host
    assert pre.nic_bytes_per_step > 0
    assert rl.reinforced is not None
    assert rl.reinforced.weights_bytes == pytest.approx(2 * 8.03e9 / rl.reinforced.split.tp, rel=0.01)
    assert rl.nic_bytes_per_step > rl.reinforced.weights_bytes * 0.99
    assert rl.step_s >= max(rl.reinforced.rollout_s, rl.reinforced.train_s)


def test_answers_are_waited_for_until_the_longest_ends() -> None:
    job = load_job({"model": "llama3-8b", "batch": {"global": 8}})
    engine = Engine(FABRIC, job, Split(1))
    alike = rollout_s(engine, 16, Length.model_validate(500), Length.model_validate(1000))
    by_hand = sum(engine.prefill_parts(8000, 500).values())
    by_hand += sum(sum(engine.decode_parts(16, 500 + t).values()) for t in range(1000))
    assert alike == pytest.approx(by_hand, rel=0.01)
    tail = Length.model_validate({"mean": 1000, "p99": 4000})
    assert rollout_s(engine, 16, Length.model_validate(500), tail) > 2 * alike
    # Twice the sequences that the cache holds take twice as long.
    most = engine.most_sequences(1500)
    full, double = (
        rollout_s(engine, n * most, Length.model_validate(500), Length.model_validate(1000)) for n in (1, 2)
    )
    assert double == pytest.approx(2 * full, rel=0.02)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("phases: 3", "`phases` is a list of jobs"),
        ("phases: [{name: a, batch: {global: 8}}]", "a phase says how long it is"),
        ("phases: [{name: a, tokens: 1B, budget: $3M, batch: {global: 8}}]", "budget is set for the whole run"),
        ("phases: [{name: a, tokens: 1B, btach: {global: 8}}]", "batch"),
        ("phases: [{name: a, steps: 3, rollout: {prompts: 0, prompt: 5, answer: 5}}]", "rollout.prompts"),
        ("phases: [{name: a, steps: 3, batch: {global: 8}}, {name: a, steps: 3, batch: {global: 8}}]", "two phases"),
    ],
)
def test_mistakes_name_the_phase(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"model: llama3-8b\n{text}\n")
    with pytest.raises(DescriptionError, match=match):
        load_run(path)
    with pytest.raises(DescriptionError, match="has several phases, and this asks about one"):
        load_job(path)


def test_the_answer_as_text(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: llama3-8b\nphases: [{name: only, tokens: 1B, batch: {global: 64, sequence: 4096}}]\n")
    answer = plan_phases("h100-64-rail", path)
    assert "in all" in str(answer) and "only: tp" in str(answer)
    assert answer.to_json()["phases"][0]["name"] == "only"  # type: ignore[index,call-overload]


def test_replicas_that_generate_have_a_power_of_two_of_gpus_from_one_on() -> None:
    """One GPU generates alone; of several, the split of the least time is taken."""
    job = load_job({"model": "llama3-8b", "batch": {"global": 8}})
    length = Length.model_validate
    rollout = Rollout(prompts=8, prompt=length(500), answer=length(200))
    split, alone_s = _fastest(FABRIC, Phase("rl", job, rollout), rollout, 1)
    assert split.tp == 1
    assert alone_s == pytest.approx(rollout_s(Engine(FABRIC, job, Split(1)), 8, length(500), length(200)))
    several, fastest_s = _fastest(FABRIC, Phase("rl", job, rollout), rollout, 8)
    assert several.tp in (1, 2, 4, 8) and fastest_s < alone_s
