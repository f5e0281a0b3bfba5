"""Goodput of a job: from its own checkpoints, storage, restarts and parts."""

from __future__ import annotations

import math

import pytest

from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.recovery import Parts, faster_recoveries, recovery
from syncline.planning.cost.reliability import load_reliability
from syncline.workload.read_job import load_job

LLAMA = {"model": "llama3-405b", "batch": {"global": 2048, "sequence": 8192}}
PARTS = Parts(16_384, 2048, 16_384)


def test_llama3_at_16384_gpus_is_above_the_published_90_per_cent() -> None:
    found = recovery(load_job(LLAMA), 20.0, PARTS, Assumptions())
    # By hand: 405.85 B x 14 B = 5.68 TB; 2,048 hosts x 0.625 GB/s = 1.28 TB/s: 4.4 s. An interruption every 3.09 h.
    assert found.state_bytes == pytest.approx(5.68e12, rel=0.01)
    assert found.write_s == pytest.approx(4.44, rel=0.01)
    assert found.mttf_s / 3600 == pytest.approx(54 * 24 / 419, rel=1e-6)
    assert 0.93 < found.goodput < 0.96
    assert sum(found.lost_by.values()) == pytest.approx(1 - found.goodput)


def test_goodput_follows_what_the_job_says() -> None:
    plain = recovery(load_job(LLAMA), 20.0, PARTS, Assumptions())
    slow = load_job(LLAMA | {"checkpoint": {"asynchronous": False, "storage_rate": "100GB/s"}})
    waits = recovery(slow, 20.0, PARTS, Assumptions())
    rare = recovery(load_job(LLAMA | {"checkpoint": {"every_steps": 360}}), 20.0, PARTS, Assumptions())
    assert waits.stall_s == pytest.approx(5.68e12 / 100e9, rel=0.02)
    assert waits.goodput < plain.goodput - 0.03
    assert rare.interval_s == pytest.approx(7200) and rare.goodput < plain.goodput - 0.2
    assert recovery(load_job(LLAMA), 20.0, PARTS, Assumptions(restart_s=60)).goodput > plain.goodput
    # What was assumed for every job until now is still there for whoever sets it.
    assert recovery(load_job(LLAMA), 20.0, PARTS, Assumptions(checkpoint_s=100)).goodput == pytest.approx(
        0.826, abs=2e-3
    )


def test_parts_fail_by_their_own_number() -> None:
    rate = load_reliability().rate("llama3-405b")
    assert rate.on_parts(16_384, 2048, 16_384).per_gpu_hour == pytest.approx(rate.per_gpu_hour)
    # Network and NICs caused 42 of 419: half as many NICs lose 21. Twice the hosts have theirs and maintenance twice.
    assert rate.on_parts(1024, 128, 512).per_gpu_hour == pytest.approx(rate.per_gpu_hour * (1 - 21 / 419))
    hosts = sum(n for cause, n in rate.causes.items() if cause.startswith(("Host: ", "Unplanned"))) - 7
    assert rate.on_parts(1024, 256, 1024).per_gpu_hour == pytest.approx(rate.per_gpu_hour * (1 + hosts / 419))
    assert (
        load_reliability().rate("rsc-1").on_parts(8, 8, 8).per_gpu_hour == load_reliability().rate("rsc-1").per_gpu_hour
    )


def test_improvements_improve_and_a_run_that_never_fails_loses_only_checkpoints() -> None:
    slow = load_job(LLAMA | {"checkpoint": {"asynchronous": False, "storage_rate": "100GB/s", "every_steps": 360}})
    found = recovery(slow, 20.0, PARTS, Assumptions())
    changes = {name: then.goodput for name, _, then in faster_recoveries(found)}
    assert set(changes) == {"async-checkpoint", "checkpoint-interval", "restart", "storage"}
    assert all(share > found.goodput for share in changes.values())
    calm = recovery(slow, 20.0, PARTS, Assumptions(), load_reliability().rate("rsc-1").__class__("calm", 0.0, "none"))
    assert math.isinf(calm.mttf_s)
    assert calm.goodput == pytest.approx(calm.interval_s / (calm.interval_s + calm.stall_s))
