"""The rule about links that run below their rate: which of the slow ones is slow by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from syncline.describe.names import few
from syncline.describe.units import show_rate, show_size
from syncline.finding import Finding, Severity
from syncline.watch.links import LinkTable
from syncline.watch.rules.reach import LOW
from syncline.watch.rules.rule import NONE, Context, Floats, Mask, RuleVerdict, WatchRule, verdict

CHANCE_QUEUE_S = 3e-3
"""What a link sends in so long may wait by chance, a few packets that came together."""
SHORT_QUEUE = 0.1
"""A queue below this share of the longest is chance beside it."""
MANY, ALL = 3, "all links"
"""So many links that fall together, without a queue, are told as one."""
LATE_SHARE = 0.05
"""A job that loses this share of its time is late, and a link below its past is no choice of its senders."""
LEARN_S = 10.0
SAME_PACE = 0.8
"""A link that reaches this share of another's rate, or more, goes at its pace."""


class LinkDegraded(WatchRule):
    """A link negotiated less than it had, or has work and stays below what it always reached (`LinkReach`).

    It has work when packets wait for it, or when it is busy for a larger part of the time than it used to be: the same
    bytes at a lower rate. A quiet moment says nothing of a link's rate, and neither does the return direction of
    one-way traffic, which carries acknowledgements. Where nobody sees packets wait and no step is late, the senders may
    have less to send: a deep fall is a warning then and a small one nothing. A small one that makes no step late warns.
    """

    id = "link.degraded"
    severity = Severity.CRITICAL
    meaning = "The link runs below its rate: fewer lanes, a lower speed, retries, or a neighbour's load."
    fix = "Compare the port's speed and lanes with the plan; reseat or replace the cable."
    confidence = 0.8

    QUEUE_S, NEVER_S, IDLE_S = 1.0, 3.0, 10.0
    STEADY = 0.8
    """Busy for this part of the time is all of it."""
    TRICKLE = 0.001
    """Less than this share of its top is no traffic of the job."""
    RETURN = 0.1
    """A direction that carries less than this share of the opposite one carries what that one sends back."""

    def look(self, context: Context) -> RuleVerdict:
        table, reach = context.frame.table, context.reach
        queued = context.share_of_looks("backlog_bytes", self.QUEUE_S) >= 0.5
        low, ceiling, floor = reach.fallen(expected_reach(context), queued)
        top, near = np.fmax(reach.top_Bps, floor), low | (reach.now_Bps() < (1 + LOW) / 2 * floor)
        between = reach.was_low(near, queued | (context.frame.load.rate_Bps > self.TRICKLE * top))
        negotiated = np.array([context.speed_Bps.get(device, np.nan) for device in table.devices])
        fell = negotiated < 0.99 * table.capacity_Bps
        if not (low | fell | queued | between).any():
            return NONE
        between = between & (context.highest("rate_Bps", self.IDLE_S) > self.TRICKLE * top)
        carried = context.mean("rate_Bps", self.QUEUE_S)
        backlog = context.mean("backlog_bytes", 2.0)  # seen by chance, when a look falls into a collective
        moves = np.fmin(carried, reach.now_Bps()) > self.TRICKLE * top
        works = (moves | queued) & (context.frame.load.up > 0)
        held_up = (reach.now_Bps() < (1 + LOW) / 2 * floor) | context.is_troubled(self.id, table.names)
        behind, full = _came(table, low & works, held_up, reach.now_Bps())
        waits = queued | full
        is_late = np.bool_(is_overdue(context) or context.lost_share() > LATE_SHARE)
        usual = np.divide(context.past["rate"].quantile(0.5), top, out=np.zeros(len(table)), where=top > 0)
        flat = carried >= np.fmin(self.STEADY, np.nan_to_num(usual)) * reach.now_Bps()
        # On a crowded host senders wait for a core; a rate that stands still is not theirs.
        slow = low & works & (waits | (flat & (reach.is_steady() | np.bool_(not context.is_crowded))))
        usually, lately = context.past["rate"].quantile(0.9), np.fmin(carried, reach.now_Bps())
        back = _returns(table, usually, self.RETURN) | _returns(table, lately, self.RETURN)
        slow &= waits | (~back & np.bool_(not context.frame.job.phase))  # one that saves sends as it likes
        slow &= ~(behind & (context.highest("backlog_bytes", 2.0) < CHANCE_QUEUE_S * top))
        slow &= ~_waits_less(slow, backlog)
        if context.active.get("link.down") or context.active.get("rail.dead") or is_any_late(context):
            # Flows take other ways and share them, or wait for a rank: a lower rate alone says nothing of a link.
            slow &= queued & (backlog > 0)
        never = self._never(context, negotiated)
        doubtful = ~(waits | is_late | fell | never)
        # What a shaper lets pass at once, after a pause, makes a tenth of the difference between two rates.
        shallow = ~(is_late | fell | never) & (ceiling >= context.thresholds.degraded_share * floor)
        slow &= ~(doubtful & shallow)
        unsure = slow & doubtful
        all_alike = int(unsure.sum()) >= MANY and unsure.sum() > 0.5 * (works | unsure).sum()
        named = (slow & ~(unsure & all_alike)) | fell | never

        def tell(i: int) -> Finding:
            waiting = f"{show_size(context.frame.load.backlog_bytes[i])} waiting"
            if fell[i]:
                observed, expected = show_rate(negotiated[i]), show_rate(table.capacity_Bps[i])
                return self.finding(context, table.names[i], observed, expected, f"negotiated {observed}", waiting)
            if never[i]:
                observed, expected = f"at most {show_rate(ceiling[i])}", f"{show_rate(table.capacity_Bps[i])} as stated"
                seen = "never reached since the watch began, though packets wait"
                return self.finding(context, table.names[i], observed, expected, seen, waiting)
            lately = f"{ceiling[i] / floor[i]:.0%} of the least it reached before"
            meaning, severity = self.meaning, Severity.WARNING if doubtful[i] or shallow[i] else self.severity
            if doubtful[i]:
                meaning = "It is busy for longer at a lower rate: this link, one before it, or its sender is slower."
            return replace(
                self.finding(context, table.names[i], f"at most {show_rate(ceiling[i])}", show_rate(floor[i]), lately,
                             waiting, meaning=meaning), severity=severity)  # fmt: skip

        found = verdict(context, named, between, tell)
        lasts = reach.now_Bps(24) < LOW * floor
        if not all_alike or context.has_spans or not (lasts | ~unsure).all():  # spans tell what the job does
            return found
        return RuleVerdict({**found.bad, ALL: partial(self._all, context, unsure, ceiling, floor)}, found.between)

    def _never(self, context: Context, negotiated: Floats) -> Mask:
        """Tell which links have not come near the rate that the user states, though packets wait for them."""
        table, reach = context.frame.table, context.reach
        stated = ~(np.abs(negotiated - table.capacity_Bps) <= 0.01 * table.capacity_Bps)
        waits = context.share_of_looks("backlog_bytes", self.NEVER_S) >= 0.8
        below = np.fmax(context.highest("rate_Bps", self.NEVER_S), np.fmax(reach.top_Bps, reach.now_Bps(12)))
        share = context.thresholds.degraded_share
        return stated & waits & (below < share * table.capacity_Bps) & (context.seen_s() > LEARN_S)

    def _all(self, context: Context, unsure: Mask, ceiling: Floats, floor: Floats) -> Finding:
        share = float(np.median(ceiling[unsure] / floor[unsure]))
        return replace(
            self.finding(
                context, ALL, f"{int(unsure.sum())} of {len(unsure)} links carry {share:.0%} of what they did",
                "as before", f"{few([context.frame.table.names[i] for i in np.flatnonzero(unsure)], 3)}",
                meaning="All fell together: the job is slower or does something else, or what they share is slow.",
                fix="Look at the job first (its steps, its ranks), then at the switch these links share.",
            ), severity=Severity.WARNING)  # fmt: skip


def expected_reach(context: Context) -> Floats:
    """Return what an earlier run reached on each link; NaN where nobody says."""
    known = context.prediction.link_reach_Bps
    return np.array([known.get(name, np.nan) for name in context.frame.table.names], np.float64)


def _returns(table: LinkTable, carried: Floats, share: float) -> Mask:
    """Tell which links only carry what the opposite direction of their cable sends back."""
    ends = {(table.src[i], table.dst[i]): i for i in range(len(table))}
    opposite = np.array([ends.get((table.dst[i], table.src[i]), i) for i in range(len(table))], np.int64)
    return carried < share * carried[opposite] if len(table) else np.zeros(0, bool)


def is_overdue(context: Context) -> bool:
    """Return whether the job should have reported a step by now, and has reported no other phase."""
    job = context.frame.job
    if len(job.steps) < 3 or job.phase:
        return False
    usual_s = median([step.step_s for step in job.steps])
    return context.frame.mono_s - job.last_span_s > 1.5 * usual_s + 0.5


def is_any_late(context: Context) -> bool:
    """Return whether the others waited for a rank in the last two steps: then links rest in mid-collective."""
    steps = context.frame.job.steps[-5:]
    least_s = context.thresholds.straggler_share_now * median([s.step_s for s in steps]) if steps else float("inf")
    return any(rank.late_twice_s > least_s for rank in context.frame.job.ranks)


def far_below(context: Context) -> list[str]:
    """Return the links that for seconds have stayed under half of what they usually reach, with how far."""
    reach, usual = context.reach, context.past["rate"].quantile(0.5)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = reach.now_Bps(12) / reach.top_Bps
    found = np.flatnonzero((share < 0.5) & (usual > 0))
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
