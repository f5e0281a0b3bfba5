"""Runs lived through against closed forms where those hold, and against published logs of failures.

The log of InfiniteHBD (`data/infinitehbd.csv`) is that of github.com/stepfun-ai/InfiniteHBD-Trace (Apache-2.0), one
fault a row, servers numbered.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.checkpoint import best_interval_s, daly_s, goodput, young_s
from syncline.planning.cost.histories import histories
from syncline.planning.cost.recovery import Parts, Recovery, recovery
from syncline.planning.cost.reliability import read_log
from syncline.planning.cost.table import read_table
from syncline.workload.read_job import load_job

LLAMA: dict[str, object] = {"model": "llama3-405b", "batch": {"global": 2048, "sequence": 8192}}
SMALL: dict[str, object] = {"model": "llama3-70b", "batch": {"global": 1024, "sequence": 8192}}
SLOW: dict[str, object] = {"checkpoint": {"asynchronous": False, "storage_rate": "100GB/s"}}
LOG = Path(__file__).parent / "data" / "infinitehbd.csv"
DAY = 86400.0


def _found(job: dict[str, object], parts: Parts, **assumed: object) -> Recovery:
    return recovery(load_job(job), 20.0, parts, Assumptions.model_validate(assumed))


@pytest.mark.parametrize("waits", [False, True])
def test_runs_with_a_spare_at_hand_come_to_dalys_mean(waits: bool) -> None:
    slow = SLOW if waits else {}
    found = _found(LLAMA | slow, Parts(16_384, 2048, 16_384))
    assert 30 / histories(30 * DAY, found).days.mean() == pytest.approx(found.goodput, abs=1e-3)


def test_the_interval_of_young_and_daly_is_the_best_that_runs_find() -> None:
    found = _found(LLAMA | SLOW, Parts(4096, 512, 4096))
    best = float(best_interval_s(found.stall_s, found.mttf_s))
    for interval in (daly_s(found.stall_s, found.mttf_s), young_s(found.stall_s, found.mttf_s)):
        assert float(interval) == pytest.approx(best, rel=0.05)
    seen = [60 / histories(60 * DAY, replace(found, interval_s=best * part)).days.mean() for part in (0.4, 1.0, 2.5)]
    assert seen[1] > max(seen[0], seen[2])
    assert seen[1] == pytest.approx(float(goodput(best, found.stall_s, found.mttf_s, found.restart_s)), abs=1e-3)


@pytest.mark.parametrize(("spares", "abs_error"), [(0, 0.01), (1, 0.01), (3, 0.003)])
def test_waiting_for_hosts_in_repair_is_erlangs_loss_formula(spares: int, abs_error: float) -> None:
    found = _found(SMALL, Parts(512, 64, 512, spares=spares, repair_s=36 * 3600.0))
    seen = histories(400 * DAY, found)
    assert 400 / seen.days.mean() == pytest.approx(found.goodput, abs=abs_error)
    assert seen.waiting_days.mean() / seen.days.mean() == pytest.approx(found.lost_by["hosts in repair"], abs=abs_error)


def test_an_elastic_job_comes_to_the_same_states_and_pays_for_regrowing() -> None:
    job = SMALL | {"elastic": True, "parallel": {"tp": 4, "pp": 4, "cp": 2}}
    found = _found(job, Parts(512, 64, 512, spares=0, repair_s=36 * 3600.0))
    seen = histories(400 * DAY, found)
    assert 400 / seen.days.mean() == pytest.approx(found.goodput, abs=5e-3) and seen.waiting_days.max() < 1


def test_nothing_fails_and_nothing_is_lost_but_checkpoints() -> None:
    found = _found(SMALL, Parts(512, 64, 512, spares=0))
    calm = replace(found, rate=replace(found.rate, per_gpu_hour=0.0))
    seen = histories(10 * DAY, calm)
    assert np.ptp(seen.days) == 0.0 and seen.interruptions.max() == 0.0
    assert seen.days[0] == pytest.approx(10 * (1 + calm.stall_s / calm.interval_s), rel=1e-3)


def test_llama_3_from_the_rates_of_others_comes_near_its_54_days() -> None:
    """419 interruptions and more than 90 % effective time on 16,384 GPUs; none of these rates was counted there."""
    counts = {}
    for name in ("infinitehbd", "opt-175b", "rsc-1", "rsc-2"):
        found = _found(LLAMA, Parts(16_384, 2048, 16_384), reliability=name)
        seen = histories(54 * DAY * found.goodput, found)
        assert seen.days.mean() == pytest.approx(54, rel=0.01) and found.goodput > 0.89
        counts[name] = float(seen.interruptions.mean())
    assert counts["infinitehbd"] == pytest.approx(464, rel=0.02)
    assert min(counts.values()) < 419 < max(counts.values())


def test_the_first_half_of_a_published_log_foretells_what_is_away_in_the_second() -> None:
    rows = read_table(LOG.read_text(), "log", ("time_days", "host", "part", "repair_hours"))
    start, away = (np.array([row.number(name) for row in rows]) for name in ("time_days", "repair_hours"))
    middle = 348.98 / 2
    heading, *lines = LOG.read_text().splitlines()
    text = "\n".join([heading.replace("time_days", "time"), *(x for x in lines if float(x.split(",")[0]) < middle)])
    rate = read_log(text, "log", 3200)
    found = replace(_found(SMALL, Parts(3200, 400, 3200, spares=0)), rate=rate, repair_hours=rate.repair_hours)
    expected = found.standby.losses_per_s * found.standby.repair_s
    at = np.linspace(middle, 348.0, 2000)
    seen = ((start < at[:, None]) & (start + away / 24 > at[:, None])).sum(axis=1)
    assert (rate.count, int((start >= middle).sum())) == (312, 271)
    assert expected == pytest.approx(12.0, abs=0.1) and float(seen.mean()) == pytest.approx(6.9, abs=0.1)
