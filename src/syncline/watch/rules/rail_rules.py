"""Rules about rails and the host: a dead rail, unequal rails, TCP segments that are lost, what the kernel reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np

from syncline.describe.units import show_rate
from syncline.finding import Action, Finding, Severity
from syncline.logs.engine import judge_lines
from syncline.watch.rules.link_rules import STILL_S
from syncline.watch.rules.rule import NONE, Context, RuleVerdict, WatchRule

KEPT_S = 600.0
"""How long a message counts."""
KEPT_LINES = 2000


class RailDead(WatchRule):
    """Every link of a rail is down, or silent while the other rails work and it used to."""

    id = "rail.dead"
    severity = Severity.CRITICAL
    action = Action.ESCALATE
    meaning = "The rail's switch, its power or its uplink is gone: every host lost the same NIC."
    fix = "Look at the rail's leaf switch first, not at the hosts; drain or reroute the job meanwhile."
    clear_after_s = 2.0

    def look(self, context: Context) -> RuleVerdict:
        table = context.frame.table
        rails = np.unique(table.rail[table.rail >= 0])
        if len(rails) < 2:
            return NONE
        rate = np.nan_to_num(context.mean("rate_Bps", 1.2))
        usual = np.nan_to_num(context.past["rate"].quantile(0.5))
        per = {int(r): (rate[table.rail == r].sum(), usual[table.rail == r].sum()) for r in rails}
        working = max(now for now, _ in per.values())
        bad = {}
        for r in rails.tolist():
            members = np.flatnonzero(table.rail == r)
            num_down = int((context.frame.load.up[members] == 0).sum())
            now, before = per[r]
            silent = before > 0 and now < 0.02 * before and working > 0.2 * before
            if num_down == len(members) or silent:
                observed = "all links down" if num_down == len(members) else f"silent ({show_rate(now)})"
                bad[f"rail {r}"] = partial(
                    self.finding, context, f"rail {r}", observed, f"{show_rate(before)}, as before",
                    f"{num_down} of {len(members)} links down",
                )  # fmt: skip
        return RuleVerdict(bad, {})


class RailImbalance(WatchRule):
    """Rails that should carry the same and do not."""

    id = "rail.imbalance"
    action = Action.CONFIGURE
    meaning = "Traffic left its rail: a NIC that is out, a wrong interface list, or colliding hashes."
    fix = "Compare the NICs each rank uses with the plan (NCCL_IB_HCA, order); look for links down."
    raise_after_s = 3.0

    def look(self, context: Context) -> RuleVerdict:
        table, t = context.frame.table, context.thresholds
        rails = np.unique(table.rail[table.rail >= 0])
        if len(rails) < 2:
            return NONE
        rate, usual = np.nan_to_num(context.mean("rate_Bps", 5.0)), np.nan_to_num(context.past["rate"].quantile(0.5))
        now = np.array([rate[table.rail == r].sum() for r in rails])
        before = np.array([usual[table.rail == r].sum() for r in rails])
        capacity = np.array([np.nansum(table.capacity_Bps[table.rail == r]) for r in rails])
        if now.max() < t.rail_least_share * capacity.max() or now.max() <= 0:
            return NONE
        ratio = now.max() / max(now.min(), 1e-9)
        always = before.max() / max(before.min(), 1e-9) if before.min() > 0 else 1.0
        limit = max(t.rail_ratio, 1.2 * always)
        light, heavy = int(rails[now.argmin()]), int(rails[now.argmax()])

        place = f"rail {light}"

        def tell() -> Finding:
            observed = f"{show_rate(now.min())} against {show_rate(now.max())} on rail {heavy}"
            seen = f"{ratio:.2g} times over 5 s; as a rule {always:.2g} times"
            return self.finding(context, place, observed, f"within {limit:.2g} times", seen)

        return RuleVerdict({place: tell} if ratio > limit else {}, {place: tell} if ratio > 0.9 * limit else {})


class Retransmissions(WatchRule):
    """A host whose TCP segments are lost, counted as `LinkLoss` counts packets: beyond what it has always lost."""

    id = "host.retransmissions"
    meaning = "Some path from this host loses packets; the host's own interfaces need not show it."
    fix = "Find the peer with `ss -ti`; look at link.loss and link.errors on the way to it."
    clear_after_s = 1.0  # and it has lost nothing for some seconds by then

    def look(self, context: Context) -> RuleVerdict:
        t = context.thresholds
        when, long, sent, lost = context.tcp.T
        if not (lost[when > context.frame.mono_s - STILL_S] > 0).any():
            return NONE
        num_sent, num_lost = float(sent @ long), float(lost @ long)
        usual = float(np.nan_to_num(context.past["lost"].quantile(0.95), nan=-1.0).sum())
        # Before a host is known only what is bad on any host is bad.
        share, usual = (t.lost_share, usual) if usual >= 0 else (t.retransmitted_share, 0.0)
        now, limit = max(float(lost[-1]), num_lost / float(long.sum())), t.loss_times_past * usual

        def tell() -> Finding:
            observed = f"{num_lost / max(num_sent, 1.0):.2%} of TCP segments lost"
            seen = f"{num_lost:.0f} of {num_sent:.0f} segments in {t.loss_over_s:.0f} s, duplicates left out"
            expected = f"under {share:.2%}, and at most {limit:.1f} a second (its own past: {usual:.1f})"
            return self.finding(context, "host", observed, expected, seen)

        bad = num_lost > max(t.loss_packets, share * num_sent) and now > limit
        return RuleVerdict({"host": tell} if bad else {}, {"host": tell} if now > 0.5 * limit else {})


class KernelLog(WatchRule):
    """Findings of the kernel's log, each under the name that the log rules give it."""

    id = "kernel.log"
    severity = Severity.WARNING
    meaning = "The kernel saw something fail."
    fix = "See the finding."
    raise_after_s = 0.0
    clear_after_s = 0.0

    def __init__(self, lines: Callable[[], list[str]]) -> None:
        self._lines = lines
        self._kept: deque[tuple[float, str]] = deque(maxlen=KEPT_LINES)
        self._found: tuple[Finding, ...] = ()

    def look(self, context: Context) -> RuleVerdict:
        """Return what the messages of the last minutes say; without new ones, what they said before."""
        now_s, new = context.frame.mono_s, self._lines()
        self._kept.extend((now_s, line) for line in new)
        is_old = bool(self._kept) and now_s - self._kept[0][0] > KEPT_S
        while self._kept and now_s - self._kept[0][0] > KEPT_S:
            self._kept.popleft()
        if new or is_old:
            self._found = judge_lines([line for _, line in self._kept], "kernel").findings
        return RuleVerdict({f"{one.rule} {one.place}".strip(): partial(_same, one) for one in self._found}, {})


def _same(finding: Finding) -> Finding:
    return finding
