"""An incident: a cause with its effects below it, what shows it, what it costs, and from when to when it was seen.

It is made once, by the rules or at the door for what others send; page, terminal, metrics, Alertmanager, notifications
and history show the same object. Effects end with their cause, and what opens again within a minute is the same
incident.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from syncline.describe.plain import JsonObject
from syncline.finding import Finding, Severity
from syncline.watch.rules.cause import ROOTS, causes, is_of_job
from syncline.watch.rules.hold import Change

IncidentKey = tuple[str, str, str]
"""Host, rule and place: what tells incidents apart."""
SAME_S = 60.0
"""What opens again within this time is the same incident."""
ECHO_S = 15.0
"""How long an effect may be measured after its cause has ended: steps and averages look back."""
MAX_INCIDENTS = 500
_Place = tuple[str, str]


@dataclass(frozen=True)
class Incident(Finding):
    """A finding that is up with its effects; `host` is "" for the host that watches.

    `since_s` is when it was first seen, `last_s` when it was last seen bad, `times` how often it was opened.
    """

    host: str = ""
    last_s: float | None = None
    times: int = 1
    effects: tuple[Incident, ...] = ()

    @classmethod
    def of(cls, finding: Finding, *, host: str = "", last_s: float | None = None) -> Incident:
        """Return a finding as an incident."""
        own = {column.name: getattr(finding, column.name) for column in fields(Finding)}
        return cls(**own, host=host, last_s=last_s)

    @property
    def key(self) -> IncidentKey:
        return (self.host, self.rule, self.place)

    @property
    def cost_usd_per_hour(self) -> float | None:
        return None if self.cost_usd_per_day is None else self.cost_usd_per_day / 24

    @property
    def summary(self) -> str:
        """What was observed and what was expected, in one phrase."""
        return f"{self.observed}, expected {self.expected}" if self.expected else self.observed

    def moved(self, shift_s: float) -> Incident:
        """Return the incident with its moments on a clock that is `shift_s` ahead."""
        since_s, last_s = (None if at_s is None else at_s + shift_s for at_s in (self.since_s, self.last_s))
        return replace(self, since_s=since_s, last_s=last_s, effects=tuple(e.moved(shift_s) for e in self.effects))

    def above(self, effects: Iterable[Incident]) -> Incident:
        """Return the incident with these effects below it; it costs what the dearest of them costs."""
        every = (*self.effects, *effects)
        costs = [i.cost_usd_per_day for i in (self, *every) if i.cost_usd_per_day is not None]
        return replace(self, effects=every, cost_usd_per_day=max(costs, default=None))

    def to_json(self) -> JsonObject:
        """Return the incident as the page and the history read it."""
        own: JsonObject = {
            "cost_usd_per_hour": self.cost_usd_per_hour, "host": self.host, "last_s": self.last_s, "times": self.times,
            "effects": [effect.to_json() for effect in self.effects],
        }  # fmt: skip
        return {**super().to_json(), **own}


def hung(incidents: Sequence[Incident], rail_of: Mapping[str, int]) -> tuple[Incident, ...]:
    """Return the causes with their effects below them, the worst and dearest first."""
    cause_of = causes(incidents, rail_of)
    effects: dict[_Place, list[Incident]] = {}
    roots = []
    for incident in incidents:
        cause = cause_of.get((incident.rule, incident.place))
        if cause is None:
            roots.append(incident)
        else:
            effects.setdefault(cause, []).append(incident)
    whole = [root.above(effects.pop((root.rule, root.place), ())) for root in roots]
    worst = {Severity.CRITICAL: 0, Severity.WARNING: 1}
    whole.sort(key=lambda i: (worst.get(i.severity, 2), -(i.cost_usd_per_day or 0.0), i.since_s or 0.0))
    return tuple(whole[:MAX_INCIDENTS])


class IncidentBook:
    """Makes incidents of what the rules have up: remembers who caused whom, and what was open a moment ago."""

    def __init__(self) -> None:
        self.open: tuple[Incident, ...] = ()
        self._known: dict[_Place, tuple[float, float, int]] = {}
        """First and last wall time of every incident of the last minute, and how often it was opened."""
        self._under: dict[_Place, _Place] = {}

    def update(self, up: Sequence[Incident], rail_of: Mapping[str, int], wall_s: float) -> tuple[Incident, ...]:
        """Take all that is up now; return the incidents."""
        before = {(i.rule, i.place) for i in self.open}
        self._known = {key: known for key, known in self._known.items() if wall_s - known[1] <= SAME_S}
        there = {(i.rule, i.place) for i in up}
        # What is still measured of a cause that has ended is not an incident of its own.
        shown = [i for i in up if not self._echoes((i.rule, i.place), there, wall_s)]
        found = []
        for incident in hung(shown, rail_of):
            key = (incident.rule, incident.place)
            first_s, _, times = self._known.get(key, (incident.since_s or wall_s, wall_s, 0))
            times += key not in before
            self._known[key] = (first_s, wall_s, times)
            found.append(replace(incident, since_s=first_s, times=times))
            self._under.update({(e.rule, e.place): key for e in incident.effects})
        self._under = {effect: cause for effect, cause in self._under.items() if effect in there}
        self.open = tuple(found)
        return self.open

    def _echoes(self, effect: _Place, there: set[_Place], wall_s: float) -> bool:
        """Tell whether the cause of an effect has just ended."""
        cause = self._under.get(effect)
        if cause is None and is_of_job(effect[0]):  # noticed only after the end of what it comes of
            return effect not in self._known and any(
                rule in ROOTS and (rule, place) not in there and wall_s - last_s <= ECHO_S
                for (rule, place), (_, last_s, _) in self._known.items()
            )
        if cause is None or cause in there or cause not in self._known:
            return False
        return wall_s - self._known[cause][1] <= ECHO_S


@dataclass(frozen=True)
class IncidentEvent:
    """An incident was raised or cleared."""

    change: Change
    incident: Incident
    wall_s: float

    def to_json(self) -> JsonObject:
        """Return the event as the history and the page keep it."""
        return {"event": self.change.value, "wall_s": self.wall_s, "alert": self.incident.to_json()}


@dataclass
class IncidentLog:
    """The incidents that are up; `update` returns what was raised and cleared since the last call."""

    up: dict[IncidentKey, Incident] = field(default_factory=dict)

    def update(
        self, incidents: Iterable[Incident], wall_s: float, silent_hosts: Collection[str] = ()
    ) -> list[IncidentEvent]:
        """Take what is up now; what was up on a host that fell silent stays up."""
        now = {incident.key: incident for incident in incidents}
        before, self.up = self.up, now | {k: old for k, old in self.up.items() if k not in now and k[0] in silent_hosts}
        raised = [IncidentEvent(Change.RAISED, new, wall_s) for key, new in now.items() if key not in before]
        cleared = [IncidentEvent(Change.CLEARED, old, wall_s) for key, old in before.items() if key not in self.up]
        return raised + cleared
