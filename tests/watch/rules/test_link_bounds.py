"""Link rules at their bounds: on either side of every number, with the past and the seconds before given by hand."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from tests.watch.scenes import CAPACITY, TICK_S, frame, load, reached, table

from syncline.finding import Severity
from syncline.watch.burst import Burst
from syncline.watch.job import JobState, StepStat
from syncline.watch.links import LinkLoad, LinkTable
from syncline.watch.prediction import Prediction
from syncline.watch.rules.degraded_rule import LinkDegraded, is_overdue
from syncline.watch.rules.link_rules import (
    LinkAverage,
    LinkDown,
    LinkErrors,
    LinkLoss,
    LinkMicroburst,
    LinkPause,
    LinkPeak,
    idle_beside,
    planned_use,
)
from syncline.watch.rules.past import Past
from syncline.watch.rules.rule import Context
from syncline.watch.rules.thresholds import Thresholds

LINKS = table(2, num_rails=2)
FIRST, SECOND = LINKS.names
IDLE = 1e-4


def _past(links: LinkTable = LINKS, **columns: float) -> dict[str, Past]:
    """Return a minute in which each column stood still."""
    found = {}
    for name, value in columns.items():
        found[name] = Past(lag=0)
        for _ in range(60):
            found[name].add(links.names, np.full(len(links), value))
    return found


def _context(now: LinkLoad, links: LinkTable = LINKS, before: LinkLoad | None = None, looks: int = 60,
             job: JobState | None = None, **more: object) -> Context:  # fmt: skip
    """Return a context whose earlier looks were all alike."""
    recent = deque(frame(k, links, before or now, job) for k in range(looks))
    return Context(Thresholds(), Prediction(), frame(looks, links, now, job), recent, **more)  # type: ignore[arg-type]


def test_the_plan_of_one_link_says_nothing_of_another() -> None:
    context = Context(Thresholds(), Prediction(link_rate_Bps={FIRST: CAPACITY / 4}), frame(0, LINKS, load(LINKS)))
    assert planned_use(context).tolist() == [0.25, 0.0]


def test_a_port_that_is_down_at_once_and_one_that_never_carried() -> None:
    unknown = LinkTable(
        LINKS.names, LINKS.names, LINKS.directions, np.full(2, np.nan), LINKS.rail, LINKS.src, LINKS.dst, 1
    )
    now = load(unknown, use=0.0, up=[0, 1])
    assert not LinkDown().look(Context(Thresholds(), Prediction(), frame(0, unknown, now))).bad
    carried = Context(Thresholds(), Prediction(), frame(0, unknown, now), past=_past(unknown, rate=1e9))
    assert set(LinkDown().look(carried).bad) == {FIRST}
    assert set(LinkDown().look(Context(Thresholds(), Prediction(), frame(0, LINKS, now))).bad) == {FIRST}
    assert LinkDown.clear_after_s == 2.0


@pytest.mark.parametrize(
    ("share", "is_slow", "is_between"),
    [(0.79, True, False), (0.81, False, True), (0.94, False, True), (0.97, False, False)],
)
def test_how_far_below_its_past_a_link_is_degraded(share: float, is_slow: bool, is_between: bool) -> None:
    """Nobody sees packets wait: a link may have less to send."""
    now = load(LINKS, use=0.5 * share, peak_Bps=[share * CAPACITY, CAPACITY])
    reach = reached(LINKS, CAPACITY, now.peak_Bps)
    found = LinkDegraded().look(_context(now, past=_past(rate=0.5 * CAPACITY), reach=reach))
    assert (FIRST in found.bad, FIRST in found.between) == (is_slow, is_between)
    assert SECOND not in found.bad
    if is_slow:
        assert f"{share:.0%} of the least it reached before" in found.bad[FIRST]().evidence[0]


@pytest.mark.parametrize(("share", "is_slow"), [(0.92, True), (0.94, False)])
def test_a_link_whose_packets_wait_is_named_for_a_small_fall(share: float, is_slow: bool) -> None:
    now = load(LINKS, use=0.9 * share, peak_Bps=[share * CAPACITY, CAPACITY], backlog_bytes=[1e6, 0.0])
    reach = reached(LINKS, CAPACITY, now.peak_Bps)
    found = LinkDegraded().look(_context(now, past=_past(rate=0.9 * CAPACITY), reach=reach))
    assert (FIRST in found.bad) is is_slow
    assert not is_slow or found.bad[FIRST]().severity is Severity.WARNING


@pytest.mark.parametrize(("carried", "is_working"), [(0.19, False), (0.21, True), (0.5, True)])
def test_a_link_that_is_busy_for_less_of_the_time_has_less_to_send(carried: float, is_working: bool) -> None:
    """It was busy for 40 % of the time: at half the rate and as busy it is slow, less busy it has less work."""
    now = load(LINKS, use=carried, peak_Bps=[0.5 * CAPACITY] * 2)
    reach = reached(LINKS, CAPACITY, now.peak_Bps)
    found = LinkDegraded().look(_context(now, past=_past(rate=0.4 * CAPACITY), reach=reach))
    assert (FIRST in found.bad) is is_working
    assert is_working or FIRST in found.between


@pytest.mark.parametrize("other", ["link.down", "rail.dead"])
def test_beside_a_dead_link_only_a_queue_convicts(other: str) -> None:
    past = _past(rate=0.5 * CAPACITY)
    for backlog, is_slow in ((0.0, False), (1e6, True)):
        now = load(LINKS, use=0.4, peak_Bps=[0.5 * CAPACITY, CAPACITY], backlog_bytes=[backlog, 0.0])
        reach = reached(LINKS, CAPACITY, now.peak_Bps)
        found = LinkDegraded().look(_context(now, past=past, active={other: {"elsewhere"}}, reach=reach))
        assert (FIRST in found.bad) is is_slow


def _job(num_steps: int, step_s: float, silent_s: float) -> JobState:
    """Return a job that last told something so long before the look at 15 s."""
    now_s = 1000.0 + 60 * TICK_S
    steps = tuple(StepStat(k, now_s, step_s, step_s, 0.0, 4) for k in range(num_steps))
    return JobState(steps=steps, last_span_s=now_s - silent_s)


@pytest.mark.parametrize(
    ("num_steps", "step_s", "silent_s", "expected"),
    [
        (3, 1.0, 1.9, False),  # one and a half steps and half a second may pass
        (3, 1.0, 2.1, True),
        (4, 1.0, 2.1, True),
        (2, 1.0, 2.1, False),  # two steps are no custom
        (3, 2.0, 3.4, False),
        (3, 2.0, 3.6, True),
    ],
)
def test_when_a_job_is_overdue(num_steps: int, step_s: float, silent_s: float, expected: bool) -> None:
    assert is_overdue(_context(load(LINKS), job=_job(num_steps, step_s, silent_s))) is expected


@pytest.mark.parametrize(("use", "bad", "between"), [(0.81, True, False), (0.79, False, True), (0.74, False, False)])
def test_averages(use: float, bad: bool, between: bool) -> None:
    found = LinkAverage().look(_context(load(LINKS, use=use)))
    assert (FIRST in found.bad, FIRST in found.between) == (bad, between)
    assert not LinkAverage().look(_context(load(LINKS, use=use), looks=20)).bad  # five seconds say nothing


def test_a_plan_that_fills_a_link_raises_its_bounds() -> None:
    context = _context(load(LINKS, use=0.9, saturated=[0.9, 0.9]))
    context.prediction = Prediction(link_rate_Bps={FIRST: 0.85 * CAPACITY})
    assert set(LinkAverage().look(context).bad) == {SECOND}
    assert set(LinkPeak().look(context).bad) == {SECOND}


def test_a_full_link_costs_nothing_while_steps_keep_to_the_plan() -> None:
    """Flows that hash onto one of two ways fill it, and where the hosts' links are as full nobody waits for that."""
    for step_s, is_bad in ((1.0, False), (1.1, True)):
        context = _context(load(LINKS, use=0.6, saturated=[0.6, 0.0]), job=_job(5, step_s, 0.1))
        context.prediction = Prediction(step_s=1.05, link_rate_Bps={FIRST: 0.3 * CAPACITY})
        found = LinkPeak().look(context)
        assert (set(found.bad) == {FIRST}) is is_bad
        assert is_bad or set(found.between) == {FIRST}
        context = _context(load(LINKS, use=np.array([0.9, 0.0])), job=_job(5, step_s, 0.1))
        context.prediction = Prediction(step_s=1.05, link_rate_Bps={FIRST: 0.3 * CAPACITY})
        assert (set(LinkAverage().look(context).bad) == {FIRST}) is is_bad


def test_links_that_were_full_are_no_cause_while_another_is_in_trouble() -> None:
    for active, is_bad in (({"link.degraded": {"elsewhere"}}, False), ({"rail.dead": {"elsewhere"}}, True)):
        now = load(LINKS, use=np.array([0.9, 0.0]), saturated=[0.9, 0.0])
        context = _context(now, job=_job(5, 3.0, 0.1), active=active)
        context.prediction = Prediction(step_s=1.05, link_rate_Bps={FIRST: 0.3 * CAPACITY})
        assert (FIRST in LinkPeak().look(context).bad, FIRST in LinkAverage().look(context).bad) == (is_bad, is_bad)


def test_a_full_link_beside_idle_ones_of_its_kind_says_so() -> None:
    ways = ("leaf-0 -> spine-00", "leaf-0 -> spine-01", "leaf-0 -> spine-02", "leaf-0 -> host-00/nic-0")
    src, dst = zip(*(name.split(" -> ") for name in ways), strict=True)
    links = LinkTable(ways, ways, ("tx",) * 4, np.full(4, CAPACITY), np.full(4, -1), src, dst, 1)
    now = load(links, use=np.array([0.6, 0.01, 0.5, 0.0]), saturated=[0.6, 0.0, 0.0, 0.6])
    found = LinkPeak().look(_context(now, links))
    assert found.bad[ways[0]]().evidence[1] == "carries 60% on average, beside it leaf-0 -> spine-01 1%"
    assert len(found.bad[ways[3]]().evidence) == 1


@pytest.mark.parametrize(("share", "bad", "between"), [(0.51, True, False), (0.46, False, True), (0.44, False, False)])
def test_peaks(share: float, bad: bool, between: bool) -> None:
    found = LinkPeak().look(_context(load(LINKS, saturated=[share, share])))
    assert (FIRST in found.bad, FIRST in found.between) == (bad, between)


def test_ten_seconds_must_have_been_seen_before_a_peak_counts() -> None:
    for looks, says in ((39, False), (40, True)):
        found = LinkPeak().look(_context(load(LINKS, saturated=[0.9, 0.46]), looks=looks))
        assert (set(found.bad), set(found.between)) == (({FIRST}, {SECOND}) if says else (set(), set()))


def _switch_links(*ways: str) -> LinkTable:
    src, dst = zip(*(name.split(" -> ") for name in ways), strict=True)
    num = len(ways)
    return LinkTable(ways, ways, ("tx",) * num, np.full(num, CAPACITY), np.full(num, -1), src, dst, 1)


@pytest.mark.parametrize(
    ("num_idle", "ending"),
    [(1, "spine-01 1%"), (3, "spine-03 1%"), (4, "1%, leaf-0 -> spine-03 1% and 1 more"), (6, "and 3 more")],
)
def test_of_many_idle_ways_three_are_named(num_idle: int, ending: str) -> None:
    links = _switch_links(*(f"leaf-0 -> spine-{k:02d}" for k in range(num_idle + 1)))
    (said,) = idle_beside(links, np.array([0.6, *[0.01] * num_idle]), 0)
    assert said.startswith("carries 60% on average, beside it leaf-0 -> spine-01 1%") and said.endswith(ending)


def test_idle_ways_of_another_switch_and_of_network_cards_are_not_beside() -> None:
    links = _switch_links("leaf-0 -> spine-00", "leaf-1 -> spine-01", "leaf-0 -> pod-00", "leaf-0 -> spine-01")
    assert idle_beside(links, np.array([0.6, 0.0, 0.0, 0.3]), 0) == []  # half as much is not far less
    assert idle_beside(links, np.array([0.6, 0.0, 0.0, 0.29]), 0) != []
    for ways in (
        ("host-00/nic-0 -> leaf-0", "host-00/nic-0 -> leaf-1"),
        ("leaf-0 -> host-00/nic-0", "leaf-0 -> host-00/nic-1"),
    ):
        assert idle_beside(_switch_links(*ways), np.array([0.6, 0.0]), 0) == []


def _bursts(num: int, looks: int = 60, *, use: float = 0.3, usual: float = 0.0, duration_s: float = 0.01,
            has_spans: bool = False, told_s: float | None = None) -> Context:  # fmt: skip
    """Return a context in which a link burst so often in the last second of what is told."""
    until = told_s or 1000.0 + looks * TICK_S
    found = deque(Burst(until - 1.0 + 0.1 * k, until - 1.0 + 0.1 * k + duration_s, 1e6 * (k + 1)) for k in range(num))
    job = JobState(reported_s=told_s) if told_s else None
    return _context(load(LINKS, use=use), looks=looks, job=job, bursts={FIRST: found, "a link that is gone": found},
                    past=_past(bursts=usual), has_spans=has_spans)  # fmt: skip


@pytest.mark.parametrize(
    ("num", "more", "bad", "between"),
    [
        (2, {}, True, False),  # one a second, over two seconds
        (1, {}, False, True),
        (0, {}, False, False),
        (2, {"looks": 19}, False, False),  # under five seconds seen
        (2, {"looks": 20}, True, False),
        (2, {"use": 0.59}, True, False),
        (2, {"use": 0.61}, False, True),  # its average shows it: no microburst
        (2, {"duration_s": 0.11}, False, False),  # too long to be hidden by an average
        (4, {"usual": 1.0}, True, False),  # twice its own past
        (3, {"usual": 1.0}, False, True),
        (2, {"usual": 1.0, "has_spans": True, "told_s": 1012.0}, True, False),  # spans tell better than the past
    ],
)
def test_bursts(num: int, more: dict[str, float], bad: bool, between: bool) -> None:
    found = LinkMicroburst().look(_bursts(num, **more))  # type: ignore[arg-type]
    assert (FIRST in found.bad, FIRST in found.between) == (bad, between)
    assert SECOND not in found.bad
    if bad:
        said = found.bad[FIRST]()
        assert said.observed == f"{num} bursts in 2 s"
        assert said.expected == ("under 4" if more.get("usual") and not more.get("has_spans") else "under 2")
        assert said.evidence[1] == f"longest 10 ms, largest {num:.2f} MB"
        assert said.evidence[2].startswith("outside every" if more.get("has_spans") else "more than this link's own")


def test_an_average_at_its_bound_is_no_microburst() -> None:
    context = _bursts(2, use=0.5)
    context.thresholds = Thresholds(burst_average_below=0.5)
    assert not LinkMicroburst().look(context).bad


def test_before_a_link_has_a_past_no_burst_is_told() -> None:
    context = _bursts(4)
    context.past = {"bursts": Past(lag=0)}
    context.past["bursts"].add(LINKS.names, np.full(2, np.nan))
    assert not LinkMicroburst().look(context).bad


def test_losses_that_have_stopped_are_over_and_new_ones_count_at_once() -> None:
    """Over four seconds the mean is still above the past, in the last second nothing was lost."""
    few, none = load(LINKS, use=IDLE, drops_per_s=[9.0, 0.0]), load(LINKS, use=IDLE, drops_per_s=[0.0, 0.0])
    context = _context(none, before=few, past=_past(drops=0.0))
    context.recent = deque(frame(k, LINKS, few if k < 55 else none) for k in range(60))
    found = LinkLoss().look(context)
    assert FIRST in found.bad and found.bad[FIRST]().observed.startswith("5.6 packets") and FIRST not in found.between
    context.past = _past(drops=2.0)  # within what it has always dropped
    assert FIRST not in LinkLoss().look(context).bad and FIRST not in LinkLoss().look(context).between
    context = _context(load(LINKS, use=IDLE, drops_per_s=[40.0, 0.0]), before=none, past=_past(drops=2.0))
    finding = LinkLoss().look(context).bad[FIRST]()  # 13 a second now, 2.5 over four seconds
    assert finding.severity is Severity.WARNING  # all at one moment: a queue may have overflowed once


@pytest.mark.parametrize(("is_crowded", "use", "severity"), [
    (False, 0.5, Severity.CRITICAL), (True, 0.5, Severity.WARNING), (True, IDLE, Severity.CRITICAL),
])  # fmt: skip
def test_a_little_that_is_lost_on_a_crowded_host_is_a_warning(is_crowded: bool, use: float, severity: Severity) -> None:
    now = load(LINKS, use=use, drops_per_s=[40.0, 0.0])
    context = _context(now, before=now, past=_past(drops=2.0))
    context.is_crowded = is_crowded
    assert LinkLoss().look(context).bad[FIRST]().severity is severity


def test_losses_as_many_as_ever_are_none_beyond() -> None:
    now = load(LINKS, use=IDLE, drops_per_s=[8.0, 0.0])
    assert FIRST not in LinkLoss().look(_context(now, before=now, past=_past(drops=2.0))).bad


@pytest.mark.parametrize(("errors", "bad"), [(4.0, True), (3.9, False)])
def test_one_error_in_ten_seconds_is_told(errors: float, bad: bool) -> None:
    now, before = load(LINKS, errors_per_s=[errors, 0.0]), load(LINKS, errors_per_s=[0.0, 0.0])
    found = LinkErrors().look(_context(now, before=before))
    assert (set(found.bad) == {FIRST}) is bad and not found.between
    if bad:
        assert found.bad[FIRST]().observed == "1 errors in 10 s"
    assert not LinkErrors().look(_context(before, before=now, looks=0)).bad


@pytest.mark.parametrize(
    ("drops", "usual", "bad", "between"),
    [
        (8.0, 0.0, True, False), (4.0, 0.0, False, True), (0.0, 0.0, False, False),
        (9.0, 2.0, True, False), (7.0, 2.0, False, True), (4.0, 2.0, False, False),
    ],
)  # fmt: skip
def test_losses(drops: float, usual: float, bad: bool, between: bool) -> None:
    """One look of a quarter second: 8 a second are two packets, 4 are one, which says nothing of a link."""
    before = load(LINKS, use=IDLE) if usual == 0 else None
    now = load(LINKS, use=IDLE, drops_per_s=[drops, 0.0])
    found = LinkLoss().look(_context(now, before=before, past=_past(drops=usual)))
    assert (FIRST in found.bad, FIRST in found.between) == (bad, between)


def test_two_lost_packets_count_together_for_some_seconds() -> None:
    one = load(LINKS, use=IDLE, drops_per_s=[4.0, 0.0])
    found = LinkLoss().look(_context(one, before=one, past=_past(drops=0.0)))
    told = found.bad[FIRST]()
    assert "packets in 4 s" in told.evidence[0] and told.severity is Severity.CRITICAL


@pytest.mark.parametrize(("drops", "bad"), [(4.0, False), (4.4, True)])
def test_a_few_packets_of_millions_are_no_loss(drops: float, bad: bool) -> None:
    """Half of 12.5 GB/s is 4.17 million packets of 1,500 bytes a second."""
    now = load(LINKS, drops_per_s=[drops, 0.0])
    assert (FIRST in LinkLoss().look(_context(now, before=now, past=_past(drops=0.0))).bad) == bad


@pytest.mark.parametrize(
    ("pauses", "usual", "bad", "between"),
    [
        (1001.0, 0.0, True, False), (1000.0, 0.0, False, True), (501.0, 0.0, False, True), (500.0, 0.0, False, False),
        (3001.0, 1000.0, True, False), (2999.0, 1000.0, False, True), (1499.0, 1000.0, False, False),
    ],
)  # fmt: skip
def test_pauses_of_ethernet_are_frames(pauses: float, usual: float, bad: bool, between: bool) -> None:
    found = LinkPause().look(_context(load(LINKS, pauses_per_s=[pauses, 0.0]), past=_past(pauses=usual)))
    assert (FIRST in found.bad, FIRST in found.between) == (bad, between)
    if bad:
        said = found.bad[FIRST]()
        assert said.observed == f"{pauses:.0f} pause frames a second"
        assert said.expected == f"under {max(1000.0, 3 * usual):.0f}"


@pytest.mark.parametrize(("ticks", "share", "bad", "between"), [
    (0.26e9, "21%", True, False), (0.24e9, "19%", False, True), (0.12e9, "11%", False, True),
    (0.1e9, "9%", False, False),
])  # fmt: skip
def test_pauses_of_infiniband_are_a_share_of_words(ticks: float, share: str, bad: bool, between: bool) -> None:
    """4 GB/s are 1e9 words a second: a quarter of that in ticks of waiting is a fifth of the time."""
    ports = replace(LINKS, devices=("mlx5_0:1", "mlx5_1:1"))
    now = load(ports, use=4e9 / CAPACITY, pauses_per_s=[ticks, 0.0])
    found = LinkPause().look(_context(now, ports, past=_past(ports, pauses=0.0)))
    assert (FIRST in found.bad, FIRST in found.between) == (bad, between)
    if bad:
        said = found.bad[FIRST]()
        assert (said.observed, said.expected) == (f"{share} of the time without credit", "under 20%")


def test_an_infiniband_port_that_only_waits_is_held_up() -> None:
    ports = replace(LINKS, devices=("mlx5_0:1", "mlx5_1:1"))
    now = load(ports, use=0.0, pauses_per_s=[0.5, 0.0])
    assert set(LinkPause().look(_context(now, ports, past=_past(ports, pauses=0.0))).bad) == {FIRST}
