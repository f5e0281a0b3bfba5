"""Rules about the job: slow steps and collectives against plan and past, tails, exposed network, stragglers, stalls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np

from syncline.describe.names import few
from syncline.describe.units import show_time
from syncline.finding import Action, Finding, Severity
from syncline.watch.job import CollectiveStat, JobState
from syncline.watch.rules.degraded_rule import far_below
from syncline.watch.rules.rule import LINK_TROUBLES, NONE, Context, Floats, RuleVerdict, WatchRule
from syncline.watch.rules.thresholds import Thresholds
from syncline.watch.spans.event import JobPhase

RECENT = 5
LONGEST = 2.0
"""A job that is silent for less than so many times the longest of its usual steps may be in one like it."""
MIN_SLOW = 3
"""Slow runs that make a tail: one or two in ten seconds are an incident, not a distribution."""


def likely_cause(context: Context) -> str:
    """Return the links in trouble that may explain a slow job, as a sentence; empty where there are none."""
    causes = ("rail.dead", "link.down", "link.degraded", "link.loss", "job.straggler", "link.errors", "link.microburst")
    found = [f"{rule} at {place}" for rule in causes for place in sorted(context.active.get(rule, ()))]
    return f"Likely because of {few(found, 3)}." if found else ""


def suspects(context: Context) -> str:
    """Return where to look when no alert explains a slow job: at links far below their past, else elsewhere."""
    found = far_below(context)
    if found:
        return f"Far below their past: {few(found, 3)}; they, or those who send over them, are slow."
    return "Every link seen here runs near its past: look at the ranks (stragglers), then at other hosts."


def held(context: Context, verdict: RuleVerdict) -> RuleVerdict:
    """Return the verdict; on a crowded host with no link or rank in trouble, none: the job waits for cores.

    While a job saves or evaluates its last steps stay the last: they are no new evidence of what they were.
    """
    if context.is_crowded and not likely_cause(context):
        return NONE
    if context.frame.job.phase:
        return RuleVerdict({}, {**verdict.between, **verdict.bad})
    return verdict


def recent_step_s(context: Context) -> float | None:
    """Return the median of the last steps; None before there are enough."""
    steps = context.frame.job.steps[-RECENT:]
    return median([s.step_s for s in steps]) if len(steps) >= 3 else None


class SlowerJob(WatchRule):
    """Steps or collectives that take longer than they should; what they should take is up to the rule."""

    fix = "Open the collective in the page and see which link left its predicted line first."
    confidence = 0.9
    raise_after_s = 3.0

    @abstractmethod
    def cases(self, context: Context) -> Iterator[tuple[str, float, float | None]]:
        """Give places with the time they take and the time they should take."""

    @abstractmethod
    def basis(self, context: Context) -> str:
        """Return who says what they should take."""

    def look(self, context: Context) -> RuleVerdict:
        t = context.thresholds
        bad: dict[str, Callable[[], Finding]] = {}
        between: dict[str, Callable[[], Finding]] = {}
        for place, now, usual in self.cases(context):
            if not usual or np.isnan(usual):
                continue
            if now > t.regression_ratio * usual and now - usual > t.regression_least_s:
                bad[place] = partial(self._tell, context, place, now, usual)
            elif now > (1 + t.regression_ratio) / 2 * usual:
                between[place] = partial(self._tell, context, place, now, usual)
        return held(context, RuleVerdict(bad, between))

    def _tell(self, context: Context, place: str, now: float, usual: float) -> Finding:
        return self.finding(
            context, place, show_time(now), f"{show_time(usual)} ({self.basis(context)})",
            f"{now / usual - 1:+.0%} over the last {RECENT}", meaning=likely_cause(context) or suspects(context),
        )  # fmt: skip


class SlowerThanPlanned(SlowerJob):
    """Steps or collectives that take longer than was predicted."""

    id = "job.slower-than-planned"

    def cases(self, context: Context) -> Iterator[tuple[str, float, float | None]]:
        for c in context.frame.job.collectives:
            if c.num >= RECENT and c.is_told:
                yield c.key, c.recent_s, c.predicted_s
        step_s = recent_step_s(context)
        if step_s is not None:
            yield "step", step_s, context.prediction.step_s

    def basis(self, context: Context) -> str:
        return f"predicted by {context.prediction.source}"


class SlowerThanBefore(SlowerJob):
    """Steps or collectives that take longer than they used to in this job."""

    id = "job.slower-than-before"

    def cases(self, context: Context) -> Iterator[tuple[str, float, float | None]]:
        step_s, past = recent_step_s(context), context.past["step"].quantile(0.5)
        if step_s is not None and len(past):
            yield "step", step_s, float(past[0])
        usual = dict(zip(context.past["collective"].names, context.past["collective"].quantile(0.5), strict=True))
        for c in context.frame.job.collectives:
            if c.num >= RECENT:
                yield c.key, c.recent_s, usual.get(c.key)

    def basis(self, context: Context) -> str:
        return "median of the last minutes"


class CollectiveTail(WatchRule):
    """A collective whose slowest runs are far from its usual ones, and make a step slow by what is slow of any step."""

    id = "job.tail"
    meaning = "Some runs wait: retries, a straggler now and then, or a shared link."
    fix = "See whether the slow runs share a rank (straggler) or a moment (another job, a checkpoint)."
    raise_after_s = 3.0

    def look(self, context: Context) -> RuleVerdict:
        t = context.thresholds
        bad: dict[str, Callable[[], Finding]] = {}
        between: dict[str, Callable[[], Finding]] = {}
        past = context.past["tail"]
        usual = dict(zip(past.names, past.quantile(0.5), strict=True))
        felt_s = max(t.regression_least_s, (t.regression_ratio - 1) * (recent_step_s(context) or 0.0))
        for c in context.frame.job.collectives:
            ratio = c.p99_s / c.p50_s if c.p50_s > 0 else 0.0
            limit = max(t.tail_ratio, 1.5 * np.nan_to_num(float(usual.get(c.key, 0.0))))
            if c.num >= 20 and c.num_slow >= MIN_SLOW and ratio > limit and c.p99_s - c.p50_s > felt_s:
                bad[c.key] = partial(self._tell, context, c, limit)
            elif ratio > 0.8 * limit:
                between[c.key] = partial(self._tell, context, c, limit)
        return held(context, RuleVerdict(bad, between))

    def _tell(self, context: Context, c: CollectiveStat, limit: float) -> Finding:
        observed, expected = f"p99 {show_time(c.p99_s)}, p50 {show_time(c.p50_s)}", f"p99 within {limit:.1f} times p50"
        seen = f"{c.num_slow} of {c.num} runs in ten seconds took over three times the median"
        return self.finding(context, c.key, observed, expected, seen, meaning=likely_cause(context))


class NetworkShare(WatchRule):
    """Communication that nothing hides takes more than a quarter of the step, or more than the plan says."""

    id = "job.network-share"
    action = Action.CONFIGURE
    meaning = "The network, not the arithmetic, sets the pace of this job."
    fix = "Ask `syncline plan` what overlap, compression, another split or a faster link is worth."
    raise_after_s = 3.0

    def look(self, context: Context) -> RuleVerdict:
        t, prediction = context.thresholds, context.prediction
        steps = context.frame.job.steps[-RECENT:]
        if len(steps) < RECENT:
            return NONE
        share = median([s.network_share for s in steps])
        planned = prediction.exposed_s / prediction.step_s if prediction.step_s and prediction.exposed_s else 0.0
        limit = max(t.network_share, t.network_times_plan * planned)
        exposed_s = median([s.exposed_s for s in steps])

        def tell() -> Finding:
            return self.finding(
                context, "step", f"{share:.0%} of the step", f"under {limit:.0%}",
                f"steps {steps[0].step} to {steps[-1].step}: {show_time(exposed_s)} exposed",
                meaning=likely_cause(context) or self.meaning,
            )  # fmt: skip

        bad: dict[str, Callable[[], Finding]] = {"step": tell} if share > limit else {}
        return held(context, RuleVerdict(bad, {"step": tell} if share > 0.9 * limit else {}))


def _computes_longer(context: Context, i: int) -> bool:
    ranks = context.frame.job.ranks
    return ranks[i].compute_s > 1.1 * float(np.median([rank.compute_s for rank in ranks]))


class LateRank(WatchRule):
    """The same rank comes late to every collective, and all others wait for it."""

    id = "job.straggler"
    fix = "Look at that rank's clocks, temperature and host load; move it to a spare host if they are fine."
    confidence = 0.9
    raise_after_s = 0.0  # several steps have decided already

    def look(self, context: Context) -> RuleVerdict:
        t, ranks = context.thresholds, context.frame.job.ranks
        steps = context.frame.job.steps[-RECENT:]
        if len(ranks) < 2 or np.isnan(context.past["late"].quantile(0.95)).all():
            return NONE  # what is usual between the ranks of this job must be known first
        step_s = median([s.step_s for s in steps]) if steps else 0.0
        bad: dict[str, Callable[[], Finding]] = {}
        between: dict[str, Callable[[], Finding]] = {}
        usual = context.past["step"].quantile(0.5)
        usual_s = float(usual[0]) if len(usual) and not np.isnan(usual[0]) else step_s
        past_times = t.straggler_times_past
        for least_s, late, times in (
            (t.straggler_share * step_s, np.array([r.lateness_s for r in ranks]), past_times),
            (t.straggler_share * step_s, np.array([r.late_soon_s for r in ranks]), t.straggler_times_past_soon),
            (t.straggler_share_now * step_s, np.array([r.late_now_s for r in ranks]), past_times),
            (t.straggler_share_twice * usual_s, np.array([r.late_twice_s for r in ranks]), past_times),
        ):
            least = max(t.straggler_least_s, least_s)
            for i in np.flatnonzero(late > 0.6 * least).tolist():
                limit = self._limit(context, i, late, least, times)
                tell = partial(self._tell, context, i, float(late[i]), limit)
                if late[i] > limit and not self._is_excused(context, i) and self._stands_out(context, i):
                    bad[ranks[i].place] = tell
                elif late[i] > 0.6 * limit:
                    between[ranks[i].place] = tell
        return RuleVerdict(bad, between)

    def _limit(self, context: Context, i: int, late: Floats, least: float, times_past: float) -> float:
        """Return how late a rank may be: well beyond the middle of the others, now and at worst in the past minute.

        Where every rank is late in its turn, as on a host with too few processors, being late singles nobody out.
        """
        t, past, place = context.thresholds, context.past["late"], context.frame.job.ranks[i].place
        now_s = float(np.median(np.delete(late, i)))
        worst = zip(past.names, np.nan_to_num(past.quantile(0.95)), strict=True)
        past_s = float(np.median([late_s for name, late_s in worst if name != place]))
        return max(least, t.straggler_times_others * now_s, times_past * past_s)

    def _is_excused(self, context: Context, i: int) -> bool:
        """Tell whether a link in trouble may be why a rank is late: one that computes no longer than the others."""
        return context.is_any_bad("rail.dead", *LINK_TROUBLES) and not _computes_longer(context, i)

    def _stands_out(self, context: Context, i: int) -> bool:
        """Tell whether a rank is slow by itself; on a crowded host only one whose best step is worse than the others'.

        There ranks wait for a core in their turn: each is late now and then, and none of them is slow.
        """
        if not context.is_crowded:
            return True
        others = [rank.compute_s for k, rank in enumerate(context.frame.job.ranks) if k != i]
        return context.frame.job.ranks[i].least_compute_s > 1.1 * max(others)

    def _tell(self, context: Context, i: int, late_s: float, limit: float) -> Finding:
        rank = context.frame.job.ranks[i]
        others = float(np.median([r.compute_s for r in context.frame.job.ranks]))
        slow = "It computes longer than the others: a slow GPU (clocks, heat), a busy host, or more work."
        late = "It does not compute longer: it starts late (data loading, a stall on its host)."
        return self.finding(
            context, rank.place, f"{show_time(late_s)} late in every step", f"under {show_time(limit)}",
            f"computes {show_time(rank.compute_s)} a step, the others {show_time(others)}",
            meaning=slow if _computes_longer(context, i) else late,
        )  # fmt: skip


def silence_s(job: JobState, thresholds: Thresholds) -> float:
    """Return how long the spans of a job may stay away: some of its steps."""
    if len(job.steps) < 3:
        longest = max((c.p99_s for c in job.collectives), default=0.0)
        return max(thresholds.stalled_without_steps_s, thresholds.stalled_steps * longest)
    times = [step.step_s for step in job.steps]
    longest_s = sorted(times)[int(0.95 * len(times))]  # but for those with a checkpoint in them
    return max(thresholds.stalled_least_s, thresholds.stalled_steps * median(times), LONGEST * longest_s)


class StalledJob(WatchRule):
    """A job that reported and has fallen silent, without saying that it starts, saves, evaluates or has ended.

    The alert stays up until the job reports again: a hang does not mend itself by lasting.
    """

    id = "job.stalled"
    severity = Severity.CRITICAL
    raise_after_s = 0.0
    clear_after_s = 1.0

    def look(self, context: Context) -> RuleVerdict:
        t, job = context.thresholds, context.frame.job
        now_s = context.frame.mono_s
        failed = sorted(rank for rank, event in job.phases.items() if event.phase is JobPhase.FAILED)
        if failed:
            return RuleVerdict({"job": partial(self._failed, context, failed)}, {})
        known = {rank.rank for rank in job.ranks}
        ended = {rank for rank, event in job.phases.items() if event.phase is JobPhase.END}
        if known and known <= ended:
            return NONE
        away = [event.at_s for event in job.phases.values() if event.phase is not JobPhase.END]
        if away:
            longest_s = now_s - min(away)
            if longest_s > t.phase_longest_s:
                return RuleVerdict({"job": partial(self._away, context, job.phase, longest_s)}, {})
            return NONE
        heard_s = job.last_span_s
        silent_s = now_s - (max(heard_s, context.awake_s) if np.isfinite(heard_s) else heard_s)
        if job.is_stuck and not silent_s <= silence_s(job, t):
            return RuleVerdict({"job": partial(self._stuck, context)}, {})
        if not np.isfinite(silent_s) or silent_s <= silence_s(job, t):
            return NONE
        missing = sorted(known - ended) if ended else []
        return RuleVerdict({"job": partial(self._silent, context, silent_s, missing)}, {})

    def _silent(self, context: Context, silent_s: float, missing: list[int]) -> Finding:
        job = context.frame.job
        usual_s = median([s.step_s for s in job.steps]) if job.steps else 0.0
        evidence = [hang.text for hang in job.hangs[:3]]
        if job.steps:
            evidence.append(f"last step reported: {job.steps[-1].step}, by {job.steps[-1].num_ranks} ranks")
        if missing:
            evidence.append(f"the others have ended, but not rank {', '.join(map(str, missing[:8]))}")
        meaning = f"{job.hangs[0].text[0].upper()}{job.hangs[0].text[1:]}." if job.hangs else likely_cause(context)
        return self._stalled(
            context, f"no span for {show_time(silent_s)}",
            f"one every {show_time(usual_s)}" if usual_s else "collectives now and then", tuple(evidence),
            meaning or "It hangs in a collective, or was killed; it reported no end, checkpoint or evaluation.",
            "Look for a rank that is gone; --flight-recorder, --ras or --nccl-log tell who has not entered.",
        )  # fmt: skip

    def _stuck(self, context: Context) -> Finding:
        texts = [hang.text for hang in context.frame.job.hangs]
        return self._stalled(
            context, "ranks stand still", "all of them move", tuple(texts[:5]),
            f"{texts[0][0].upper()}{texts[0][1:]}.", "Look at that rank's host and log; `py-spy dump` there says why.",
        )  # fmt: skip

    def _failed(self, context: Context, ranks: list[int]) -> Finding:
        shown = ", ".join(map(str, ranks[:8]))
        return self._stalled(
            context, f"rank {shown} ended with an error", "an end without one", (f"{len(ranks)} ranks reported it",),
            "An exception ended the training there; the other ranks wait for it or end too.",
            "Read that rank's log: its last lines have the exception.",
        )  # fmt: skip

    def _away(self, context: Context, phase: str, longest_s: float) -> Finding:
        limit = show_time(context.thresholds.phase_longest_s)
        return self._stalled(
            context, f"{phase} for {show_time(longest_s)}", f"under {limit}", (f"{phase} reported, nothing since",),
            "A checkpoint or an evaluation does not take this long.",
            "Look at the storage it writes to, and at the log of rank 0.",
        )  # fmt: skip

    def _stalled(
        self, context: Context, observed: str, expected: str, evidence: tuple[str, ...], meaning: str, fix: str
    ) -> Finding:
        return self.finding(context, "job", observed, expected, *evidence, meaning=meaning, fix=fix, lost_share=1.0)


JOB_RULES = (LateRank(), SlowerThanPlanned(), SlowerThanBefore(), CollectiveTail(), NetworkShare(), StalledJob())
