"""The course of a choice: measure, predict, try against plain, hold, and decide anew when the network changes.

It sees only numbers that every rank has (all of them gathered, see `auto.py`), so every rank's pilot is in one state.
Nothing here knows torch: what is measured comes in, what to send the next step in goes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from syncline.codec.names import PLAIN
from syncline.describe.plain import JsonObject
from syncline.describe.units import show_rate, show_time
from syncline.program.choice import CLASSES, Choice, ChoiceBasis, decide

MEASURE_STEPS = 4
"""Steps before the first decision; the first of them warms up and is followed by DDP's rebuild of buckets."""
TRY_STEPS = 4
"""Steps of each contender, of which the first warms up."""
CLOSE = 1.15
"""The second best is tried too where its prediction is this close."""
BEATS = 0.97
"""A contender must be this much faster than the model's choice to replace it."""
WORTH = 0.95
"""A codec must be this much faster than plain to be held: steps vary by as much, and plain loses nothing."""
TOO_NEAR = 0.88
"""Where the best is not this much faster than plain both are tried once more."""
HOPELESS = 0.5
"""Plain is not tried where the wire alone needs so much longer for it: the measured step over that time."""
CHECK_STEPS, CHECKED = 5, 3
"""While a codec is held ranks compare how long steps take, so often, and by the median of so many."""
PLAIN_CHECK_STEPS = 50
"""The same while plain is held because the model chose it: there only a network that has become slower matters."""
SLOWER, FASTER = 1.3, 0.75
FAR_SLOWER = 2.0
"""Steps that take so much longer are looked into after `FIRST_PATIENCE` steps at the latest."""
RATE_CHANGED = 1.3
LOOK_STEPS = 200
"""The link is looked at so often even if steps take as long as ever: it may have become faster."""
LOOK_SHARE = 0.01
"""Looks that nothing calls for may take so much of the time: where steps are short they are rarer."""
FIRST_PATIENCE = 10
"""Steps before another look after one that found nothing; twice as many each time."""
STRICTNESS = tuple(CLASSES)
LOWER = {"aggressive": "safe", "safe": "exact", "exact": "exact"}


@dataclass
class Pilot:
    """Which codec the next step uses, and what to do with what was measured; `accuracy` only ever gets stricter."""

    accuracy: str
    codec: str
    phase: str = "measure"
    measured: ChoiceBasis | None = None
    choice: Choice | None = None
    trials: dict[str, float] = field(default_factory=dict)
    untried: dict[str, str] = field(default_factory=dict)
    """Contenders of the last trial that were left out, and why."""
    notes: list[str] = field(default_factory=list)
    num_decisions: int = 0
    allowed: str = ""
    _since: int = 0
    _held: int = 0
    _baseline_s: float = 0.0
    _is_baseline_best: bool = False
    """It is the best step of a trial; what is usual, the first check will say."""
    _checked_s: float = 0.0
    _patience: int = 0
    _look_s: float = 0.0
    _changed: bool = False
    _tried_twice: bool = False
    _contenders: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.allowed = self.allowed or self.accuracy

    def due(self) -> bool:
        """Count a step and tell whether ranks must gather their numbers now: the same on every rank."""
        self._since += 1
        self._held += self.phase == "hold"
        if self.phase == "measure":
            return self._since >= MEASURE_STEPS
        if self.phase == "try":
            return self._since >= self._try_steps()
        if self._since < (PLAIN_CHECK_STEPS if self.is_content else CHECK_STEPS):
            return False
        self._since = 0  # ranks go on while their numbers are under way
        return True

    @property
    def is_content(self) -> bool:
        """Whether plain is held because nothing should be faster, not because a codec disappointed."""
        return self.codec == PLAIN and self.choice is not None and self.choice.codec == PLAIN

    @property
    def num_scored(self) -> int:
        """How many of the last steps count."""
        return max(1, self._since - 1) if self.phase == "try" else CHECKED

    @property
    def wants_work(self) -> bool:
        """Whether the work of steps, and not only their length, is asked for."""
        return self.phase == "measure"

    def decide(self, measured: ChoiceBasis) -> None:
        """Choose from what was measured, and begin to try the choice against others."""
        current = self.codec if self.choice is not None else ""
        self.measured = measured
        self.choice = decide(measured, self.accuracy, current)
        self.num_decisions += 1
        if self.choice.codec == PLAIN:  # it costs nothing, loses nothing, and no trial of a few steps would tell more
            self._try([])
            self._hold_plain()
        else:
            self._try(self._fielded(self.choice))

    def tried(self, step_s: float) -> None:
        """Take a contender's measured step; after the last one hold the best."""
        assert self.choice is not None
        name = self._contenders.pop(0)
        self.trials[name] = min(step_s, self.trials.get(name, math.inf))
        self._since = 0
        self._drop_hopeless()
        if not self._contenders and not self._tried_twice:
            self._tried_twice = True
            self._contenders = self._too_near()
        if self._contenders:
            self.codec = self._contenders[0]
        else:
            self._hold()

    def checked(self, step_s: float) -> bool:
        """Take the usual length of the last steps; return whether the link must be looked at."""
        ratio = step_s / max(self._baseline_s, 1e-9)
        if self._is_baseline_best and ratio < FAR_SLOWER:
            self._baseline_s, ratio = step_s, 1.0
        self._is_baseline_best = False
        if self.is_content and ratio < FASTER:
            self._baseline_s, ratio = step_s, 1.0  # plain gains as much by a faster link as any codec
        self._changed = not FASTER <= ratio <= SLOWER
        self._checked_s = step_s
        if ratio > FAR_SLOWER:
            self._patience = min(self._patience, FIRST_PATIENCE)
        usual = math.inf if self.is_content else max(LOOK_STEPS, self._look_s / LOOK_SHARE / max(step_s, 1e-9))
        return self._held >= (self._patience if self._changed else usual)

    def looked(self, rate_Bps: float, look_s: float = 0.0) -> None:
        """Take the link's rate as it is now: decide anew if it has changed, else try plain again."""
        assert self.measured is not None
        self._held, self._look_s = 0, look_s
        self._baseline_s = self._checked_s
        # Steps that differ for other reasons, or a rate that changes nothing, must not cost a look every time.
        self._patience = min(LOOK_STEPS, max(FIRST_PATIENCE, 2 * self._patience))
        ratio = rate_Bps / self.measured.rate_Bps
        if 1 / RATE_CHANGED <= ratio <= RATE_CHANGED:
            self._try_again()
            return
        before = show_rate(self.measured.rate_Bps)
        measured = replace(self.measured, rate_Bps=rate_Bps)
        best = decide(measured, self.accuracy, self.codec)
        if best.codec == self.codec:
            self.measured, self.choice = measured, best
            return
        self.notes.append(f"the network went from {before} to {show_rate(rate_Bps)}")
        self._patience = FIRST_PATIENCE
        self.decide(measured)

    @property
    def dense_extra(self) -> float:
        """How much longer a dense step takes than one as held, in such steps; zero where none is asked for."""
        if self.choice is None or self.codec in CLASSES["exact"]:
            return 0.0
        plain_s = self.trials.get(PLAIN) or self.choice.table[PLAIN]
        return max(plain_s / max(self._baseline_s, 1e-9) - 1, 0.01)

    def drifted(self, what: str) -> None:
        """Allow less, because of what a codec did to training; where nothing is lost the codec is not to blame."""
        if self.codec in CLASSES["exact"]:
            return
        lower = LOWER[self.accuracy]
        while self.codec in CLASSES[lower]:
            lower = LOWER[lower]
        self.notes.append(f"{what}: accuracy is now {lower}, not {self.accuracy}")
        self.accuracy = lower
        if self.measured is not None:
            self.choice = None
            self.decide(self.measured)

    def why(self) -> str:
        """Return on one line what is used and why: predicted beside measured."""
        if self.choice is None or self.measured is None:
            return f"{self.codec}: still measuring"
        parts = [self.choice.why]
        tried = [f"{name} {show_time(took)}" for name, took in self.trials.items()]
        tried += [f"{name} not tried ({reason})" for name, reason in self.untried.items()]
        if tried:
            parts.append(f"measured: {', '.join(tried)}")
        if self.phase == "hold" and self.codec != self.choice.codec:
            parts.append(self._instead())
        return "; ".join([*parts, *self.notes[-2:]])

    def _instead(self) -> str:
        """Return why what is used is not what was predicted to be best."""
        if self.codec != PLAIN:
            return f"uses {self.codec}, which is faster"
        best = min(took for name, took in self.trials.items() if name != PLAIN)
        is_faster = self.trials[PLAIN] <= best
        return "fell back to plain DDP, " + (
            "which is faster" if is_faster else f"which is as fast within {1 - WORTH:.0%}"
        )

    def to_json(self) -> JsonObject:
        """Return the whole course for a file: what was measured, predicted, tried and chosen."""
        return {
            "codec": self.codec,
            "accuracy": self.accuracy,
            "allowed": self.allowed,
            "phase": self.phase,
            "why": self.why(),
            "predicted_s": {} if self.choice is None else self.choice.table,
            "tried_s": dict(self.trials),
            "notes": list(self.notes),
            "measured": None if self.measured is None else self.measured.to_json(),
        }

    def _try(self, contenders: list[str]) -> None:
        """Begin to try these, one after the other."""
        self._contenders = contenders
        self.codec, self.phase = (contenders or [PLAIN])[0], "try"
        self.trials, self.untried, self._since, self._tried_twice = {}, {}, 0, False

    def _try_again(self) -> None:
        """Try what is held, or was chosen, against plain once more: steps have changed and the link is not why."""
        assert self.choice is not None
        other = self.choice.codec if self.codec == PLAIN else self.codec
        if self._changed and other != PLAIN:
            self._try([other, PLAIN])

    def _try_steps(self) -> int:
        """Return how many steps the contender gets: fewer where each is long and the answer is clear."""
        assert self.choice is not None
        predicted = self.choice.table.get(self.codec, 0.0)
        return 2 if predicted > 2 * self.choice.predicted_s else TRY_STEPS

    def _fielded(self, choice: Choice) -> list[str]:
        """Return who is tried: the choice, the next best where it is close, and plain; never what is not allowed."""
        others = sorted((took, codec) for codec, took in choice.table.items() if codec not in (choice.codec, PLAIN))
        close = [codec for took, codec in others if took <= CLOSE * choice.predicted_s][:1]
        return [*dict.fromkeys([choice.codec, *close, PLAIN])]

    def _drop_hopeless(self) -> None:
        """Leave plain out where the wire alone needs at least twice the step that was measured: it cannot be faster."""
        assert self.measured is not None
        if self._contenders and self._contenders[0] == PLAIN:
            wire_s = self.measured.sent_s(PLAIN)
            if min(self.trials.values()) < HOPELESS * wire_s:
                self.untried[self._contenders.pop(0)] = f"its bytes alone take {show_time(wire_s)}"

    def _too_near(self) -> list[str]:
        """Return plain and the best of the others, where the steps measured so far cannot tell them apart."""
        coded = {name: took for name, took in self.trials.items() if name != PLAIN}
        best = min(coded, key=lambda name: coded[name], default="")
        plain_s = self.trials.get(PLAIN, 0.0)
        near = best and TOO_NEAR * plain_s <= coded[best] <= plain_s / TOO_NEAR
        return [best, PLAIN] if near else []

    def _hold_plain(self) -> None:
        """Hold plain without a trial: how long its steps take, the first check will say."""
        self.codec, self.phase, self._since, self._held = PLAIN, "hold", 0, 0
        self._baseline_s, self._is_baseline_best = math.inf, True

    def _hold(self) -> None:
        """Hold the fastest: the model's choice unless it is beaten clearly, plain unless that is."""
        assert self.choice is not None
        trials, wanted = self.trials, self.choice.codec
        best = min(trials, key=lambda name: trials[name])
        if trials[best] >= WORTH * trials.get(PLAIN, math.inf):
            best = PLAIN
        elif trials[best] >= BEATS * trials.get(wanted, math.inf):
            best = wanted
        self.codec = best
        self._baseline_s, self._is_baseline_best = trials[best], True
        self.phase, self._since, self._held = "hold", 0, 0


def typical_s(times: Sequence[Sequence[float]]) -> float:
    """Return the usual step: of each rank's steps the median, of the ranks the slowest."""
    return float(max(median(row) for row in times))


def best_s(times: Sequence[Sequence[float]]) -> float:
    """Return the shortest step, each as long as its slowest rank: others on a machine only ever slow a step."""
    return float(min(max(step) for step in zip(*times, strict=True)))
