"""The course of a choice: every contender has its turns, the fastest is held, and tried again when steps change.

It sees only numbers that every rank has (all of them gathered, see `auto.py`), so every rank's pilot is in one state.
Nothing here knows torch: the length of steps comes in, what to send the next step in goes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from syncline.codec.names import PLAIN
from syncline.describe.plain import JsonObject
from syncline.describe.units import show_time

CONTENDERS = (PLAIN, "bf16", "int8")
"""In the order of what they lose: int8 usually 1 % of a block's length and at most 6 % (`docs/method/auto.md`)."""
WARM_UP = 2
"""Steps before the first turn: DDP cuts its buckets anew after the first."""
TURN_STEPS = 3
"""Steps of one turn, of which the first finds no buffers and does not count."""
ROUNDS = 4
"""Turns of each contender."""
HOPELESS = 2.0
"""Who was this much slower than the fastest in the first round has no other turn."""
WORTH = 0.9
"""A contender that loses more must make steps this much shorter, in every round: what differs once may be noise."""
CHECK_STEPS, CHECKED = 10, 5
"""While a choice is held ranks compare how long steps take, so often, and by the median of so many."""
SLOWER, FASTER = 1.3, 0.75
"""Steps that take so much longer, or shorter, at two checks running are a reason to try again."""
FIRST_PATIENCE, LAST_PATIENCE = 20, 640
"""Steps between one trial and the next: twice as many each time that it ends as it began."""


@dataclass
class Pilot:
    """Which codec the next step uses, and what to do with how long steps took."""

    codec: str = PLAIN
    phase: str = "try"
    trials: dict[str, list[float]] = field(default_factory=dict)
    """The shortest step of each turn."""
    notes: list[str] = field(default_factory=list)
    num_trials: int = 1
    _turns: list[str] = field(default_factory=list)
    _since: int = -WARM_UP
    _held: int = 0
    _patience: int = FIRST_PATIENCE
    _usual_s: float = 0.0
    _changed: int = 0
    _before: str = ""

    def __post_init__(self) -> None:
        self._begin()

    def resume(self, codec: str) -> None:
        """Give the first turn to what was held when the state was saved."""
        self._turns = [codec, *(name for name in CONTENDERS if name != codec)]
        self.codec = codec

    def due(self) -> bool:
        """Count a step and tell whether ranks must gather how long the last ones took: the same on every rank."""
        self._since += 1
        if self.phase == "try":
            return self._since >= TURN_STEPS
        self._held += 1
        if self._since < CHECK_STEPS:
            return False
        self._since = 0
        return True

    @property
    def num_scored(self) -> int:
        """How many of the last steps count."""
        return TURN_STEPS - 1 if self.phase == "try" else CHECKED

    @property
    def best_s(self) -> dict[str, float]:
        """The shortest step of each contender that has had a turn."""
        return {name: min(self.trials[name]) for name in CONTENDERS if name in self.trials}

    def tried(self, step_s: float) -> None:
        """Take the shortest step of a turn; after the last one hold the fastest."""
        self.trials.setdefault(self._turns.pop(0), []).append(step_s)
        self._since = 0
        if not self._turns:
            self._turns = self._next_round()
        if self._turns:
            self.codec = self._turns[0]
            return
        self.codec, self.phase, self._held, self._usual_s, self._changed = self._winner(), "hold", 0, 0.0, 0
        self._patience = min(2 * self._patience, LAST_PATIENCE) if self.codec == self._before else FIRST_PATIENCE

    def checked(self, step_s: float) -> None:
        """Take the usual length of the last steps; where it has become another than at first, try again."""
        self._usual_s = self._usual_s or step_s
        ratio = step_s / self._usual_s
        change = int(ratio > SLOWER) - int(ratio < FASTER)
        is_lasting, self._changed = change != 0 and change == self._changed, change
        if not is_lasting or self._held < self._patience:
            return
        self.notes = [f"tried again as steps went from {show_time(self._usual_s)} to {show_time(step_s)}"]
        self.num_trials += 1
        self._begin()

    def why(self) -> str:
        """Return on one line what is used, and the one record that says so: the shortest step of each contender."""
        tried = ", ".join(f"{show_time(took)} in {name}" for name, took in self.best_s.items())
        if self.phase == "try":
            return f"{self.codec}: being tried; so far {tried or 'nothing'}"
        others = [took for name, took in self.best_s.items() if name != self.codec]
        own = self.best_s[self.codec]
        if self.codec == PLAIN:
            reason = f"no codec makes it {1 - WORTH:.0%} shorter"
        else:
            reason = f"{1 - own / self.best_s[PLAIN]:.0%} shorter than plain" if PLAIN in self.trials else "the fastest"
        return "; ".join([f"{self.codec}: steps took {tried}", reason if others else "alone", *self.notes])

    def to_json(self) -> JsonObject:
        """Return the course for a file: what was tried and chosen."""
        return {
            "codec": self.codec, "phase": self.phase, "why": self.why(), "tried_s": self.best_s,
            "notes": list(self.notes),
        }  # fmt: skip

    def _begin(self) -> None:
        """Begin to try all, one after the other."""
        self._before = self.codec if self.phase == "hold" else ""
        self.trials, self._turns = {}, list(CONTENDERS)
        self.codec, self.phase, self._since = CONTENDERS[0], "try", min(self._since, 0)

    def _next_round(self) -> list[str]:
        """Return whose turn it is again: of those who are not hopeless."""
        best_s = self.best_s
        left = [name for name, took in best_s.items() if took <= HOPELESS * min(best_s.values())]
        return left if len(left) > 1 and max(map(len, self.trials.values())) < ROUNDS else []

    def _winner(self) -> str:
        """Return who loses least among those that no other makes shorter by what it would have to, in every round."""
        held = next(iter(self.best_s))
        for name in self.best_s:
            rounds = zip(self.trials[name], self.trials[held], strict=False)
            held = name if all(took < WORTH * other for took, other in rounds) else held
        return held


def typical_s(times: Sequence[Sequence[float]]) -> float:
    """Return the usual step: of each rank's steps the median, of the ranks the slowest."""
    return float(max(median(row) for row in times))


def shortest_s(times: Sequence[Sequence[float]]) -> float:
    """Return the shortest step, each as long as its slowest rank: others on a machine only ever slow a step."""
    return float(min((max(step) for step in zip(*times, strict=True)), default=math.inf))
