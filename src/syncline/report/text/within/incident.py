"""The incidents of a day that a watch kept, and one of them whole, as text."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from rich.table import Table

from syncline.describe.units import show_time
from syncline.questions.within.incident import IncidentReport, PastIncident
from syncline.report.table import table


def moment(wall_s: float) -> str:
    """Return a moment with its day, by the local clock."""
    return datetime.datetime.fromtimestamp(wall_s).strftime("%Y-%m-%d %H:%M:%S")


def lasted(incident: PastIncident) -> str:
    """Return how long an incident lasted, and how often it opened."""
    took = "still open" if incident.end_s is None else show_time(max(0.0, incident.end_s - incident.start_s))
    return f"{took}, opened {incident.num_opened} times" if incident.num_opened > 1 else took


def cost(incident: PastIncident) -> str:
    """Return what an incident cost; nothing where the price of a GPU is unknown."""
    return "" if incident.cost_usd is None else f"${incident.cost_usd:,.2f}"


def text(answer: IncidentReport, width: int) -> Iterator[str | Table]:
    """Give the list of incidents and the one that is told."""
    count = len(answer.incidents)
    span = f"{moment(answer.start_s)} to {moment(answer.end_s)}"
    yield f"{answer.history}: {count} incident{'' if count == 1 else 's'}, {span}"
    if answer.told is None:
        return
    yield ""
    yield table(
        answer.incidents,
        {
            "number": lambda i: str(i.number), "began": lambda i: moment(i.start_s), "lasted": lasted,
            "severity": lambda i: i.severity, "rule": lambda i: i.rule, "place": lambda i: i.place, "cost": cost,
        },
        words=("began", "lasted", "severity", "rule", "place"),
    )  # fmt: skip
    yield ""
    yield from told(answer.told)


def told(incident: PastIncident) -> Iterator[str]:
    """Give one incident whole."""
    expected = f", expected {incident.expected}" if incident.expected else ""
    yield f"{incident.number}. {incident.rule} at {incident.place}: {incident.observed}{expected}"
    yield f"   from {moment(incident.start_s)}, {lasted(incident)}{', ' + cost(incident) if cost(incident) else ''}"
    for words in incident.evidence:
        yield f"   seen: {words}"
    for effect in incident.effects:
        yield f"   so {effect.rule} at {effect.place}: {effect.observed}"
    for words in filter(None, (incident.meaning, incident.fix)):
        yield f"   {words}"
