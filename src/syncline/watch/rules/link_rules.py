"""Rules about links: down, too full, bursting, losing, erring, pausing."""

from __future__ import annotations

import bisect
from abc import abstractmethod
from dataclasses import replace

import numpy as np

from syncline.describe.names import few
from syncline.describe.units import show_rate, show_time
from syncline.finding import Action, Finding, Severity
from syncline.watch.burst import Burst
from syncline.watch.links import LinkTable
from syncline.watch.rules.rule import LINK_TROUBLES, NONE, Context, Floats, Mask, RuleVerdict, WatchRule, verdict

FULL_PACKET_BYTES = 1500.0
STILL_S, DOWN_S = 2.0, 5.0
"""What lost nothing for so long does not lose now."""
LONG_S = 10.0
"""How long must have been seen before an average over half a minute says anything."""


def planned_use(context: Context) -> Floats:
    """Return the share of every link that the plan uses; 0 where it says nothing."""
    table, prediction = context.frame.table, context.prediction
    if not prediction.link_rate_Bps:
        return np.zeros(len(table))
    rates = np.array([prediction.rate_of(name) or 0.0 for name in table.names])
    return np.nan_to_num(rates / table.capacity_Bps)


class LinkDown(WatchRule):
    """A link that was there cannot carry traffic."""

    id = "link.down"
    severity = Severity.CRITICAL
    meaning = "A cable, an optic, a port or the other end has failed, or someone set it down."
    fix = "Look at both ends: the port's state and log, then the cable and the optic."
    clear_after_s = 2.0

    def look(self, context: Context) -> RuleVerdict:
        load, table = context.frame.load, context.frame.table
        if load.up.all():
            return NONE
        carried = context.past["rate"].quantile(0.9) if "rate" in context.past else np.full(len(table), np.nan)
        # One that never carried anything is a spare port, unless its capacity is known.
        known = (np.nan_to_num(carried) > 0) | ~np.isnan(table.capacity_Bps)
        bad = (load.up == 0) & known

        def tell(i: int) -> Finding:
            seen = f"device {table.devices[i]} reports no carrier or is gone"
            return self.finding(context, table.names[i], "down", "up", seen)

        return verdict(context, bad, np.zeros(len(table), bool), tell)


class FullLink(WatchRule):
    """A link that is too full, by a measure of its own."""

    action = Action.CONFIGURE
    raise_after_s = 5.0
    clear_after_s = 10.0

    @abstractmethod
    def levels(self, context: Context, use: Floats, planned: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what is measured, above what it is bad, and above what it is not good again."""

    @abstractmethod
    def words(self, context: Context, level: float, limit: float) -> tuple[str, str]:
        """Return what is observed and expected in words."""

    def look(self, context: Context) -> RuleVerdict:
        table, over_s = context.frame.table, context.thresholds.average_over_s
        if context.seen_s() < LONG_S:
            return NONE
        use, planned = context.mean("rate_Bps", over_s) / table.capacity_Bps, planned_use(context)
        level, limit, low = self.levels(context, use, planned)

        def tell(i: int) -> Finding:
            observed, expected = self.words(context, float(level[i]), float(limit[i]))
            mean = f"mean of {over_s:.0f} s: {show_rate(use[i] * table.capacity_Bps[i])}"
            beside = idle_beside(table, np.nan_to_num(use), i)
            return self.finding(context, table.names[i], observed, expected, mean, *beside)

        return verdict(context, (level > limit) & ~full_as_planned(context, planned), level > low, tell)


class LinkAverage(FullLink):
    """A link whose average leaves no room: above 80 %, or above what the plan expects of it."""

    id = "link.average"
    meaning = "No room is left for a neighbour, a retry or an uneven moment; queues grow from here."
    fix = "Spread the traffic (rails, adaptive routing), shrink it (compression), or widen the link."

    def levels(self, context: Context, use: Floats, planned: Floats) -> tuple[Floats, Floats, Floats]:
        t = context.thresholds
        high = np.maximum(t.average_high, 1.1 * planned)
        return use, high, high - (t.average_high - t.average_clear)

    def words(self, context: Context, level: float, limit: float) -> tuple[str, str]:
        return f"{level:.0%} on average", f"{context.thresholds.average_target:.0%} to {limit:.0%}"


class LinkPeak(FullLink):
    """A link at its ceiling for more than half of the time."""

    id = "link.peak"
    meaning = "The link is the bottleneck for most of the step."
    fix = "See which collectives use it; shrink them, or spread them: more connections, adaptive routing."

    def levels(self, context: Context, use: Floats, planned: Floats) -> tuple[Floats, Floats, Floats]:
        # A link that the plan keeps busy for most of the step is at its ceiling for as long, and should be.
        limit = np.maximum(context.thresholds.peak_share_of_time, 1.25 * planned)
        return context.mean("saturated", context.thresholds.average_over_s), limit, 0.9 * limit

    def words(self, context: Context, level: float, limit: float) -> tuple[str, str]:
        return f"{level:.0%} of the time above {context.thresholds.peak_high:.0%}", f"under {limit:.0%} of the time"


def full_as_planned(context: Context, planned: Floats) -> Mask:
    """Tell which links may be full: planned flows that hash onto one of several ways, while steps keep to the plan.

    Where a link is in trouble, steps are late for that: the links that were full before it are no cause.
    """
    return (planned > 0) & (context.is_any_bad(*LINK_TROUBLES) or context.keeps_plan())


def idle_beside(table: LinkTable, use: Floats, i: int) -> list[str]:
    """Return, as evidence, the links from the same switch to others of its kind that carry far less."""
    if "/nic-" in table.src[i] or "/nic-" in table.dst[i]:
        return []
    kind = table.dst[i].rstrip("0123456789")
    found = [
        f"{table.names[k]} {use[k]:.0%}"
        for k in range(len(table))
        if table.src[k] == table.src[i] and table.dst[k].rstrip("0123456789") == kind and use[k] < 0.5 * use[i]
    ]
    return [f"carries {use[i]:.0%} on average, beside it {few(found, 3)}"] if found else []


class LinkMicroburst(WatchRule):
    """Short bursts at full rate that no collective explains, on a link whose average looks fine."""

    id = "link.microburst"
    action = Action.CONFIGURE
    meaning = "Another flow (storage, checkpoint, a neighbour, incast) bursts where averages hide it."
    fix = "Find the sender in the link's series and the heat map; pace it, or give it another rail or class."
    confidence = 0.7
    raise_after_s = 0.0

    OVER_S = 2.0
    SLACK_S = 0.02

    def look(self, context: Context) -> RuleVerdict:
        table, t = context.frame.table, context.thresholds
        if context.seen_s() < 5.0:
            return NONE  # collectives under way when watching began are reported only now
        until = self._judged_until(context)
        foreign = {name: self._foreign(context, name, until) for name in context.bursts if name in table.index}
        if not any(foreign.values()):
            return NONE
        counts = np.zeros(len(table))
        for name, found in foreign.items():
            counts[table.index[name]] = len(found)
        # Without spans the link's own past decides, and before there is one nothing does.
        usual = np.zeros(len(table)) if context.has_spans else context.past["bursts"].quantile(0.95)
        limit = np.maximum(t.bursts_per_s * self.OVER_S, 2 * usual * self.OVER_S)  # NaN compares as not bad
        use = np.nan_to_num(context.mean("rate_Bps", 1.2) / table.capacity_Bps)
        peak = context.highest("peak_Bps", 2.0) / table.capacity_Bps
        bad = (counts >= limit) & (use < t.burst_average_below)

        def tell(i: int) -> Finding:
            mine = foreign.get(table.names[i], [])
            size = max((b.size_bytes for b in mine), default=0.0)
            width = max((b.duration_s for b in mine), default=0.0)
            return self.finding(
                context, table.names[i], f"{counts[i]:.0f} bursts in {self.OVER_S:.0f} s", f"under {limit[i]:.0f}",
                f"average {use[i]:.0%}, peak {peak[i]:.0%} of capacity",
                f"longest {show_time(width)}, largest {size / 1e6:.2f} MB",
                "outside every collective reported" if context.has_spans else "more than this link's own past",
            )  # fmt: skip

        return verdict(context, bad, counts >= 0.5 * limit, tell)

    def _judged_until(self, context: Context) -> float:
        """Return the moment before which all is known: a rank reports its collectives when the step is over."""
        return context.frame.job.reported_s if context.has_spans else context.frame.mono_s

    def _foreign(self, context: Context, name: str, until: float) -> list[Burst]:
        """Return the short bursts of a link in the last reported seconds, outside every collective."""
        longest_s = context.thresholds.burst_longest_s
        return [
            burst
            for burst in context.bursts[name]
            if until - self.OVER_S <= burst.end_s <= until
            and burst.duration_s <= longest_s
            and not _touches(context.explained, burst.start_s - self.SLACK_S, burst.end_s + self.SLACK_S)
        ]


def _touches(spans: list[tuple[float, float]], start_s: float, end_s: float) -> bool:
    """Tell whether any of the spans, which are apart and in order, has a moment in a time."""
    after = bisect.bisect_left(spans, start_s, key=lambda span: span[1])
    return after < len(spans) and spans[after][0] <= end_s


class LinkLoss(WatchRule):
    """A link that drops packets, beyond what it has always dropped.

    Counted one by one: at a share p of n packets a second the second loss comes after 2/(n p) seconds on average. One
    packet alone says nothing about a link, nor do a few of the millions that a fast one carries. A queue that overflows
    once drops several at one moment, which is a warning; a bad link drops at any moment. On a crowded host packets are
    lost because nobody fetches them, which is a warning too, unless it is more than any host may lose.
    """

    id = "link.loss"
    severity = Severity.CRITICAL
    meaning = "A bad cable or optic, or a queue that overflows (PFC or ECN off, incast)."
    fix = "Errors beside it: change the cable. None: look at pause and ECN, and at who bursts."
    clear_after_s = 1.0  # and it has lost nothing for some seconds by then

    def look(self, context: Context) -> RuleVerdict:
        table, t = context.frame.table, context.thresholds
        lost = context.highest("drops_per_s", STILL_S) > 0
        if not lost.any():
            return NONE
        now, lately = context.mean("drops_per_s", 0.8), context.mean("drops_per_s", t.loss_over_s)
        frames = context.window(t.loss_over_s)
        each = np.array([f.load.drops_per_s * f.interval_s for f in frames])
        count, moments = np.nansum(each, axis=0), (each > 0).sum(axis=0)
        usual = np.nan_to_num(context.past["drops"].quantile(0.95))
        limit = t.loss_times_past * usual
        drops = np.maximum(now, lately)
        beyond = drops > limit
        carried = np.nansum([f.load.rate_Bps * f.interval_s for f in frames], axis=0) / FULL_PACKET_BYTES
        # Looks are not quite as long as their interval: a packet may count as 0.9.
        lost &= count > np.maximum(t.loss_packets - 0.5, t.loss_share * carried)
        # What was on its way when a link went down was not lost by it.
        lost &= np.array([f.load.up for f in context.window(DOWN_S)]).min(axis=0) > 0

        def tell(i: int) -> Finding:
            observed = f"{drops[i]:.1f} packets dropped a second"
            expected = f"at most {limit[i]:.1f} (its own past: {usual[i]:.1f})"
            backlog = f"backlog {context.frame.load.backlog_bytes[i]:.0f} bytes"
            seen = f"{count[i]:.0f} packets in {t.loss_over_s:.0f} s"
            found = self.finding(context, table.names[i], observed, expected, seen, backlog)
            is_much = count[i] > t.retransmitted_share * carried[i]
            is_sure = moments[i] > 1 and (is_much or not context.is_crowded)
            return found if is_sure else replace(found, severity=Severity.WARNING)

        return verdict(context, lost & beyond, (now > 0) & (drops > 0.5 * limit), tell)


class LinkErrors(WatchRule):
    """Error counters of a link that rise."""

    id = "link.errors"
    meaning = "The wire damages packets: a dirty or loose optic, a bent cable, a failing port."
    fix = "Clean and reseat, then replace, cable and optic; does the count follow the cable or the port?"
    raise_after_s = 0.0

    def look(self, context: Context) -> RuleVerdict:
        table, t = context.frame.table, context.thresholds
        still = context.highest("errors_per_s", STILL_S) > 0
        if not still.any():
            return NONE
        frames = context.window(t.errors_over_s)
        count = np.array([f.load.errors_per_s * f.interval_s for f in frames]).sum(axis=0)

        def tell(i: int) -> Finding:
            observed = f"{count[i]:.0f} errors in {t.errors_over_s:.0f} s"
            return self.finding(context, table.names[i], observed, "none", f"device {table.devices[i]}")

        return verdict(context, (count >= 1.0) & still, np.zeros(len(table), bool), tell)


class LinkPause(WatchRule):
    """A link held up by pause frames or missing credits."""

    id = "link.pause"
    action = Action.CONFIGURE
    meaning = "The receiver cannot keep up: incast, a slow PCIe slot or host, or spreading congestion."
    fix = "Look at the receiver's PCIe width and load, then at who else sends to it; check ECN."
    raise_after_s = 2.0

    def look(self, context: Context) -> RuleVerdict:
        table, t = context.frame.table, context.thresholds
        pauses = context.mean("pauses_per_s", 5.0)
        if not (pauses > 0).any():
            return NONE
        rate = np.nan_to_num(context.mean("rate_Bps", 5.0))
        is_port = np.array([":" in device for device in table.devices], bool)
        # InfiniBand counts ticks of waiting, one for each word that could have gone; Ethernet counts frames.
        share = np.divide(pauses, pauses + rate / 4, out=np.zeros(len(table)), where=pauses > 0)
        usual = np.nan_to_num(context.past["pauses"].quantile(0.95))
        limit = np.maximum(t.pause_per_s, 3 * usual)
        bad = np.where(is_port, share > t.pause_share, pauses > limit)

        def tell(i: int) -> Finding:
            of_time, frames = f"{share[i]:.0%} of the time without credit", f"{pauses[i]:.0f} pause frames a second"
            expected = f"under {t.pause_share:.0%}" if is_port[i] else f"under {limit[i]:.0f}"
            seen = f"device {table.devices[i]} carries {show_rate(rate[i])}; its own past: {usual[i]:.0f} a second"
            return self.finding(context, table.names[i], of_time if is_port[i] else frames, expected, seen)

        return verdict(context, bad, np.where(is_port, share > 0.5 * t.pause_share, pauses > 0.5 * limit), tell)


LOADED_LINK_RULES = (LinkLoss(), LinkErrors(), LinkPause(), LinkMicroburst(), LinkAverage(), LinkPeak())
"""The rules about links that are there and work."""
