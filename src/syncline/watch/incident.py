"""An incident: a finding that is up now, the host it is about, its cause and its cost.

It is made once, by the rules or at the door for what others send; page, terminal, metrics, Alertmanager and history
show the same object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields, replace

from syncline.describe.plain import JsonObject
from syncline.finding import Finding
from syncline.watch.rules.hold import Change

IncidentKey = tuple[str, str, str]
"""Host, rule and place: what tells incidents apart."""


@dataclass(frozen=True)
class Incident(Finding):
    """A finding that is up; `host` is "" for the host that watches, `cause` is `rule|place` of what explains it."""

    host: str = ""
    cause: str = ""

    @classmethod
    def of(cls, finding: Finding, *, host: str = "", cause: tuple[str, str] | None = None) -> Incident:
        """Return a finding as an incident."""
        own = {column.name: getattr(finding, column.name) for column in fields(Finding)}
        return cls(**own, host=host, cause="|".join(cause or ()))

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
        """Return the incident with its beginning on a clock that is `shift_s` ahead."""
        return self if self.since_s is None else replace(self, since_s=self.since_s + shift_s)

    def to_json(self) -> dict[str, str | float | list[str] | None]:
        """Return the incident as the page and the history read it."""
        own = {"cost_usd_per_hour": self.cost_usd_per_hour, "cause": self.cause, "host": self.host}
        return {**super().to_json(), **own}


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
