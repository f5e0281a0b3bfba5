"""The engine: looks with every rule at every frame, keeps what is raised, and says what changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from syncline.finding import Finding, Severity
from syncline.watch.burst import Burst
from syncline.watch.frame import Frame
from syncline.watch.incident import Incident, IncidentBook, IncidentEvent, IncidentLog
from syncline.watch.job import union
from syncline.watch.links import Floats, LinkTable
from syncline.watch.prediction import Prediction
from syncline.watch.rules.degraded_rule import LinkDegraded
from syncline.watch.rules.hold import Change, Hold
from syncline.watch.rules.job_rules import JOB_RULES, silence_s
from syncline.watch.rules.link_rules import LOADED_LINK_RULES, LinkDown
from syncline.watch.rules.past import Past
from syncline.watch.rules.rail_rules import RailDead, RailImbalance, Retransmissions
from syncline.watch.rules.reach import LinkReach
from syncline.watch.rules.rule import Context, WatchRule
from syncline.watch.rules.thresholds import Thresholds

RECENT_S = 60.0
EXPLAINED_S = 10.0
"""How long communication is remembered, counted back from the moment until which all ranks have reported."""
LOOKS = 4
ASLEEP, ASLEEP_S = 4.0, 1.0
"""A look that comes so many times as late as the one before it, and after so long, ends a time without looks."""
ACCEPTED_LOOKS = 240
"""After so many looks links that carry less, for no reason that is seen, are what is usual."""
RULES: tuple[WatchRule, ...] = (
    LinkDown(), RailDead(), LinkDegraded(), *LOADED_LINK_RULES, RailImbalance(), Retransmissions(), *JOB_RULES,
)  # fmt: skip
"""In this order: rules about the job come last, so that they can name the link that explains them."""
_LINK_PASTS = ("rate", "bursts", "drops", "pauses")
_PASTS = (*_LINK_PASTS, "step", "collective", "tail", "late", "lost")


class RuleEngine:
    """Holds the state of every rule; feed it frames in order."""

    def __init__(
        self,
        thresholds: Thresholds | None = None,
        prediction: Prediction | None = None,
        rules: Sequence[WatchRule] = RULES,
    ) -> None:
        self._thresholds = thresholds or Thresholds()
        self._prediction = prediction or Prediction()
        self._rules = tuple(rules)
        t = self._thresholds
        self._holds = {
            rule.id: Hold(
                t.raise_after_s if rule.raise_after_s is None else rule.raise_after_s,
                t.clear_after_s if rule.clear_after_s is None else rule.clear_after_s,
            )
            for rule in rules
        }
        self._alerts: dict[tuple[str, str], Finding] = {}
        self._looked_s: dict[str, float] = {}
        self._bad_s: dict[tuple[str, str], float] = {}
        """When each alert was last seen bad, by the wall's clock."""
        self._book, self._log = IncidentBook(), IncidentLog()
        self._hurt_looks = 0
        self._hurt: set[str] = set()
        self._recent: deque[Frame] = deque()
        self._bursts: dict[str, deque[Burst]] = {}
        self._explained: list[tuple[float, float]] = []
        self._past = {name: Past() for name in _PASTS}
        self._reach = LinkReach()
        self._has_spans = False
        self._awake_s = float("-inf")
        self._table: LinkTable | None = None
        self._rail_of: dict[str, int] = {}
        self._tcp: deque[tuple[float, float, float, float]] = deque()
        self.problems: dict[str, str] = {}
        """Rules that failed at the last look, and how: one of them must not silence the others."""

    def update(
        self,
        frame: Frame,
        *,
        reach_Bps: Floats | None = None,
        bursts: Mapping[str, Sequence[Burst]] | None = None,
        busy: Sequence[tuple[float, float]] = (),
        tcp: tuple[float, float] = (0.0, 0.0),
        speed_Bps: Mapping[str, float] | None = None,
        is_crowded: bool = False,
    ) -> list[IncidentEvent]:
        """Take a frame (with what links reached, bursts, communication spans, TCP segments sent and lost a second ...).

        Return what changed. Without `reach_Bps` the frame's peaks are what links reached, or else their mean rates.
        """
        self._remember(frame, bursts or {}, busy)
        peak_Bps = frame.load.peak_Bps
        usual = np.where(np.isnan(peak_Bps), frame.load.rate_Bps, peak_Bps)
        self._reach.look(frame.table.names, usual if reach_Bps is None else reach_Bps, frame.load.backlog_bytes)
        if frame.table is not self._table:
            self._table = frame.table
            self._rail_of = dict(zip(frame.table.names, frame.table.rail.tolist(), strict=True))
        self._tcp.append((frame.mono_s, frame.interval_s, *tcp))
        while len(self._tcp) > 1 and self._tcp[0][0] <= frame.mono_s - self._thresholds.loss_over_s:
            self._tcp.popleft()
        if self._recent and frame.interval_s > max(ASLEEP_S, ASLEEP * self._recent[-1].interval_s):
            self._awake_s = frame.mono_s
        context = replace(self._context(frame, speed_Bps or {}), is_crowded=is_crowded, awake_s=self._awake_s)
        for rule in self._rules:
            if not self._is_due(rule.id, frame.mono_s):
                continue
            try:
                self._apply(rule, context)
                self.problems.pop(rule.id, None)
            except Exception as error:
                self.problems[rule.id] = f"failed: {type(error).__name__}: {error}"[:300]
        self._learn(frame, context)
        self._recent.append(frame)
        up = [Incident.of(finding, last_s=self._bad_s[key]) for key, finding in self._alerts.items()]
        self._book.update(up, self._rail_of, frame.wall_s)
        while self._recent and frame.mono_s - self._recent[0].mono_s > RECENT_S:
            self._recent.popleft()
        return self._log.update(self._book.open, frame.wall_s)

    def forget_reach(self) -> None:
        """Learn anew what links reach: their rates are from now on over longer times, and no less for that."""
        self._reach = LinkReach()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that rules have up, causes and effects."""
        return tuple(self._alerts.values())

    def alerts(self) -> tuple[Incident, ...]:
        """Return the incidents that are open, each with its effects, the worst first."""
        return self._book.open

    def _is_due(self, rule: str, now_s: float) -> bool:
        """Tell whether a rule is to look: four times in the time for which a place must be bad to be named."""
        if 0.0 <= now_s - self._looked_s.get(rule, float("-inf")) < self._holds[rule].raise_after_s / LOOKS:
            return False
        self._looked_s[rule] = now_s
        return True

    def _apply(self, rule: WatchRule, context: Context) -> None:
        found, hold, frame = rule.look(context), self._holds[rule.id], context.frame
        context.suspected[rule.id] = set(found.bad)
        for place, change, since_s in hold.update(frame.mono_s, found.bad, found.between):
            if change is Change.RAISED:
                since_wall_s = frame.wall_s - (frame.mono_s - since_s)
                self._alerts[rule.id, place] = replace(found.bad[place](), since_s=since_wall_s)
            else:
                self._alerts.pop((rule.id, place))
                self._bad_s.pop((rule.id, place), None)
        for place in hold.active():
            key, tell = (rule.id, place), found.bad.get(place) or found.between.get(place)
            if place in found.bad or key not in self._bad_s:
                self._bad_s[key] = frame.wall_s
            if tell is not None:  # what is shown is what is seen now, also while it is neither bad nor good
                self._alerts[key] = replace(tell(), since_s=self._alerts[key].since_s)
        context.active[rule.id] = hold.active()

    def _context(self, frame: Frame, speed_Bps: Mapping[str, float]) -> Context:
        return Context(
            self._thresholds, self._prediction, frame, self._recent, self._bursts, self._explained,
            self._has_spans, self._past, self._reach, {rule: hold.active() for rule, hold in self._holds.items()}, {},
            np.array(self._tcp), dict(speed_Bps),
        )  # fmt: skip

    def _remember(
        self, frame: Frame, bursts: Mapping[str, Sequence[Burst]], busy: Sequence[tuple[float, float]]
    ) -> None:
        for key in _LINK_PASTS:
            self._past[key].align(frame.table.names)
        for name, found in bursts.items():
            if found:
                self._bursts.setdefault(name, deque(maxlen=400)).extend(found)
        kept = [span for span in self._explained if frame.job.reported_s - span[1] < EXPLAINED_S]
        self._explained = union([*kept, *busy])
        self._has_spans = frame.mono_s - frame.job.last_span_s < silence_s(frame.job, self._thresholds)

    def _learn(self, frame: Frame, context: Context) -> None:
        """Add this look to the past, but for what is in trouble: a fault must not become the standard."""
        names, load = frame.table.names, frame.load
        hurt = np.zeros(len(names), bool)
        for rule in ("link.down", "link.degraded", "link.loss", "link.microburst", "rail.dead"):
            hurt |= context.is_troubled(rule, names)
        sick = bool(context.active.get("rail.dead") or context.active.get("job.stalled"))
        hurt |= sick
        columns = {
            "rate": load.rate_Bps, "bursts": load.bursts / max(frame.interval_s, 1e-9), "drops": load.drops_per_s,
            "pauses": load.pauses_per_s,
        }  # fmt: skip
        known = np.array([name in self._hurt for name in names], bool)
        self._hurt = {name for name, is_hurt in zip(names, hurt, strict=True) if is_hurt}
        for key, column in columns.items():
            self._past[key].add(names, column, hurt)
            if (hurt & ~known).any():
                self._past[key].forget(hurt & ~known)
        self._hurt_looks = self._hurt_looks + 1 if hurt.any() else 0
        is_sure = any(f.severity is Severity.CRITICAL for f in self._alerts.values())
        self._reach.learn(bool(hurt.any()) and (is_sure or self._hurt_looks < ACCEPTED_LOOKS))
        slow = context.active.get("job.slower-than-before", set()) | context.active.get("job.straggler", set())
        steps = frame.job.steps[-1:]
        if steps and steps[0].end_s > frame.mono_s - 2 * frame.interval_s - 1.0 and not sick:
            self._past["step"].add(("step",), np.array([steps[0].step_s]), np.array([bool(slow)]))
        kinds = frame.job.collectives
        if kinds:
            keys = tuple(c.key for c in sorted(kinds, key=lambda c: c.key))
            by_key = {c.key: c for c in kinds}
            trouble = np.array([key in slow or bool(hurt.any()) for key in keys], bool)
            recent = np.array([by_key[key].recent_s for key in keys])
            tails = np.array([by_key[key].p99_s / max(by_key[key].p50_s, 1e-12) for key in keys])
            self._past["collective"].add(keys, recent, trouble)
            self._past["tail"].add(keys, tails, trouble)
        ranks = tuple(rank.place for rank in frame.job.ranks)
        if ranks:
            late_s = np.array([rank.late_now_s for rank in frame.job.ranks])
            self._past["late"].add(ranks, late_s)  # of all: a rank is compared with the others' past, not with its own
        past = self._past["lost"]
        is_known = not np.isnan(past.quantile(0.5)).any()
        past.add(
            ("host",), context.tcp[-1:, 3], np.array([is_known and bool(context.active.get("host.retransmissions"))])
        )
