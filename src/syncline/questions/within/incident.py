"""What happened in the last day that a watch kept, and what was one of its incidents?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.model import Handle, handle
from syncline.errors import WatchError
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.watch.history import LinkHistory
from syncline.watch.recorded import IncidentRecord, Recorded


@dataclass(frozen=True)
class IncidentEffect:
    """What an incident did elsewhere."""

    rule: str
    place: str
    observed: str
    expected: str


@dataclass(frozen=True)
class PastIncident:
    """One incident: where, from when to when (None: still open), what was seen, what it led to and what it cost."""

    number: int
    rule: str
    severity: str
    place: str
    host: str
    start_s: float
    end_s: float | None
    num_opened: int
    observed: str
    expected: str
    evidence: tuple[str, ...]
    effects: tuple[IncidentEffect, ...]
    meaning: str
    fix: str
    cost_usd: float | None


@dataclass(frozen=True)
class IncidentReport(Answer):
    """All incidents of the day, and one of them to tell of."""

    schema_name: ClassVar[str] = "watch-report"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write the incident as a page to attach to a ticket.")

    history: str
    start_s: float
    end_s: float
    incidents: tuple[PastIncident, ...]
    told: PastIncident | None
    """The incident asked for: the dearest of the worst where none was."""
    series: Handle[LinkHistory | None] = handle()


@question("syncline watch report watch.db --html incident.html", "syncline watch report watch.db --number 3")
def watch_report(
    history: Annotated[Path, Parameter("A history that `syncline watch --history` wrote.")],
    *,
    number: Annotated[int | None, Parameter("Which incident, by its number in the list; else the worst.")] = None,
) -> IncidentReport:
    """Return the incidents of the last day of a history, and one of them whole."""
    with closing(Recorded(history)) as recorded:
        records = recorded.incidents()
        if number is not None and not 1 <= number <= len(records):
            if not records:
                raise WatchError("this history has no incident.", where=str(history), hint="Leave out `number`.")
            raise WatchError(f"`number` must be from 1 to {len(records)}, got {number}.", where=str(history))
        past = tuple(_past(k + 1, record, recorded.end_s) for k, record in enumerate(records))
        worst = sorted(past, key=lambda i: (i.severity != "critical", -(i.cost_usd or 0.0), i.start_s))
        told = past[number - 1] if number is not None else next(iter(worst), None)
        series = recorded.around(records[told.number - 1]) if told is not None else None
        return IncidentReport(str(history), recorded.start_s, recorded.end_s, past, told, series=series)


def _past(number: int, record: IncidentRecord, until_s: float) -> PastIncident:
    i = record.incident
    effects = tuple(IncidentEffect(e.rule, e.place, e.observed, e.expected) for e in i.effects)
    return PastIncident(
        number, i.rule, i.severity.label, i.place, i.host, record.start_s, record.end_s, record.num_opened, i.observed,
        i.expected, i.evidence, effects, i.meaning, i.fix, record.cost_usd(until_s),
    )  # fmt: skip
