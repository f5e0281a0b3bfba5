from __future__ import annotations

import pytest

from syncline.errors import CostError, DescriptionError
from syncline.fabric import Fabric
from syncline.planning.cost.checkpoint import goodput
from syncline.planning.cost.recovery import link_failures
from syncline.planning.cost.reliability import COLUMNS, load_reliability, parse_reliability

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
    with pytest.raises(CostError, match="at least 1 GPU, got 0"):
        rates.rate("rsc-1").mttf_s(0)
