"""A finding: one fact about a live system that someone should know, with what shows it and what to do about it.

Audit, bench, diagnosis and watch all return these, so that one report, one exit status and one alert path serve all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum, StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer


class Severity(IntEnum):
    """How bad it is; the values are the exit statuses of a Nagios check."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3  # could not be checked; the evidence says why

    @property
    def label(self) -> str:
        return self.name.lower()


def _of_label(value: object) -> object:
    return Severity.__members__.get(value.upper(), value) if isinstance(value, str) else value


Label = Annotated[
    Severity, BeforeValidator(_of_label), PlainSerializer(lambda severity: severity.label, return_type=str)
]
"""A severity whose JSON is its label."""


class Action(StrEnum):
    """What kind of work the fix is."""

    NONE = "none"
    CONFIGURE = "configure"  # a setting of the host or the job
    RESTART = "restart"  # a driver, a daemon or the host
    INSPECT = "inspect"  # a cable, an optic, a port
    REPLACE = "replace"  # hardware
    ESCALATE = "escalate"  # someone else's: the fabric's owner, the vendor, the cloud


SURE = 0.4
"""What is said with less confidence than this is said as something that may be."""


@dataclass(frozen=True)
class Place:
    """A host and a part of it: a device, a port, a rank; either may be unknown."""

    host: str = ""
    part: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.host, self.part)))


@dataclass(frozen=True)
class Finding:
    """One fact: the rule that says so, where, what was seen, what was expected, and the next step.

    `rule` is a stable dotted id ("net.mtu.mismatch"). `place` names host, device, link or rank for people, `places` the
    first of them apart. `evidence` holds what was read, as read. `since_s` is a Unix time.
    """

    rule: str
    severity: Label
    place: str
    observed: str
    expected: str = ""
    evidence: tuple[str, ...] = ()
    meaning: str = ""
    fix: str = ""
    reference: str = ""
    action: Action = Action.NONE
    confidence: float = 1.0
    cost_usd_per_day: float | None = None
    since_s: float | None = None
    places: tuple[Place, ...] = ()

    @property
    def host(self) -> str:
        """The first host that is named, or nothing."""
        return next((place.host for place in self.places if place.host), "")

    @property
    def is_possible(self) -> bool:
        """Say whether this is only one of several things that may be the matter."""
        return self.confidence < SURE

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return asdict(self) | {"severity": self.severity.label}


_BADNESS = {Severity.OK: 0, Severity.UNKNOWN: 1, Severity.WARNING: 2, Severity.CRITICAL: 3}


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the severity that stands for all of them: critical, then warning, then unknown, then ok."""
    return max((finding.severity for finding in findings), key=_BADNESS.__getitem__, default=Severity.OK)
