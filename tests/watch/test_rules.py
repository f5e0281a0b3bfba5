"""Rules: each raises where it should, says why, clears, and does not flap; nothing is raised on a quiet job."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.watch.scenes import CAPACITY, TICK_S, Job, frame, load, table

from syncline.errors import WatchError
from syncline.finding import Severity
from syncline.timeline.account import StepCause
from syncline.watch.burst import Burst
from syncline.watch.job import JobState, RankStat, StepStat
from syncline.watch.links import LinkLoad, LinkTable
from syncline.watch.prediction import Prediction
from syncline.watch.rules.engine import RuleEngine
from syncline.watch.rules.hold import Change, Hold
from syncline.watch.rules.job_rules import LateRank, silence_s
from syncline.watch.rules.rule import Context
from syncline.watch.rules.thresholds import Thresholds, read_thresholds
from syncline.watch.spans.event import JobPhase, PhaseEvent, SpanEvent

LINKS = table(8)
PLAN = Prediction(
    "test", step_s=0.25, exposed_s=0.1, collectives_s={"all_reduce": 0.1}, num_gpus=64, usd_per_gpu_hour=2.0
)
WARM = 80


class Watch:
    """An engine fed with a job's frames at a steady pace, and what it raised and cleared."""

    def __init__(
        self,
        prediction: Prediction = PLAN,
        links: LinkTable = LINKS,
        thresholds: Thresholds | None = None,
        num_ranks: int = 4,
    ) -> None:
        self.engine = RuleEngine(thresholds, prediction)
        self.links, self.job, self.number = links, Job(prediction, num_ranks), 0
        self.log: list[tuple[float, str, str, str]] = []
        self.up: set[tuple[str, str]] = set()
        self.rng = np.random.default_rng(3)
        self.done = 1000.0

    def run(
        self,
        ticks: int,
        make: Callable[[int], LinkLoad] | None = None,
        *,
        bursts: dict[str, list[Burst]] | None = None,
        step: dict[str, Any] | None = None,
        quiet: bool = False,
        **options: Any,
    ) -> Watch:
        for _ in range(ticks):
            self.number += 1
            now = 1000.0 + self.number * TICK_S
            events = [] if quiet else self.steps(now, step or {})
            noise = 1 + 0.05 * self.rng.standard_normal(len(self.links))
            of = make(self.number) if make else load(self.links, 0.5 * noise)
            state: JobState = self.job.view.state(now)
            busy = [(e.start_s, e.end_s) for e in events if e.peer >= 0]
            here = {
                k: [Burst(now + b.start_s, now + b.end_s, b.size_bytes) for b in v] for k, v in (bursts or {}).items()
            }
            self.engine.update(frame(self.number, self.links, of, state), bursts=here, busy=busy, **options)
            up = {(f.rule, f.place) for f in self.engine.findings}
            self.log += [(now, "raised", *key) for key in sorted(up - self.up)]
            self.log += [(now, "cleared", *key) for key in sorted(self.up - up)]
            self.up = up
        return self

    def steps(self, now: float, step: dict[str, Any]) -> list[SpanEvent]:
        """Report every step that has ended by now; a slower step comes less often."""
        took = step.get("compute_s", 0.15) + step.get("comm_s", 0.1) + max(step.get("late", {}).values(), default=0.0)
        events = []
        self.done = max(self.done, now - 4 * took)
        while self.done + took <= now + 1e-9:
            self.done += took
            events += self.job.run_step(self.done, **step)
        return events

    @property
    def onset(self) -> float:
        return 1000.0 + self.number * TICK_S

    def raised(self, rule: str) -> list[tuple[float, str]]:
        return [(t, place) for t, event, r, place in self.log if event == "raised" and r == rule]

    def cleared(self, rule: str) -> list[str]:
        return [place for _, event, r, place in self.log if event == "cleared" and r == rule]


@cache
def _warmed() -> Watch:
    return Watch().run(WARM)


def warm() -> Watch:
    """Return a watch that has seen a quiet job for a while: a copy of the one that really has."""
    return copy.deepcopy(_warmed(), {id(shared): shared for shared in (LINKS, PLAN)})


def test_a_copy_of_a_warm_watch_goes_on_as_one_that_was_warmed_up_itself() -> None:
    def course(watch: Watch) -> tuple[Any, ...]:
        watch.run(24, **CASES["link.degraded"]).run(40)
        return watch.log, watch.engine.alerts(), watch.rng.standard_normal()

    assert course(warm()) == course(warm()) == course(Watch().run(WARM))


def one(link: int, **changes: float) -> Callable[[int], LinkLoad]:
    """Return loads with one link changed."""

    def make(_: int) -> LinkLoad:
        of = load(LINKS, 0.5)
        for name, value in changes.items():
            getattr(of, name)[link] = value
        return of

    return make


def test_a_quiet_job_raises_nothing_in_two_minutes() -> None:
    assert Watch().run(480).log == []


CASES: dict[str, dict[str, Any]] = {
    "link.degraded": {"make": one(3, peak_Bps=0.4 * CAPACITY, rate_Bps=0.3 * CAPACITY, backlog_bytes=1e5)},
    "link.loss": {"make": one(3, drops_per_s=20.0)},
    "link.errors": {"make": one(3, errors_per_s=4.0)},
    "link.down": {"make": one(3, up=0.0, rate_Bps=0.0)},
}


RAIL_1 = LINKS.rail == 1
LOUD: list[dict[str, Any]] = [
    {"make": lambda _: load(LINKS, np.where(RAIL_1, 0.2, 0.5))},
    {"make": lambda _: load(LINKS, np.where(RAIL_1, 0.0, 0.5), up=np.where(RAIL_1, 0.0, 1.0))},
    {"make": one(3, pauses_per_s=50_000.0)},
    {"make": lambda _: load(LINKS, 0.4), "bursts": {LINKS.names[2]: [Burst(-0.2, -0.18, 1e6)]}},
    {"make": lambda _: load(LINKS, 0.99, saturated=np.ones(8))},
    {"step": {"late": {2: 0.08}}},
    {"step": {"comm_s": 0.3}},
    {"tcp": (10_000.0, 400.0)},
    {"quiet": True},
]


@pytest.mark.parametrize("rule", CASES)
def test_a_link_in_trouble_is_named_within_two_seconds_and_cleared_after(rule: str) -> None:
    watch = warm()
    onset = watch.onset
    watch.run(24, **CASES[rule])
    ((at, place),) = watch.raised(rule)
    assert place == LINKS.names[3]
    assert at - onset <= 2.0
    finding = next(f for f in watch.engine.findings if f.rule == rule)
    assert finding.meaning
    assert finding.fix
    assert finding.since_s == pytest.approx(1.7e9 + onset, abs=1.0)
    watch.run(80)
    assert watch.cleared(rule) == [place]
    assert not watch.engine.alerts()


def test_a_link_fed_by_a_slow_one_is_not_blamed() -> None:
    def make(_: int) -> LinkLoad:
        of = load(LINKS, 0.5)
        of.peak_Bps[[3, 5]] = 0.4 * CAPACITY
        of.rate_Bps[[3, 5]] = 0.3 * CAPACITY
        of.backlog_bytes[3] = 1e5
        return of

    watch = warm().run(20, make)
    assert [place for _, place in watch.raised("link.degraded")] == [LINKS.names[3]]


def test_a_link_without_a_queue_is_a_warning_while_the_job_is_in_time() -> None:
    """Its senders may have less to send; nobody sees packets wait."""
    slow = one(3, peak_Bps=0.4 * CAPACITY, rate_Bps=0.3 * CAPACITY)
    watch = warm().run(8, slow)
    assert [place for _, place in watch.raised("link.degraded")] == [LINKS.names[3]]
    (found,) = watch.engine.alerts()
    assert found.severity is Severity.WARNING
    assert "this link, one before it, or its sender" in found.meaning
    watch.run(20, slow, step={"comm_s": 0.2})
    assert watch.engine.alerts()[0].severity is Severity.CRITICAL
    assert {effect.rule for effect in watch.engine.alerts()[0].effects} >= {"job.slower-than-before"}


def test_a_small_fall_that_no_step_feels_is_a_warning() -> None:
    """A shaped link passes what its bucket holds at once after a pause: nine tenths of that are no fault."""
    ways = {share: warm().run(12, one(3, peak_Bps=share * CAPACITY, rate_Bps=0.6 * CAPACITY, backlog_bytes=1e5))
            for share in (0.9, 0.7)}  # fmt: skip
    found = {share: [alert.severity for alert in watch.engine.alerts()] for share, watch in ways.items()}
    assert found == {0.9: [Severity.WARNING], 0.7: [Severity.CRITICAL]}


def test_a_job_that_saves_sends_as_it_likes() -> None:
    """A checkpoint takes its own path at its own rate; a queue would still say that the link is slow."""
    slow = one(3, peak_Bps=0.4 * CAPACITY, rate_Bps=0.3 * CAPACITY)
    watch = warm()
    watch.job.view.add([PhaseEvent(rank, JobPhase.CHECKPOINT, watch.onset) for rank in range(4)])
    assert watch.run(20, slow, quiet=True).raised("link.degraded") == []
    assert watch.run(8, **CASES["link.degraded"], quiet=True).raised("link.degraded") != []


def test_a_quiet_moment_is_not_a_degraded_link() -> None:
    """A long compute phase with only a little traffic says nothing about what the link can do."""
    watch = warm().run(40, lambda _: load(LINKS, 0.03, peak_Bps=np.full(8, 0.05 * CAPACITY)))
    assert watch.raised("link.degraded") == []


def test_links_that_are_sampled_less_often_have_not_fallen() -> None:
    slow = one(3, peak_Bps=0.4 * CAPACITY, rate_Bps=0.3 * CAPACITY, backlog_bytes=1e6)
    as_before, anew = warm(), warm()
    anew.engine.forget_reach()
    assert [bool(watch.run(8, slow).raised("link.degraded")) for watch in (as_before, anew)] == [True, False]


def test_a_lower_negotiated_speed_is_degraded_at_once() -> None:
    watch = Watch().run(WARM, speed_Bps={LINKS.names[1]: CAPACITY})
    watch.run(8, speed_Bps={LINKS.names[1]: CAPACITY / 2})
    ((_, place),) = watch.raised("link.degraded")
    assert place == LINKS.names[1]


def test_average_and_peak_have_their_own_thresholds() -> None:
    watch = Watch().run(
        200, lambda _: load(LINKS, np.array([0.9] + [0.5] * 7), saturated=np.array([0.1, 0.8] + [0.1] * 6))
    )
    assert [place for _, place in watch.raised("link.average")] == [LINKS.names[0]]
    assert [place for _, place in watch.raised("link.peak")] == [LINKS.names[1]]


def test_a_link_that_the_plan_fills_is_not_too_full() -> None:
    planned = Prediction("plan", link_rate_Bps={LINKS.names[0]: 0.88 * CAPACITY})
    watch = Watch(planned).run(200, lambda _: load(LINKS, np.array([0.9] + [0.5] * 7)))
    assert watch.raised("link.average") == []


def test_bursts_inside_collectives_are_explained_and_others_are_not() -> None:
    inside = {LINKS.names[2]: [Burst(-0.08, -0.05, 1e6)]}
    outside = {LINKS.names[2]: [Burst(-0.2, -0.18, 1e6)]}
    explained = Watch().run(WARM, lambda _: load(LINKS, 0.4)).run(40, lambda _: load(LINKS, 0.4), bursts=inside)
    assert explained.log == []
    watch = Watch().run(WARM, lambda _: load(LINKS, 0.4))
    onset = watch.onset
    watch.run(12, lambda _: load(LINKS, 0.4), bursts=outside)
    ((at, place),) = watch.raised("link.microburst")
    assert (place, at - onset <= 2.0) == (LINKS.names[2], True)
    watch.run(60, lambda _: load(LINKS, 0.4))
    assert watch.cleared("link.microburst") == [LINKS.names[2]]


def test_a_dead_rail_is_more_than_its_links() -> None:
    def make(_: int) -> LinkLoad:
        of = load(LINKS, 0.5)
        of.rate_Bps[LINKS.rail == 1] = 0.0
        of.up[LINKS.rail == 1] = 0.0
        return of

    watch = warm()
    onset = watch.onset
    watch.run(12, make)
    ((at, place),) = watch.raised("rail.dead")
    assert (place, at - onset <= 2.0) == ("rail 1", True)
    assert len(watch.raised("link.down")) == 4
    watch.run(60)
    assert watch.cleared("rail.dead") == ["rail 1"]


def test_rails_that_carry_unequal_loads() -> None:
    watch = warm().run(40, lambda _: load(LINKS, np.where(LINKS.rail == 1, 0.2, 0.5)))
    assert {place for _, place in watch.raised("rail.imbalance")} == {"rail 1"}


def test_a_straggler_is_the_rank_that_waits_least() -> None:
    watch = warm()
    onset = watch.onset
    watch.run(12, step={"late": {2: 0.08}})
    ((at, place),) = watch.raised("job.straggler")
    assert (place, at - onset <= 2.0) == ("rank 2", True)
    finding = next(f for f in watch.engine.findings if f.rule == "job.straggler")
    assert "computes longer" in finding.meaning
    watch.run(60)
    assert watch.cleared("job.straggler") == ["rank 2"]


def test_of_two_ranks_one_can_be_the_straggler() -> None:
    watch = Watch(num_ranks=2).run(WARM).run(12, step={"late": {1: 0.08}})
    assert [place for _, place in watch.raised("job.straggler")] == ["rank 1"]


def test_two_ranks_that_were_always_late_do_not_hide_each_other() -> None:
    watch = Watch(num_ranks=8).run(WARM, step={"late": {4: 0.08, 5: 0.08}})
    assert {place for _, place in watch.raised("job.straggler")} == {"rank 4", "rank 5"}


def test_a_rank_late_by_a_link_in_trouble_is_no_straggler_unless_it_computes_longer() -> None:
    ranks = (RankStat(0, 0.0, 0.15), RankStat(1, 0.2, 0.15), RankStat(2, 0.2, 0.30))
    made = replace(frame(1, LINKS, load(LINKS, 0.5)), job=JobState(ranks=ranks))
    calm, hurt = (Context(Thresholds(), Prediction(), made, active=up) for up in ({}, {"link.loss": {LINKS.names[0]}}))
    assert [LateRank()._is_excused(hurt, i) for i in (1, 2)] == [True, False]
    assert not LateRank()._is_excused(calm, 1)


def test_ranks_that_are_late_in_turn_are_no_stragglers() -> None:
    """Four ranks that share too few processors: now one is late for two seconds, now another."""
    watch = Watch()
    for turn in range(40):
        watch.run(8, step={"late": {turn % 4: 0.08}})
    assert watch.raised("job.straggler") == []


def test_bursts_of_long_steps_wait_until_the_step_is_told_of() -> None:
    """A collective of two seconds is told of when its step ends; its bursts are not foreign meanwhile."""
    inside = {LINKS.names[2]: [Burst(-0.08, -0.05, 1e6)]}
    step = {"compute_s": 0.02, "comm_s": 2.0}
    watch = Watch(Prediction()).run(WARM, step=step).run(80, lambda _: load(LINKS, 0.4), bursts=inside, step=step)
    assert watch.raised("link.microburst") == []


def test_every_alert_says_where_since_when_why_and_what_it_costs() -> None:
    """Of all the rules that can be made to speak here."""
    spoke: dict[str, Any] = {}
    for case in [*CASES.values(), *LOUD]:
        watch = warm().run(40, **case)
        spoke |= {finding.rule: finding for finding in watch.engine.findings}
    assert len(spoke) >= 12
    for alert in spoke.values():
        assert alert.place and alert.observed and alert.expected, alert
        assert alert.since_s and alert.evidence and alert.meaning and alert.fix, alert
        assert alert.cost_usd_per_day is not None, alert


def test_a_slower_job_is_told_against_plan_and_past_with_cause_and_cost() -> None:
    watch = warm()
    watch.run(40, one(3, drops_per_s=20.0), step={"comm_s": 0.2})
    for rule in ("job.slower-than-planned", "job.slower-than-before"):
        assert {place for _, place in watch.raised(rule)} == {"step", "all-reduce/1MiB"}
    found = next(f for f in watch.engine.findings if f.rule == "job.slower-than-before" and f.place == "step")
    assert "link.loss at host-01/nic-1 -> leaf-1" in found.meaning
    assert found.cost_usd_per_day == pytest.approx(64 * 2.0 * 24 * (1 - 0.25 / 0.35), rel=0.05)


def test_network_share_follows_the_plan_when_there_is_one() -> None:
    assert Watch().run(100).raised("job.network-share") == []  # 40 % exposed, as planned
    free = Watch(Prediction()).run(100)
    assert [place for _, place in free.raised("job.network-share")] == ["step"]


def test_tails_are_told() -> None:
    watch = warm()
    for _ in range(12):
        watch.run(6).run(3, step={"comm_s": 0.5})
    assert [place for _, place in watch.raised("job.tail")][:1] == ["all-reduce/1MiB"]


def test_a_tail_that_makes_no_step_slow_is_not_told() -> None:
    watch = Watch()
    for slow_s, is_told in ((0.01, False), (0.5, True)):  # five times the usual run, and three steps long
        for _ in range(40):
            watch.run(6, step={"comm_s": 0.002}).run(3, step={"comm_s": slow_s})
        assert bool(watch.raised("job.tail")) is is_told


def test_steps_before_an_evaluation_are_no_evidence_while_it_lasts() -> None:
    ways = {}
    for phase in (None, JobPhase.EVALUATION):
        watch = warm().run(9, step={"comm_s": 0.3})
        if phase is not None:
            watch.job.view.add([PhaseEvent(rank, phase, watch.onset) for rank in range(4)])
        ways[phase] = bool(watch.run(20, quiet=True).raised("job.slower-than-before"))
    assert ways == {None: True, JobPhase.EVALUATION: False}


def test_waiting_for_a_late_rank_is_not_the_network() -> None:
    job = Job()
    for number in range(4):
        job.run_step(10.0 + number, comm_s=0.1, late={2: 0.3})
    (*_, step) = job.view.state(14.0).steps
    assert (step.exposed_s, step.late_s) == pytest.approx((0.4, 0.3))
    assert step.account.seconds(StepCause.LATE, StepCause.NETWORK) == pytest.approx(0.4)
    assert step.network_share == pytest.approx(0.1 / step.step_s)


def test_an_evaluation_is_no_part_of_the_step_before_it() -> None:
    job = Job()
    for end_s in (10.0, 10.25, 10.5):
        job.run_step(end_s)
    job.view.add([PhaseEvent(rank, JobPhase.EVALUATION, 10.5) for rank in range(4)])
    for end_s in (15.75, 16.0):
        job.run_step(end_s)
    assert [step.step_s for step in job.view.state(16.0).steps] == pytest.approx([0.25] * 4)


def test_a_job_that_falls_silent_is_stalled() -> None:
    watch = warm()
    onset = watch.onset
    watch.run(20, quiet=True)
    assert [(at - onset <= 2.5, place) for at, place in watch.raised("job.stalled")] == [(True, "job")]


def test_a_watch_that_slept_does_not_call_the_job_silent_for_that() -> None:
    watch = warm()
    watch.number += 40
    late = replace(frame(watch.number, LINKS, load(LINKS, 0.5), watch.job.view.state(watch.onset)), interval_s=10.0)
    watch.engine.update(late)
    watch.run(3, quiet=True)
    assert watch.raised("job.stalled") == []
    watch.run(20, quiet=True)
    assert len(watch.raised("job.stalled")) == 1


def test_how_long_a_job_may_be_silent_follows_its_steps_and_not_its_checkpoints() -> None:
    usual, slow, saving = (StepStat(0, 0.0, step_s, 0.1, 0.0, 4) for step_s in (0.15, 2.0, 9.0))
    limits = Thresholds()
    assert silence_s(JobState(steps=(*(usual,) * 59, saving)), limits) == limits.stalled_least_s
    assert silence_s(JobState(steps=(*(usual,) * 40, *(slow,) * 20)), limits) == 4.0


def test_pause_frames_and_missing_credits() -> None:
    watch = warm().run(40, one(3, pauses_per_s=50_000.0))
    assert [place for _, place in watch.raised("link.pause")] == [LINKS.names[3]]


def test_retransmissions_of_the_host() -> None:
    watch = Watch().run(WARM, tcp=(10_000.0, 2.0)).run(20, tcp=(10_000.0, 400.0))
    assert [place for _, place in watch.raised("host.retransmissions")] == ["host"]


@pytest.mark.parametrize(("lost", "num"), [(120.0, 0), (400.0, 1)])
def test_losses_of_a_host_that_always_lost_as_many_are_no_news(lost: float, num: int) -> None:
    watch = Watch().run(WARM, tcp=(10_000.0, 40.0)).run(20, tcp=(10_000.0, lost))
    assert len(watch.raised("host.retransmissions")) == num


def test_one_in_a_thousand_is_named_where_nothing_was_lost_before() -> None:
    watch = Watch().run(WARM, tcp=(10_000.0, 0.0)).run(16, tcp=(10_000.0, 10.0))
    assert [place for _, place in watch.raised("host.retransmissions")] == ["host"]


def test_ten_thousand_links_are_looked_at_in_the_same_way() -> None:
    links = table(10_000, num_rails=8)
    watch = Watch(links=links)
    watch.run(12)
    down = load(links, 0.5)
    down.up[777] = 0.0
    watch.run(6, lambda _: down)
    assert [place for _, place in watch.raised("link.down")] == [links.names[777]]


# Hysteresis

LEVELS = st.lists(st.sampled_from(["bad", "between", "good"]), min_size=1, max_size=200)


@given(LEVELS, st.floats(0, 3), st.floats(0.5, 6))
def test_raising_and_clearing_take_turns_and_cannot_flap(
    levels: list[str], raise_after: float, clear_after: float
) -> None:
    hold = Hold(raise_after, clear_after)
    changes = []
    for k, level in enumerate(levels):
        now = k * 0.25
        changes += [(now, c) for _, c, _ in hold.update(now, ["x"] * (level == "bad"), ["x"] * (level == "between"))]
    kinds = [c for _, c in changes]
    assert kinds == [Change.RAISED, Change.CLEARED] * (len(kinds) // 2) + [Change.RAISED] * (len(kinds) % 2)
    for (first, kind), (second, _) in itertools.pairwise(changes):
        assert second - first >= (clear_after if kind is Change.RAISED else raise_after) - 1e-9
    assert len(changes) <= 2 * (len(levels) * 0.25 / (raise_after + clear_after) + 1)


@settings(max_examples=40)
@given(st.lists(st.floats(-1, 1), min_size=100, max_size=200))
def test_noise_within_the_gap_of_two_thresholds_raises_at_most_once(noise: list[float]) -> None:
    """Noise around the upper threshold that stays above the lower one: one alert, however it trembles."""
    hold, count = Hold(1.0, 5.0), 0
    for k, wobble in enumerate(noise):
        use = 0.80 + 0.045 * wobble
        changes = hold.update(k * 0.25, ["x"] * (use > 0.80), ["x"] * (use > 0.75))
        count += sum(1 for _ in changes)
    assert count <= 1


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.floats(0.3, 0.78), st.floats(0.0, 0.1))
def test_a_noisy_link_below_its_threshold_is_never_raised(seed: int, level: float, noise: float) -> None:
    rng = np.random.default_rng(seed)
    engine = RuleEngine()
    for k in range(100):
        use = np.clip(level + noise * rng.standard_normal(4), 0, 1)
        links = SMALL
        events = engine.update(frame(k, links, load(links, use)))
        assert [
            e for e in events if e.incident.rule in ("link.average", "link.loss", "link.degraded", "rail.imbalance")
        ] == []


SMALL = table(4, num_rails=1)


def test_thresholds_from_a_file(tmp_path: Any) -> None:
    (tmp_path / "rules.yaml").write_text("average_high: 0.9\naverage_clear: 0.85\n")
    assert read_thresholds(tmp_path / "rules.yaml").average_high == 0.9
    for text, words in (
        ("average_hihg: 0.9\n", 'no threshold is called "average_hihg"'),
        ("loss_packets: -1\n", "threshold loss_packets is -1"),
        ("average_clear: 0.9\n", "average_clear must not be above"),
        ("loss_packets: much\n", "threshold loss_packets is 'much'"),
        ("- 1\n", "not a table of thresholds"),
    ):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(WatchError, match=words):
            read_thresholds(tmp_path / "bad.yaml")
