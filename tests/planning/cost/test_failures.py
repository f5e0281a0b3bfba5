from __future__ import annotations

import math

import pytest

from syncline.errors import CostError, DescriptionError
from syncline.fabric import Fabric
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.checkpoint import goodput
from syncline.planning.cost.recovery import link_failures, outlook
from syncline.planning.cost.reliability import COLUMNS, FailureRate, load_reliability, parse_reliability

HEAD = ",".join(COLUMNS)


def test_rates_are_counts_over_gpu_hours() -> None:
    rates = load_reliability()
    llama = rates.rate("llama3-405b")
    assert llama.per_gpu_hour == pytest.approx(419 / (16384 * 54 * 24))
    assert sum(llama.causes.values()) == 419
    assert llama.network_share == pytest.approx((35 + 7) / 419)
    assert rates.rate("rsc-1").per_gpu_hour == pytest.approx(6.5 / 1000 / 24 / 8)
    assert rates.rate("rsc-1").network_share is None


def test_the_time_to_failure_projects_as_its_authors_did() -> None:
    rates = load_reliability()
    seen = [o for o in rates.observations if o.metric == "mttf_projected"]
    assert len(seen) == 2
    for observation in seen:
        hours = rates.rate(observation.system).mttf_s(observation.num_gpus) / 3600
        assert hours == pytest.approx(observation.value, rel=0.03)


def test_goodput_is_near_what_its_authors_expected() -> None:
    """Kokolis et al. expect 0.7 and 0.93 at 16,000 GPUs; a restart of 5 minutes and free checkpoints give these."""
    rates = load_reliability()
    seen = [o for o in rates.observations if o.metric == "goodput_expected"]
    assert [o.interval_s for o in seen] == [3600, 300]
    for observation in seen:
        mttf = rates.rate(observation.system).mttf_s(observation.num_gpus)
        assert goodput(observation.interval_s, 0, mttf, 300) == pytest.approx(observation.value, abs=0.025)


def test_llama_3_could_reach_the_effective_time_it_printed() -> None:
    found = outlook(16384, 54, load_reliability().rate("llama3-405b"), Assumptions(checkpoint_s=10))
    assert found.interruptions == pytest.approx(419)
    assert found.network_interruptions == pytest.approx(42)
    assert 0.90 < found.goodput < 0.95


def test_what_is_lost_adds_up() -> None:
    found = outlook(4096, 30, load_reliability().rate("rsc-1"), Assumptions(), usd_per_gpu_hour=2.0)
    assert sum(found.lost_by.values()) == pytest.approx(1 - found.goodput)
    assert min(found.lost_by.values()) > 0
    assert found.lost_usd == pytest.approx((1 - found.goodput) * 4096 * 720 * 2)
    assert found.to_json()["young_s"] == pytest.approx(math.sqrt(2 * 100 * found.mttf_s))


def test_larger_jobs_fail_more_and_checkpoint_more_often() -> None:
    rate = load_reliability().rate("llama3-405b")
    small, large = outlook(1024, 10, rate), outlook(32768, 10, rate)
    assert large.interruptions == pytest.approx(32 * small.interruptions)
    assert large.interval_s < small.interval_s
    assert large.goodput < small.goodput


def test_a_given_interval_is_kept_and_never_better_than_the_best() -> None:
    rate = load_reliability().rate("llama3-405b")
    given = outlook(8192, 10, rate, Assumptions(checkpoint_interval_s=7200))
    assert (given.interval_s, given.interval_is_best) == (7200, False)
    assert given.goodput < outlook(8192, 10, rate).goodput


def test_a_system_that_never_fails_loses_only_checkpoints() -> None:
    found = outlook(8, 10, FailureRate("perfect", 0.0, "test"))
    assert found.interruptions == 0
    assert found.to_json()["mttf_s"] is None
    assert found.goodput > 0.9999


def test_free_checkpoints_still_take_a_minute_apart() -> None:
    assert outlook(8, 10, load_reliability().rate("rsc-1"), Assumptions(checkpoint_s=0)).interval_s == 60


def test_cables_and_switches_fail_at_the_published_shares(rail: Fabric) -> None:
    month = 730.5 / 24
    assert link_failures(rail, month, load_reliability()) == pytest.approx(1024 * 0.00057 + 24 * 0.00051)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("s,interruptions,,-1,count,8,3,8,,x,", "t.csv line 2: value is -1, which is negative"),
        ("s,interruptions,,1,count,8,0,8,,x,", "t.csv line 2: 0 days."),
        ("s,interruptions,,1,count,0,3,8,,x,", "t.csv line 2: num_gpus is 0, which is below 1"),
        ("s,interruptions,,1,count,8,3,8,,,", "t.csv line 2: source is empty"),
        ("s,link_failures,,5,ratio,,,,,x,", "t.csv line 2: value is 5, but it is a share a month"),
        ("s,moods,,5,ratio,,,,,x,", 't.csv line 2: metric is "moods"'),
        ("s,cause,Network: x,5,count,,,,,x,", 'causes of "s" without its interruptions'),
        (
            "s,interruptions,,4,count,8,3,8,,x,\ns,cause,Network: x,5,count,,,,,x,",
            '"s" has 4 interruptions, but its causes add up to 5',
        ),
        ("s,interruptions,,4,count,8,3,8,,x,\ns,host_failures,,4,,,,8,,x,", 't.csv line 3: "s" already has a rate'),
    ],
)
def test_a_wrong_table_is_one_clear_error(rows: str, message: str) -> None:
    with pytest.raises((DescriptionError, CostError)) as caught:
        parse_reliability(f"{HEAD}\n{rows}\n", "t.csv")
    assert message in str(caught.value)


def test_unknown_systems_and_empty_runs_are_refused() -> None:
    rates = load_reliability()
    with pytest.raises(CostError, match='no failure rate of "gpt" in reliability'):
        rates.rate("gpt")
    with pytest.raises(CostError, match="a positive number of days, got 0"):
        outlook(8, 0, rates.rate("rsc-1"))
    with pytest.raises(CostError, match="at least 1 GPU, got 0"):
        outlook(0, 1, rates.rate("rsc-1"))
