"""The engine: looks with every rule at every frame, keeps what is raised, and says what changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.finding import Finding
from syncline.watch.burst import Burst
from syncline.watch.frame import Frame
from syncline.watch.incident import Incident, IncidentEvent
from syncline.watch.job import union
from syncline.watch.links import LinkTable
from syncline.watch.prediction import Prediction
from syncline.watch.rules.cause import causes
from syncline.watch.rules.degraded_rule import LinkDegraded
from syncline.watch.rules.hold import Change, Hold
from syncline.watch.rules.job_rules import (
    CollectiveTail,
    LateRank,
    NetworkShare,
    SlowerThanBefore,
    SlowerThanPlanned,
    StalledJob,
    silence_s,
)
from syncline.watch.rules.link_rules import (
    LinkAverage,
    LinkDown,
    LinkErrors,
    LinkLoss,
    LinkMicroburst,
    LinkPause,
    LinkPeak,
)
from syncline.watch.rules.past import Past
from syncline.watch.rules.rail_rules import RailDead, RailImbalance, Retransmissions
from syncline.watch.rules.rule import Context, WatchRule
from syncline.watch.rules.thresholds import Thresholds

RECENT_S = 60.0
EXPLAINED_S = 10.0
"""How long communication is remembered, counted back from the moment until which all ranks have reported."""
MAX_ALERTS = 500
RULES: tuple[WatchRule, ...] = (
    LinkDown(), RailDead(), LinkDegraded(), LinkLoss(), LinkErrors(), LinkPause(), LinkMicroburst(), LinkAverage(),
    LinkPeak(), RailImbalance(), Retransmissions(), LateRank(), SlowerThanPlanned(), SlowerThanBefore(),
    CollectiveTail(), NetworkShare(), StalledJob(),
)  # fmt: skip
"""In this order: rules about the job come last, so that they can name the link that explains them."""
_LINK_PASTS = ("rate", "peak", "bursts", "drops", "pauses")
_PASTS = (*_LINK_PASTS, "step", "collective", "tail", "late", "retransmitted")


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
        self._recent: deque[Frame] = deque()
        self._bursts: dict[str, deque[Burst]] = {}
        self._explained: list[tuple[float, float]] = []
        self._past = {name: Past() for name in _PASTS}
        self._has_spans = False
        self._table: LinkTable | None = None
        self._rail_of: dict[str, int] = {}
        self.problems: dict[str, str] = {}
        """Rules that failed at the last look, and how: one of them must not silence the others."""
        self.money = (self._prediction.num_gpus, self._prediction.usd_per_gpu_hour)

    def update(
        self,
        frame: Frame,
        *,
        bursts: Mapping[str, Sequence[Burst]] | None = None,
        busy: Sequence[tuple[float, float]] = (),
        tcp: tuple[float, float] = (0.0, 0.0),
        speed_Bps: Mapping[str, float] | None = None,
        is_crowded: bool = False,
    ) -> list[IncidentEvent]:
        """Take a frame (bursts, communication spans, TCP rates, whether cores are short); return what changed."""
        self._remember(frame, bursts or {}, busy)
        if frame.table is not self._table:
            self._table = frame.table
            self._rail_of = dict(zip(frame.table.names, frame.table.rail.tolist(), strict=True))
        context = replace(self._context(frame, tcp, speed_Bps or {}), is_crowded=is_crowded)
        events: list[IncidentEvent] = []
        for rule in self._rules:
            try:
                events += self._apply(rule, context)
                self.problems.pop(rule.id, None)
            except Exception as error:
                self.problems[rule.id] = f"failed: {type(error).__name__}: {error}"[:300]
        self._learn(frame, tcp, context)
        self._recent.append(frame)
        while self._recent and frame.mono_s - self._recent[0].mono_s > RECENT_S:
            self._recent.popleft()
        return events

    def alerts(self) -> tuple[Incident, ...]:
        """Return what is up now, the worst and oldest first, each with its cause."""
        up = tuple(sorted(self._alerts.values(), key=lambda f: (-f.severity, f.since_s or 0.0)))[:MAX_ALERTS]
        cause = causes(up, self._rail_of)
        return tuple(Incident.of(finding, cause=cause.get((finding.rule, finding.place))) for finding in up)

    def _apply(self, rule: WatchRule, context: Context) -> list[IncidentEvent]:
        found, hold, frame = rule.look(context), self._holds[rule.id], context.frame
        context.suspected[rule.id] = set(found.bad)
        events = []
        for place, change, since_s in hold.update(frame.mono_s, found.bad, found.between):
            if change is Change.RAISED:
                since_wall_s = frame.wall_s - (frame.mono_s - since_s)
                finding = replace(found.bad[place](), since_s=since_wall_s)
                self._alerts[rule.id, place] = finding
            else:
                finding = self._alerts.pop((rule.id, place))
            events.append(IncidentEvent(change, Incident.of(finding), frame.wall_s))
        for place in hold.active() & found.bad.keys():
            since = self._alerts[rule.id, place].since_s
            self._alerts[rule.id, place] = replace(found.bad[place](), since_s=since)
        context.active[rule.id] = hold.active()
        return events

    def _context(self, frame: Frame, tcp: tuple[float, float], speed_Bps: Mapping[str, float]) -> Context:
        return Context(
            self._thresholds, self._prediction, frame, self._recent, self._bursts, self._explained,
            self._has_spans, self._past, {rule: hold.active() for rule, hold in self._holds.items()}, {}, tcp,
            dict(speed_Bps), *self.money,
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

    def _learn(self, frame: Frame, tcp: tuple[float, float], context: Context) -> None:
        """Add this look to the past, but for what is in trouble: a fault must not become the standard."""
        names, load = frame.table.names, frame.load
        hurt = np.zeros(len(names), bool)
        for rule in ("link.down", "link.degraded", "link.loss", "link.microburst", "rail.dead"):
            hurt |= context.is_troubled(rule, names)
        sick = bool(context.active.get("rail.dead") or context.active.get("job.stalled"))
        hurt |= sick
        columns = {
            "rate": load.rate_Bps, "peak": _active(load.peak_Bps, frame.table.capacity_Bps),
            "bursts": load.bursts / max(frame.interval_s, 1e-9), "drops": load.drops_per_s, "pauses": load.pauses_per_s,
        }  # fmt: skip
        for key, column in columns.items():
            self._past[key].add(names, column, hurt)
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
        sent, again = tcp
        if sent > 100:
            self._past["retransmitted"].add(("host",), np.array([again / sent]))


def _active(peak_Bps: np.ndarray[Any, Any], capacity_Bps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return peaks where the link worked at all: idle looks say nothing of what it can reach."""
    floor = np.where(np.isnan(capacity_Bps), 0.0, 0.05 * capacity_Bps)
    return np.where(peak_Bps > floor, peak_Bps, np.nan)
