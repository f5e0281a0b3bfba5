"""The doctor's answer: the likeliest suspect first, then the others, what was measured, and what nobody explained."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from syncline.describe import units
from syncline.diagnosis.suspect import IncidentSuspect
from syncline.logs.unexplained import FAILURES
from syncline.questions.doctor import DoctorAnswer

SHOWN = 6
OPEN_SHOWN = 5
EVEN = 0.5
"""A suspect less likely than not is no answer."""


def text(answer: DoctorAnswer, width: int) -> Iterator[str]:
    """Yield the answer, what to type next, then each suspect with what shows it."""
    likely = [one for one in answer.suspects if one.probability >= 0.2]
    yield _headline(answer, likely)
    if likely and likely[0].next and not likely[0].is_described:
        yield f"next: {likely[0].next}"
    if measured := _measured(answer):
        yield measured
    for number, one in enumerate(likely[:SHOWN], start=1):
        yield ""
        yield from _suspect(one, number, width)
    if len(likely) > SHOWN:
        yield f"and {len(likely) - SHOWN} more (--json has them)"
    errors = [line for line in answer.unexplained if line.level in FAILURES]
    if errors:
        yield ""
        yield "not explained by any rule:"
        for line in errors[:OPEN_SHOWN]:
            yield from wrap(f"{line.place + ': ' if line.place else ''}{line.text}", width - 2, initial_indent="  ",
                            subsequent_indent="      ")[:2]  # fmt: skip
    for item in answer.unread[:3]:
        yield f"not read: {item.path}: {item.reason}"
    yield ""
    yield f"{len(answer.files)} files of {len(answer.hosts)} hosts read; nothing was changed."


def _headline(answer: DoctorAnswer, likely: list[IncidentSuspect]) -> str:
    if not likely:
        slow = answer.measured is not None and answer.measured.is_slow
        return (
            "Slower than this cluster should be, and nothing in these files says why; `syncline bench tournament` "
            "finds the link."
            if slow
            else "Nothing in these files says that something is wrong."
        )
    first = likely[0]
    if first.is_described:
        return f"Nothing that the cluster file has not already: {first.place}, {first.cause}."
    what = f"{first.place or 'somewhere'}: {first.cause} ({first.probability:.0%} likely)"
    return what if first.probability >= EVEN else f"No likely cause in these files; the likeliest is {what}"


def _measured(answer: DoctorAnswer) -> str:
    found = answer.measured
    if found is None:
        return ""
    what = f"{found.collective} of {units.show_size(found.size_bytes)} on {found.num_ranks} ranks"
    said = f"measured: {what}, {found.busbw_GBps:.0f} GB/s bus"
    if found.healthy_GBps is None:
        return f"{said}; --cluster says what it should be"
    described = any(one.is_described for one in answer.suspects)
    what = "the cluster with its faults" if described else "the healthy cluster"
    return f"{said}; {what} gives {found.healthy_GBps:.0f} ({found.low_GBps:.0f} to {found.high_GBps:.0f})"


def _suspect(one: IncidentSuspect, number: int, width: int) -> Iterator[str]:
    yield f"{number}. {one.probability:4.0%}  {one.place or '(no host named)'}  {one.cause}  [{one.rule}]"
    if one.is_described:
        yield f"      the cluster file has it: faults: [{one.fault}]"
    elif one.predicted_GBps is not None and one.loss is not None:
        price = f"{one.predicted_GBps:.0f} GB/s predicted, {one.loss:.0%} lost"
        yield f"      in the cluster file: faults: [{one.fault}]  ->  {price}"
    elif one.fault:
        yield f"      in the cluster file: faults: [{one.fault}]"
    for line in one.evidence[:3]:
        yield from wrap(line, width - 6, initial_indent="      ", subsequent_indent="          ")[:2]
    if one.next:
        yield f"      next: {one.next}"
