"""Rules about the job: slow steps and collectives against plan and past, tails, exposed network, stragglers, stalls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from syncline.finding import Action, Finding, Severity
from syncline.units import show_time
from syncline.watch.job import CollectiveStat, JobState
from syncline.watch.rules.rule import Context, Floats, Verdict
from syncline.watch.rules.thresholds import Thresholds

RECENT = 5
NONE = Verdict({}, set())
MIN_SLOW = 3
"""Slow runs that make a tail: one or two in ten seconds are an incident, not a distribution."""


def likely_cause(context: Context) -> str:
    """Return the links in trouble that may explain a slow job, as a sentence; empty where there are none."""
    causes = ("rail.dead", "link.down", "link.degraded", "link.loss", "job.straggler", "link.errors", "link.microburst")
    found = [f"{rule} at {place}" for rule in causes for place in sorted(context.active.get(rule, ()))]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"Likely because of {', '.join(found[:3])}{more}." if found else ""


def recent_step_s(context: Context) -> float | None:
    """Return the median of the last steps; None before there are enough."""
    steps = context.frame.job.steps[-RECENT:]
    return float(np.median([s.step_s for s in steps])) if len(steps) >= 3 else None


class SlowerThanPlanned:
    """Steps or collectives that take longer than was predicted."""

    id = "job.slower-than-planned"
    raise_after_s = 3.0
    clear_after_s = None

    def look(self, context: Context) -> Verdict:
        t, prediction = context.thresholds, context.prediction
        bad: dict[str, Callable[[], Finding]] = {}
        between: set[str] = set()
        cases = [(c.key, c.recent_s, c.predicted_s) for c in context.frame.job.collectives if c.num >= RECENT]
        step_s = recent_step_s(context)
        if step_s is not None:
            cases.append(("step", step_s, prediction.step_s))
        for place, now, planned in cases:
            if not planned:
                continue
            if now > t.regression_ratio * planned and now - planned > t.regression_least_s:
                bad[place] = _slow(context, self.id, place, now, planned, f"predicted by {prediction.source}")
            elif now > (1 + t.regression_ratio) / 2 * planned:
                between.add(place)
        return Verdict(bad, between)


class SlowerThanBefore:
    """Steps or collectives that take longer than they used to in this job."""

    id = "job.slower-than-before"
    raise_after_s = 3.0
    clear_after_s = None

    def look(self, context: Context) -> Verdict:
        t = context.thresholds
        bad: dict[str, Callable[[], Finding]] = {}
        between: set[str] = set()
        step_s = recent_step_s(context)
        past = context.past["step"].quantile(0.5)
        cases = [("step", step_s, float(past[0]))] if step_s is not None and len(past) else []
        usual = dict(zip(context.past["collective"].names, context.past["collective"].quantile(0.5), strict=True))
        cases += [
            (c.key, c.recent_s, float(usual.get(c.key, np.nan)))
            for c in context.frame.job.collectives
            if c.num >= RECENT
        ]
        for place, now, before in cases:
            if not before > 0:
                continue
            if now > t.regression_ratio * before and now - before > t.regression_least_s:
                bad[place] = _slow(context, self.id, place, now, before, "median of the last minutes")
            elif now > (1 + t.regression_ratio) / 2 * before:
                between.add(place)
        return Verdict(bad, between)


def _slow(context: Context, rule: str, place: str, now: float, usual: float, basis: str) -> Callable[[], Finding]:
    def tell() -> Finding:
        lost = 1 - usual / now if place == "step" else context.lost_share()
        return Finding(
            rule,
            Severity.WARNING,
            place,
            show_time(now),
            f"{show_time(usual)} ({basis})",
            evidence=(f"{now / usual - 1:+.0%} over the last {RECENT}",),
            meaning=likely_cause(context)
            or "No link is in trouble here: look at the ranks (stragglers), then at other hosts.",
            fix="Open the collective in the page and see which link left its predicted line first.",
            action=Action.INSPECT,
            confidence=0.9,
            cost_usd_per_day=context.usd_per_day(lost),
        )

    return tell


class CollectiveTail:
    """A collective whose slowest runs are far from its usual ones."""

    id = "job.tail"
    raise_after_s = 3.0
    clear_after_s = 10.0

    def look(self, context: Context) -> Verdict:
        t = context.thresholds
        bad: dict[str, Callable[[], Finding]] = {}
        between: set[str] = set()
        past = context.past["tail"]
        usual = dict(zip(past.names, past.quantile(0.5), strict=True))
        for c in context.frame.job.collectives:
            ratio = c.p99_s / c.p50_s if c.p50_s > 0 else 0.0
            limit = max(t.tail_ratio, 1.5 * np.nan_to_num(float(usual.get(c.key, 0.0))))
            if c.num >= 20 and c.num_slow >= MIN_SLOW and ratio > limit and c.p99_s - c.p50_s > t.tail_least_s:
                bad[c.key] = self._teller(context, c, limit)
            elif ratio > 0.8 * limit:
                between.add(c.key)
        return Verdict(bad, between)

    def _teller(self, context: Context, c: CollectiveStat, limit: float) -> Callable[[], Finding]:
        def tell() -> Finding:
            return Finding(
                self.id,
                Severity.WARNING,
                c.key,
                f"p99 {show_time(c.p99_s)}, p50 {show_time(c.p50_s)}",
                f"p99 within {limit:.1f} times p50",
                evidence=(f"{c.num_slow} of {c.num} runs in ten seconds took over three times the median",),
                meaning=likely_cause(context) or "Some runs wait: retries, a straggler now and then, or a shared link.",
                fix="See whether the slow runs share a rank (straggler) or a moment (another job, a checkpoint).",
                action=Action.INSPECT,
                cost_usd_per_day=context.usd_per_day(context.lost_share()),
            )

        return tell


class NetworkShare:
    """Communication that nothing hides takes more than a quarter of the step, or more than the plan says."""

    id = "job.network-share"
    raise_after_s = 3.0
    clear_after_s = 10.0

    def look(self, context: Context) -> Verdict:
        t, prediction = context.thresholds, context.prediction
        steps = context.frame.job.steps[-RECENT:]
        if len(steps) < RECENT:
            return NONE
        share = float(np.median([s.network_share for s in steps]))
        planned = prediction.exposed_s / prediction.step_s if prediction.step_s and prediction.exposed_s else 0.0
        limit = max(t.network_share, t.network_times_plan * planned)
        exposed_s = float(np.median([s.exposed_s for s in steps]))

        def tell() -> Finding:
            return Finding(
                self.id,
                Severity.WARNING,
                "step",
                f"{share:.0%} of the step",
                f"under {limit:.0%}",
                evidence=(f"steps {steps[0].step} to {steps[-1].step}: {show_time(exposed_s)} exposed",),
                meaning=likely_cause(context) or "The network, not the arithmetic, sets the pace of this job.",
                fix="Ask `syncline plan` what overlap, compression, another split or a faster link is worth.",
                action=Action.CONFIGURE,
                cost_usd_per_day=context.usd_per_day(max(0.0, share - limit)),
            )

        return Verdict({"step": tell} if share > limit else {}, {"step"} if share > 0.9 * limit else set())


class Straggler:
    """The same rank comes late to every collective, and all others wait for it."""

    id = "job.straggler"
    raise_after_s = 0.0  # several steps have decided already
    clear_after_s = None

    def look(self, context: Context) -> Verdict:
        t, ranks = context.thresholds, context.frame.job.ranks
        steps = context.frame.job.steps[-RECENT:]
        if len(ranks) < 2 or np.isnan(context.past["late"].quantile(0.95)).all():
            return NONE  # what is usual between the ranks of this job must be known first
        step_s = float(np.median([s.step_s for s in steps])) if steps else 0.0
        bad: dict[str, Callable[[], Finding]] = {}
        between: set[str] = set()
        for share, late in (
            (t.straggler_share, np.array([r.lateness_s for r in ranks])),
            (t.straggler_share_now, np.array([r.late_now_s for r in ranks])),
        ):
            least = max(t.straggler_least_s, share * step_s)
            for i in np.flatnonzero(late > 0.6 * least).tolist():
                limit = self._limit(context, i, late, least)
                if late[i] > limit:
                    bad[ranks[i].place] = self._teller(context, i, float(late[i]), limit, step_s)
                elif late[i] > 0.6 * limit:
                    between.add(ranks[i].place)
        return Verdict(bad, between)

    def _limit(self, context: Context, i: int, late: Floats, least: float) -> float:
        """Return how late a rank may be: well beyond the middle of the others, now and at worst in the past minute.

        Where every rank is late in its turn, as on a host with too few processors, being late singles nobody out.
        """
        t, past, place = context.thresholds, context.past["late"], context.frame.job.ranks[i].place
        now_s = float(np.median(np.delete(late, i)))
        worst = zip(past.names, np.nan_to_num(past.quantile(0.95)), strict=True)
        past_s = float(np.median([late_s for name, late_s in worst if name != place]))
        return max(least, t.straggler_times_others * now_s, t.straggler_times_past * past_s)

    def _teller(self, context: Context, i: int, late_s: float, limit: float, step_s: float) -> Callable[[], Finding]:
        def tell() -> Finding:
            rank = context.frame.job.ranks[i]
            others = float(np.median([r.compute_s for r in context.frame.job.ranks]))
            own_fault = rank.compute_s > 1.1 * others
            why = "It computes longer than the others: a slow GPU (clocks, heat), a busy host, or more work."
            else_why = "It does not compute longer: it starts late (data loading, a stall on its host)."
            return Finding(
                self.id,
                Severity.WARNING,
                rank.place,
                f"{show_time(late_s)} late in every step",
                f"under {show_time(limit)}",
                evidence=(f"computes {show_time(rank.compute_s)} a step, the others {show_time(others)}",),
                meaning=why if own_fault else else_why,
                fix="Look at that rank's clocks, temperature and host load; move it to a spare host if they are fine.",
                action=Action.INSPECT,
                confidence=0.9,
                cost_usd_per_day=context.usd_per_day(late_s / step_s if step_s else 0.0),
            )

        return tell


def silence_s(job: JobState, thresholds: Thresholds) -> float:
    """Return how long the spans of a job may stay away: some of its steps."""
    usual = float(np.median([step.step_s for step in job.steps])) if job.steps else 0.0
    return max(thresholds.stalled_least_s, thresholds.stalled_steps * usual)


class Stalled:
    """A job that reported steps and has fallen silent."""

    id = "job.stalled"
    raise_after_s = 0.0
    clear_after_s = 1.0

    def look(self, context: Context) -> Verdict:
        t, job = context.thresholds, context.frame.job
        if len(job.steps) < 3:
            return NONE
        usual = float(np.median([s.step_s for s in job.steps]))
        silent = context.frame.mono_s - job.last_span_s
        if not silence_s(job, t) < silent < 600:
            return NONE

        def tell() -> Finding:
            return Finding(
                self.id,
                Severity.CRITICAL,
                "job",
                f"no span for {show_time(silent)}",
                f"one every {show_time(usual)}",
                evidence=(f"last step told of: {job.steps[-1].step}, by {job.steps[-1].num_ranks} ranks",),
                meaning=likely_cause(context) or "It ended, hangs in a collective, or writes a checkpoint.",
                fix="Look for a rank that is gone; the flight recorder tells who has not entered the collective.",
                action=Action.INSPECT,
                cost_usd_per_day=context.usd_per_day(1.0),
            )

        return Verdict({"job": tell}, set())
