"""Goodput of a job: from its own checkpoints, storage, restarts and parts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from syncline.errors import SynclineError
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.recovery import Parts, faster_recoveries, recovery
from syncline.planning.cost.reliability import load_reliability
from syncline.workload.read_job import load_job

LLAMA = {"model": "llama3-405b", "batch": {"global": 2048, "sequence": 8192}}
JOB = load_job({"model": "llama3-70b", "batch": {"global": 1024, "sequence": 8192}})
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
    assert recovery(load_job(LLAMA), 20.0, PARTS, Assumptions(detect_s=10)).goodput > plain.goodput
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
    assert set(changes) == {"async-checkpoint", "checkpoint-interval", "detect", "restart", "storage"}
    assert all(share > found.goodput for share in changes.values())
    calm = recovery(slow, 20.0, PARTS, Assumptions(), load_reliability().rate("rsc-1").__class__("calm", 0.0, "none"))
    assert math.isinf(calm.mttf_s)
    assert calm.goodput == pytest.approx(calm.interval_s / (calm.interval_s + calm.stall_s))


def test_spare_hosts_and_hosts_that_are_rented_follow_the_cluster_file() -> None:
    bare = Parts(512, 64, 512, spares=0, repair_s=36 * 3600.0)
    found = {spares: recovery(JOB, 10.0, replace(bare, spares=spares), Assumptions()) for spares in (0, 1, 2, 4)}
    shares, endless = [one.goodput for one in found.values()], recovery(JOB, 10.0, Parts(512, 64, 512), Assumptions())
    assert shares == sorted(shares) and shares[-1] == pytest.approx(endless.goodput, abs=1e-3)
    # By hand: 0.31 hosts are away if none is waited for; a job without a spare is up 1 / (1 + 0.31) of the time.
    load = found[0].standby.losses_per_s * 36 * 3600
    assert found[0].lost_by["hosts in repair"] == pytest.approx(load / (1 + load))
    assert found[0].lost_by["hosts in repair"] + found[0].goodput <= 1
    assert found[2].parts.paid_gpus == 528
    assert next(name for name, *_ in faster_recoveries(found[0])) == "spares"
    assert replace(bare, spares=None, rents=True).paid_gpus == 512


def test_an_elastic_job_keeps_the_replicas_that_are_whole() -> None:
    parts = Parts(512, 64, 512, spares=0, repair_s=36 * 3600.0)
    elastic = JOB.model_copy(update={"elastic": True})
    grown = recovery(elastic, 10.0, parts, Assumptions(), replica_gpus=32)
    assert grown.replica_hosts == 4 and list(grown.standby.speeds[:6]) == [1.0] + [60 / 64] * 4 + [56 / 64]
    assert recovery(JOB, 10.0, parts, Assumptions()).goodput < grown.goodput < 1


def test_a_log_of_ones_own_is_counted_on_this_cluster(tmp_path: Path) -> None:
    log = tmp_path / "failures.csv"
    log.write_text("time,host,part,repair_hours\n2026-01-01T00:00,gpu-1,GPU,30\n2026-01-03T00:00,gpu-2,,\n"
                   "2026-01-06,gpu-1,NIC,10\n2026-01-11,gpu-9,GPU,20\n")  # fmt: skip
    found = recovery(JOB, 10.0, Parts(512, 64, 512, spares=1), Assumptions(reliability=str(log)))
    assert found.rate.per_gpu_hour == pytest.approx(3 / (512 * 10 * 24))
    assert found.rate.host_share == pytest.approx(0.75) and found.standby.repair_s == pytest.approx(20 * 3600)
    # On other numbers of hosts and NICs a GPU the count stays what it was.
    assert recovery(JOB, 10.0, Parts(512, 128, 64), Assumptions(reliability=str(log))).mttf_s == found.mttf_s


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,2\n2,3\n", "has 2 failures over 1 days: too few for a rate"),
        ("1,2\n1,3\n1,4\n", "has 3 failures over 0 days: too few for a rate"),
        ("1,2\nsoon,3\n3,4\n", 'line 3: time "soon" is not a number'),
        ("1,2\n2,-3\n3,4\n", "line 3: repair_hours is -3, which is negative"),
    ],
)
def test_a_log_that_says_too_little_is_one_clear_error(tmp_path: Path, rows: str, message: str) -> None:
    log = tmp_path / "log.csv"
    log.write_text("time,repair_hours\n" + rows)
    with pytest.raises(SynclineError) as caught:
        recovery(JOB, 10.0, Parts(512, 64, 512), Assumptions(reliability=str(log)))
    assert message in str(caught.value)
