"""The account of a predicted step: over random jobs its parts add up, and a free network saves what it says."""

from __future__ import annotations

import random

import pytest

from syncline.errors import SynclineError
from syncline.fabric import load
from syncline.sim.step.constants import default_constants
from syncline.sim.step.executed.account import executed_account, executed_limit
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.step import StepResult, step
from syncline.timeline.account import StepCause
from syncline.workload.read_job import load_job

MODELS = ("llama3-8b", "llama3-70b", "mixtral-8x7b", "gpt3-175b", "llama2-7b")


def random_steps(count: int, seed: int) -> list[StepResult]:
    """Return priced steps of random jobs on three clusters; splits that a model does not allow are drawn again."""
    draw = random.Random(seed)
    fabrics = [load(name) for name in ("h100-64-rail", "old-10gbe", "dgx-h100-superpod")]
    found: list[StepResult] = []
    while len(found) < count:
        model = draw.choice(MODELS)
        split = {
            "tp": draw.choice([1, 2, 4, 8]),
            "pp": draw.choice([1, 2, 4]),
            "zero": draw.choice(["none", 1, "fsdp"]),
        }
        if model.startswith("mixtral"):
            split["ep"] = draw.choice([1, 2, 4, 8])
        if draw.random() < 0.2:
            split["cp"] = 2
        batch = {"global": draw.choice([64, 128, 256, 512, 1024]), "sequence": draw.choice([2048, 4096, 8192])}
        try:
            found.append(step(draw.choice(fabrics), load_job({"model": model, "batch": batch, "parallel": split})))
        except SynclineError:
            continue
    return found


def test_parts_add_up_and_a_free_network_saves_its_part_less_what_hid_behind_it() -> None:
    for result in random_steps(15, seed=7):
        account = result.account
        assert sum(line.seconds for line in account.lines) == pytest.approx(result.step_time_s, rel=1e-9)
        removal = account.removal(StepCause.NETWORK)
        assert removal is not None
        assert removal.saves_s + removal.behind_s == pytest.approx(account.seconds(StepCause.NETWORK), abs=1e-12)
        # Nothing hides behind exchanges in closed forms; bubbles and stragglers grow with them.
        assert -0.2 * result.step_time_s < removal.behind_s < 1e-6 * result.step_time_s
        assert result.exposed_comm_s == account.seconds(StepCause.NETWORK)


def test_an_executed_step_is_work_and_waits_of_its_busiest_stage() -> None:
    fabric = load("h100-64-rail")
    job = {"model": "llama3-8b", "batch": {"global": 512, "sequence": 8192}, "parallel": {"pp": 4, "virtual": 2}}
    result = step(fabric, load_job(job))
    run = execute(fabric, result)
    account = executed_account(result.account, run)
    assert sum(line.seconds for line in account.lines) == pytest.approx(run.step_time_s, rel=1e-9)
    assert account.source == "executed"
    # By hand: four stages of two chunks and 4 micro-batches leave 3 of 2 x 4 slots of a stage empty.
    work = run.parts_s["compute"]
    assert run.parts_s["compute"] == pytest.approx(result.parts_s["compute"], rel=0.1)
    assert run.parts_s["bubble"] == pytest.approx(work * 3 / (2 * result.job.num_micro), rel=0.35)
    free, priced = account.removal(StepCause.NETWORK), result.account.removal(StepCause.NETWORK)
    assert free is not None and priced is not None and free.step_s == min(priced.step_s, run.step_time_s)


def test_parts_of_random_executed_steps_add_up_and_so_do_the_shares_of_their_limits() -> None:
    fabric = load("h100-64-rail")
    for result in random_steps(12, seed=11):
        again = step(fabric, result.job)
        run = execute(fabric, again)
        assert sum(run.parts_s.values()) == pytest.approx(run.step_time_s, rel=1e-9)
        assert min(run.parts_s.values()) >= 0
        limit = executed_limit(again, run, default_constants())
        assert 0 <= limit.then_share <= limit.share and limit.share + limit.then_share <= 1 + 1e-9


def test_an_executed_step_waits_once_for_its_checkpoint() -> None:
    fabric = load("h100-64-rail")
    checkpoint = {"every_steps": 50, "storage_rate": "2GB/s", "asynchronous": False}
    job = load_job({"model": "llama3-8b", "batch": {"global": 512, "sequence": 8192}, "checkpoint": checkpoint})
    result = step(fabric, job)
    assert result.storage.stall_s_per_step > 1
    assert execute(fabric, result).step_time_s == pytest.approx(result.step_time_s, rel=0.01)
