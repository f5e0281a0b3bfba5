"""Hysteresis in time and level: an alert is raised when bad for long enough, cleared when good for long enough.

Between two thresholds nothing changes. Whatever the input does, raising and clearing take turns, and each needs its
own unbroken time, so there are at most `time / (raise_after_s + clear_after_s) + 1` alerts of one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class Change(Enum):
    """What happened to an alert."""

    RAISED = "raised"
    CLEARED = "cleared"


@dataclass
class _State:
    bad_since_s: float | None = None
    good_since_s: float | None = None
    raised: bool = False


class Hold:
    """The state of one rule at every place where it was ever bad."""

    def __init__(self, raise_after_s: float, clear_after_s: float) -> None:
        self.raise_after_s = raise_after_s
        self.clear_after_s = clear_after_s
        self._states: dict[str, _State] = {}

    def update(
        self, now_s: float, bad: Iterable[str], between: Iterable[str] = ()
    ) -> Iterator[tuple[str, Change, float]]:
        """Take the places that are bad, and those between; the rest is good. Gives (place, change, since)."""
        bad_set = set(bad)
        neither = set(between) - bad_set
        for place in bad_set - self._states.keys():
            self._states[place] = _State()
        for place, state in list(self._states.items()):
            change = self._step(state, now_s, place in bad_set, place not in neither)
            if change is not None:
                yield place, change, state.bad_since_s if state.bad_since_s is not None else now_s
            if not state.raised and place not in bad_set:
                del self._states[place]

    def active(self) -> set[str]:
        """Return the places with an alert."""
        return {place for place, state in self._states.items() if state.raised}

    def _step(self, state: _State, now_s: float, is_bad: bool, decided: bool) -> Change | None:
        if not state.raised:
            if not is_bad:
                state.bad_since_s = None
                return None
            state.bad_since_s = now_s if state.bad_since_s is None else state.bad_since_s
            if now_s - state.bad_since_s < self.raise_after_s:
                return None
            state.raised, state.good_since_s = True, None
            return Change.RAISED
        if is_bad or not decided:
            state.good_since_s = None
            return None
        state.good_since_s = now_s if state.good_since_s is None else state.good_since_s
        if now_s - state.good_since_s < self.clear_after_s:
            return None
        state.raised = False
        return Change.CLEARED
