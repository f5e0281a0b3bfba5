"""The rule about links that run below their rate: which of the slow ones is slow by itself."""

from __future__ import annotations

from statistics import median

import numpy as np

from syncline.describe.units import show_rate
from syncline.finding import Finding, Severity
from syncline.watch.links import LinkTable
from syncline.watch.rules.rule import Context, Floats, Mask, RuleVerdict, WatchRule, verdict

CHANCE_QUEUE_S = 3e-3
"""What a link sends in so long may wait by chance, a few packets that came together."""
SHORT_QUEUE = 0.1
"""A queue below this share of the longest is chance beside it."""
SAME_PACE = 0.8
"""A link that reaches this share of another's rate, or more, goes at its pace."""


class LinkDegraded(WatchRule):
    """A link negotiated less than it had, or works but never gets near the rate it used to reach, however slow it is.

    It has work when packets wait for it, when it carries a fair part of what it does in a busy second, or when the job
    is overdue and it carries a steady trickle: the worse a link, the less it carries, so that carrying little excuses
    nothing. A quiet moment (no queue, a job in time) says nothing of a link's rate.
    """

    id = "link.degraded"
    severity = Severity.CRITICAL
    meaning = "The link runs below its rate: fewer lanes, a lower speed, retries, or a neighbour's load."
    fix = "Compare the port's speed and lanes with the plan; reseat or replace the cable."
    confidence = 0.8

    MOMENT_S, PATIENCE_S, QUEUE_S = 0.6, 3.0, 1.0
    STEADY = 0.5
    """A trickle is steady when its mean is this share of its own short peaks."""

    def look(self, context: Context) -> RuleVerdict:
        table, t = context.frame.table, context.thresholds
        backlog = context.mean("backlog_bytes", 2.0)  # seen by chance, when a look falls into a collective
        # A short window catches a packet more than its share: peaks are compared with peaks, not with the capacity.
        reached = context.past["peak"].quantile(0.5)
        nominal = np.where(np.isnan(reached), table.capacity_Bps, reached)
        now, lately = (context.highest("peak_Bps", over_s) for over_s in (self.MOMENT_S, self.PATIENCE_S))
        held_up = (now < (1 + t.degraded_share) / 2 * nominal) | context.is_troubled(self.id, table.names)
        carried = context.mean("rate_Bps", self.MOMENT_S)
        queued = context.share_of_looks("backlog_bytes", self.QUEUE_S) >= 0.5
        heavy, held = carried > 0.25 * context.past["rate"].quantile(0.9), queued | self._trickles(context, nominal)
        behind, full = _came(table, (heavy | held) & (now < t.degraded_share * nominal), held_up, now)
        # Where packets wait, the link is what is slow, also where they come in faster than they leave; where none do,
        # or nobody sees them, its senders may be.
        ceiling = np.where((backlog > 0) | full, now, lately)
        busy = (heavy & (ceiling > 0.02 * nominal) | held) & (context.frame.load.up > 0)
        slow = busy & (ceiling < t.degraded_share * nominal)
        between = busy & (ceiling < (1 + t.degraded_share) / 2 * nominal) | ~busy
        slow &= ~(behind & (context.highest("backlog_bytes", 2.0) < CHANCE_QUEUE_S * nominal))
        slow &= ~_waits_less(slow, backlog)
        if context.active.get("link.down") or context.active.get("rail.dead"):
            slow &= backlog > 0  # flows take other ways and share them: a lower rate alone says nothing of a link
        negotiated = np.array([context.speed_Bps.get(device, np.nan) for device in table.devices])
        fell = negotiated < 0.99 * table.capacity_Bps

        def tell(i: int) -> Finding:
            share = ceiling[i] / nominal[i] if nominal[i] > 0 else float("nan")
            if fell[i]:
                observed, expected = show_rate(negotiated[i]), show_rate(table.capacity_Bps[i])
                evidence = f"negotiated {observed}"
            else:
                usual = np.fmin(nominal[i], table.capacity_Bps[i])
                observed, expected = f"at most {show_rate(share * usual)}", show_rate(usual)
                evidence = f"highest rate of the last seconds {share:.0%} of what this link reached before"
            waiting = f"{context.frame.load.backlog_bytes[i]:.0f} bytes waiting"
            return self.finding(context, table.names[i], observed, expected, evidence, waiting)

        return verdict(context, slow | fell, between, tell)

    def _trickles(self, context: Context, nominal: Floats) -> Mask:
        """Tell which links carry a steady trickle while the job is overdue: held up, and nobody sees a queue."""
        if not is_overdue(context):
            return np.zeros(len(nominal), bool)
        mean, peak = context.mean("rate_Bps", 2.0), context.highest("peak_Bps", 2.0)
        return (mean > self.STEADY * peak) & (mean > 0.001 * nominal)


def is_overdue(context: Context) -> bool:
    """Return whether the job should have reported a step by now, and has reported no other phase."""
    job = context.frame.job
    if len(job.steps) < 3 or job.phase:
        return False
    usual_s = median([step.step_s for step in job.steps])
    return context.frame.mono_s - job.last_span_s > 1.5 * usual_s + 0.5


def far_below(context: Context) -> list[str]:
    """Return the links that for seconds have stayed under half of what they usually reach, with how far."""
    peak, usual = context.highest("peak_Bps", 3.0), context.past["peak"].quantile(0.5)
    rate, usual_rate = context.mean("rate_Bps", 3.0), context.past["rate"].quantile(0.5)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(np.isnan(usual), rate / usual_rate, peak / usual)
    found = np.flatnonzero((share < 0.5) & (usual_rate > 0))
    names = context.frame.table.names
    return [f"{names[i]} at {share[i]:.0%} of its past" for i in found[np.argsort(share[found])]]


def _came(table: LinkTable, below: Mask, held_up: Mask, pace: Floats) -> tuple[Mask, Mask]:
    """Tell of links below their rate, by what comes into the switch they leave, which are behind another and which not.

    Behind: they go at the pace of a link into it that is held up itself. Not: all that comes in comes at full pace, so
    that packets wait, whoever sees them.
    """
    behind, full = np.zeros(len(below), bool), np.zeros(len(below), bool)
    if not below.any():
        return behind, full
    senders: dict[str, set[str]] = {}
    slowest: dict[str, dict[str, float]] = {}
    for k in np.flatnonzero(pace > 0).tolist():
        switch, sender = table.dst[k], _box(table.src[k])
        senders.setdefault(switch, set()).add(sender)
        if held_up[k]:
            of = slowest.setdefault(switch, {})
            of[sender] = min(of.get(sender, np.inf), float(pace[k]))
    for i in np.flatnonzero(below).tolist():
        switch, end = table.src[i], _box(table.dst[i])  # what comes from there does not go back
        held = [slow_Bps for sender, slow_Bps in slowest.get(switch, {}).items() if sender != end]
        behind[i] = bool(held) and pace[i] > SAME_PACE * min(held)
        full[i] = not held and bool(senders.get(switch, set()) - {end})
    return behind, full


def _box(end: str) -> str:
    """Return the host or switch of one end of a link."""
    return end.partition("/")[0]


def _waits_less(slow: Mask, backlog: Floats) -> Mask:
    """Tell which slow links have no queue to speak of, beside one that has.

    Collectives hold all links to the pace of the slowest; the one whose packets wait is named, the others after it.
    """
    waits = backlog > SHORT_QUEUE * max(backlog[slow], default=0.0)
    return slow & ~waits if (slow & waits).any() else np.zeros(len(slow), bool)
