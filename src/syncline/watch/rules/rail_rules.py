"""Rules about rails and the host: a dead rail, rails that carry unequal loads, TCP that sends again."""

from __future__ import annotations

import numpy as np

from syncline.describe.units import show_rate
from syncline.finding import Action, Finding, Severity
from syncline.watch.rules.rule import Context, RuleVerdict


class RailDead:
    """Every link of a rail is down, or silent while the other rails work and it used to."""

    id = "rail.dead"
    raise_after_s = None
    clear_after_s = 2.0

    def look(self, context: Context) -> RuleVerdict:
        table = context.frame.table
        rails = np.unique(table.rail[table.rail >= 0])
        if len(rails) < 2:
            return RuleVerdict({}, set())
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
                bad[f"rail {r}"] = self._teller(context, r, len(members), num_down, now, before)
        return RuleVerdict(bad, set())

    def _teller(self, context: Context, rail: int, num: int, down: int, now: float, before: float):  # type: ignore[no-untyped-def]
        def tell() -> Finding:
            observed = "all links down" if down == num else f"silent ({show_rate(now)})"
            return Finding(
                self.id,
                Severity.CRITICAL,
                f"rail {rail}",
                observed,
                f"{show_rate(before)}, as before",
                evidence=(f"{down} of {num} links down",),
                meaning="The rail's switch, its power or its uplink is gone: every host lost the same NIC.",
                fix="Look at the rail's leaf switch first, not at the hosts; drain or reroute the job meanwhile.",
                action=Action.ESCALATE,
                cost_usd_per_day=context.usd_per_day(max(context.lost_share(), 0.0) or 1.0),
            )

        return tell


class RailImbalance:
    """Rails that should carry the same and do not."""

    id = "rail.imbalance"
    raise_after_s = 3.0
    clear_after_s = None

    def look(self, context: Context) -> RuleVerdict:
        table, t = context.frame.table, context.thresholds
        rails = np.unique(table.rail[table.rail >= 0])
        if len(rails) < 2:
            return RuleVerdict({}, set())
        rate, usual = np.nan_to_num(context.mean("rate_Bps", 5.0)), np.nan_to_num(context.past["rate"].quantile(0.5))
        now = np.array([rate[table.rail == r].sum() for r in rails])
        before = np.array([usual[table.rail == r].sum() for r in rails])
        capacity = np.array([np.nansum(table.capacity_Bps[table.rail == r]) for r in rails])
        if now.max() < t.rail_least_share * capacity.max() or now.max() <= 0:
            return RuleVerdict({}, set())
        ratio = now.max() / max(now.min(), 1e-9)
        always = before.max() / max(before.min(), 1e-9) if before.min() > 0 else 1.0
        limit = max(t.rail_ratio, 1.2 * always)
        light, heavy = int(rails[now.argmin()]), int(rails[now.argmax()])

        def tell() -> Finding:
            return Finding(
                self.id,
                Severity.WARNING,
                f"rail {light}",
                f"{show_rate(now.min())} against {show_rate(now.max())} on rail {heavy}",
                f"within {limit:.2g} times",
                evidence=(f"{ratio:.2g} times over 5 s; as a rule {always:.2g} times",),
                meaning="Traffic left its rail: a NIC that is out, a wrong interface list, or colliding hashes.",
                fix="Compare the NICs each rank uses with the plan (NCCL_IB_HCA, order); look for links down.",
                action=Action.CONFIGURE,
                cost_usd_per_day=context.usd_per_day(context.lost_share()),
            )

        place = f"rail {light}"
        return RuleVerdict({place: tell} if ratio > limit else {}, {place} if ratio > 0.9 * limit else set())


class Retransmissions:
    """TCP that sends too much again: loss on some path of this host."""

    id = "host.retransmissions"
    raise_after_s = 1.0
    clear_after_s = None

    def look(self, context: Context) -> RuleVerdict:
        t = context.thresholds
        sent, again = context.tcp
        share = again / sent if sent > 100 else 0.0
        past = context.past["retransmitted"].quantile(0.95) if "retransmitted" in context.past else np.empty(0)
        usual = float(past[0]) if len(past) and not np.isnan(past[0]) else 0.0
        limit = max(t.retransmitted_share, 3 * usual)

        def tell() -> Finding:
            return Finding(
                self.id,
                Severity.WARNING,
                "host",
                f"{share:.2%} of TCP segments sent again",
                f"under {limit:.2%}",
                evidence=(f"{again:.0f} of {sent:.0f} segments a second",),
                meaning="Some path from this host loses packets; the host's own interfaces need not show it.",
                fix="Find the peer with `ss -ti`; look at link.loss and link.errors on the way to it.",
                action=Action.INSPECT,
                cost_usd_per_day=context.usd_per_day(context.lost_share()),
            )

        bad = share > limit and again > 5
        return RuleVerdict({"host": tell} if bad else {}, {"host"} if share > 0.5 * limit else set())
