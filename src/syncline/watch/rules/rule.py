"""What a rule is: it looks at a context and says where it is bad, where neither bad nor good, and how to tell of it."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from syncline.finding import Action, Finding, Severity
from syncline.watch.burst import Burst
from syncline.watch.frame import Frame
from syncline.watch.prediction import Prediction
from syncline.watch.rules.past import Past
from syncline.watch.rules.reach import LinkReach
from syncline.watch.rules.thresholds import Thresholds

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
LINK_TROUBLES = ("link.down", "link.degraded", "link.loss")
"""Rules about links for which steps take longer."""


class RuleVerdict(NamedTuple):
    """Where a rule is bad now (with a way to tell of it), and where it is neither bad nor good."""

    bad: Mapping[str, Callable[[], Finding]]
    between: Mapping[str, Callable[[], Finding]]


NONE = RuleVerdict({}, {})
"""Nothing is bad."""


class WatchRule:
    """One rule: its words and how long it holds, as class attributes. Stateless but for what the context keeps."""

    id: ClassVar[str]
    severity: ClassVar[Severity] = Severity.WARNING
    action: ClassVar[Action] = Action.INSPECT
    meaning: ClassVar[str] = ""
    fix: ClassVar[str] = ""
    confidence: ClassVar[float] = 1.0
    raise_after_s: ClassVar[float | None] = None
    """None: as the thresholds say."""
    clear_after_s: ClassVar[float | None] = None

    @abstractmethod
    def look(self, context: Context) -> RuleVerdict:
        """Return where the rule is bad now, and where it is neither bad nor good."""

    def finding(
        self, context: Context, place: str, observed: str, expected: str, *evidence: str,
        meaning: str = "", fix: str = "", lost_share: float | None = None,
    ) -> Finding:  # fmt: skip
        """Return what to tell of a place, with what the share of its time that the job loses now costs."""
        lost = context.lost_share() if lost_share is None else lost_share
        return Finding(
            self.id, self.severity, place, observed, expected, evidence, meaning or self.meaning, fix or self.fix,
            action=self.action, confidence=self.confidence, cost_usd_per_day=context.usd_per_day(lost),
        )  # fmt: skip


@dataclass
class Context:
    """What rules see: the frame, the seconds before it, the past, what was expected, and what trouble costs."""

    thresholds: Thresholds
    prediction: Prediction
    frame: Frame
    recent: deque[Frame] = field(default_factory=deque)
    bursts: dict[str, deque[Burst]] = field(default_factory=dict)
    explained: list[tuple[float, float]] = field(default_factory=list)
    """When the job communicated: spans apart and in order."""
    has_spans: bool = False
    past: dict[str, Past] = field(default_factory=dict)
    reach: LinkReach = field(default_factory=LinkReach)
    active: dict[str, set[str]] = field(default_factory=dict)
    suspected: dict[str, set[str]] = field(default_factory=dict)
    """Where rules that looked already are bad in this frame, whether for long enough or not."""
    tcp: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 4)))
    """A row for each of the last looks: when, how long it was, TCP segments sent and lost a second."""
    speed_Bps: dict[str, float] = field(default_factory=dict)
    is_crowded: bool = False
    """Whether the host has more tasks than cores: then slow steps are no evidence against the network by themselves."""
    awake_s: float = float("-inf")
    """When looks came again after none had come for some: nobody heard the job meanwhile."""
    _kept: dict[tuple[str, str, float], Floats] = field(default_factory=dict)
    """Means and maxima already made for this frame: several rules ask for the same."""
    _windows: dict[float, list[Frame]] = field(default_factory=dict)

    def seen_s(self) -> float:
        """Return how long has been seen before this frame."""
        return self.frame.mono_s - self.recent[0].mono_s if self.recent else 0.0

    def window(self, seconds: float) -> list[Frame]:
        """Return the frames of the last seconds that belong to the present table, this one included, newest first."""
        if seconds not in self._windows:
            since, found = self.frame.mono_s - seconds, [self.frame]
            for frame in reversed(self.recent):
                if frame.mono_s <= since or frame.table is not self.frame.table:
                    break
                found.append(frame)
            self._windows[seconds] = found
        return self._windows[seconds]

    def mean(self, column: str, seconds: float) -> Floats:
        """Return a column's mean over the last seconds, weighted by time; NaN where nothing is known."""

        def weighted(values: Floats) -> Floats:
            weights = np.array([f.interval_s for f in self.window(seconds)])[:, None] * ~np.isnan(values)
            total = weights.sum(axis=0)
            summed = (np.nan_to_num(values) * weights).sum(axis=0)
            made: Floats = np.divide(summed, total, out=np.full(values.shape[1], np.nan), where=total > 0)
            return made

        return self._over("mean", column, seconds, weighted)

    def highest(self, column: str, seconds: float) -> Floats:
        """Return a column's maximum over the last seconds; NaN where nothing is known."""
        return self._over("highest", column, seconds, np.fmax.reduce)

    def share_of_looks(self, column: str, seconds: float) -> Floats:
        """Return in which share of the looks of the last seconds a column was above zero."""
        return self._over("share", column, seconds, lambda values: (values > 0).mean(axis=0))

    def _over(self, how: str, column: str, seconds: float, make: Callable[[Floats], Floats]) -> Floats:
        key = (how, column, seconds)
        if key not in self._kept:
            self._kept[key] = make(np.array([getattr(f.load, column) for f in self.window(seconds)]))
        return self._kept[key]

    def is_troubled(self, rule: str, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Tell for each name whether the rule's alert is up there."""
        up = self.active.get(rule, set())
        return np.array([name in up for name in names], bool) if up else np.zeros(len(names), bool)

    def is_any_bad(self, *rules: str) -> bool:
        """Tell whether one of these rules is up anywhere, or was bad in this frame already."""
        return any(self.active.get(rule) or self.suspected.get(rule) for rule in rules)

    def usd_per_day(self, lost_share: float) -> float | None:
        """Return what a lost share of the job's time costs in a day; None where the price of a GPU is unknown."""
        whole = self.prediction.usd_per_day
        return None if whole is None else whole * max(0.0, min(1.0, lost_share))

    def keeps_plan(self) -> bool:
        """Tell whether there is a plan of the step and the last steps took no longer."""
        steps, planned_s = self.frame.job.steps[-5:], self.prediction.step_s
        return bool(steps and planned_s) and median([s.step_s for s in steps]) <= (planned_s or 0.0)

    def lost_share(self) -> float:
        """Return the share of step time lost against the plan, or against the job's own past; 0 where not known."""
        steps = self.frame.job.steps[-5:]
        if not steps:
            return 0.0
        now = median([s.step_s for s in steps])
        past = self.past["step"].quantile(0.5) if "step" in self.past else np.empty(0)
        usual = float(past[0]) if len(past) and not np.isnan(past[0]) else None
        expected = usual if usual is not None else self.prediction.step_s
        return max(0.0, 1 - expected / now) if expected and now > 0 else 0.0


def verdict(context: Context, bad: Mask, between: Mask, tell: Callable[[int], Finding]) -> RuleVerdict:
    """Return masks over the table of links as a verdict."""
    names = context.frame.table.names
    return RuleVerdict(
        {names[i]: partial(tell, int(i)) for i in np.flatnonzero(bad)},
        {names[i]: partial(tell, int(i)) for i in np.flatnonzero(between & ~bad)},
    )
