"""The account of an executed step: the work and the waits of its busiest stage."""

from __future__ import annotations

import pytest

from syncline.fabric import load
from syncline.sim.step.executed.account import executed_account
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.step import step
from syncline.timeline.account import StepCause
from syncline.workload.read_job import load_job


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


def test_an_executed_step_waits_once_for_its_checkpoint() -> None:
    fabric = load("h100-64-rail")
    checkpoint = {"every_steps": 50, "storage_rate": "2GB/s", "asynchronous": False}
    job = load_job({"model": "llama3-8b", "batch": {"global": 512, "sequence": 8192}, "checkpoint": checkpoint})
    result = step(fabric, job)
    assert result.storage.stall_s_per_step > 1
    assert execute(fabric, result).step_time_s == pytest.approx(result.step_time_s, rel=0.01)
