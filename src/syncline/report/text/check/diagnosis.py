"""A diagnosis for people: each first cause with its lines, its meaning and its fix, and what it led to below it."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from syncline.describe import units
from syncline.diagnose import Cause, Diagnosis
from syncline.finding import Finding

WIDTH = 116
_LINES_OF_CAUSE = 4
_LINES_OF_EFFECT = 1


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Return the whole answer as lines."""
    lines = [_summary(diagnosis)]
    for number, cause in enumerate(diagnosis.causes, start=1):
        lines += ["", *_cause(cause, number)]
    if diagnosis.unread:
        lines += ["", "not read:", *(f"  {item.path}: {item.reason}" for item in diagnosis.unread)]
    return lines


def _summary(diagnosis: Diagnosis) -> str:
    read = (f"{diagnosis.num_files:,} file{'s' * (diagnosis.num_files != 1)}, {diagnosis.num_lines:,} lines, "
            f"{units.show_size(diagnosis.num_bytes)} read")  # fmt: skip
    if diagnosis.nothing_read:
        return "UNKNOWN: no log could be read."
    if not diagnosis.causes and diagnosis.unread:
        return f"{read}: UNKNOWN, nothing is wrong in what could be read, and not all could."
    if not diagnosis.causes:
        return f"{read}: nothing known to be wrong, and no line looks like an error."
    effects = len(diagnosis.findings) - len(diagnosis.causes)
    first = diagnosis.causes[0].finding
    what = f"{len(diagnosis.causes)} cause{'s' * (len(diagnosis.causes) != 1)}"
    what += f" with {effects} effect{'s' * (effects != 1)}" if effects else ""
    return f"{read}: {what}. First: {first.rule}" + (f" on {first.place}" if first.place else "")


def _cause(cause: Cause, number: int) -> Iterator[str]:
    finding = cause.finding
    yield f"{number}. {_head(finding)}"
    yield f"   {finding.observed}"
    yield from _evidence(finding, "     ", _LINES_OF_CAUSE)
    for name in ("meaning", "fix"):
        yield from _paragraph(f"{name}: ", getattr(finding, name), "   ")
    if finding.reference:
        yield f"   see {finding.reference}"
    if cause.effects:
        yield "   led to:"
        for effect in cause.effects:
            yield from _effect(effect, "     ")


def _effect(cause: Cause, indent: str) -> Iterator[str]:
    yield f"{indent}{_head(cause.finding)}: {cause.finding.observed}"
    yield from _evidence(cause.finding, indent + "  ", _LINES_OF_EFFECT)
    for effect in cause.effects:
        yield from _effect(effect, indent + "  ")


def _head(finding: Finding) -> str:
    place = f"  {finding.place}" if finding.place else ""
    return f"{finding.severity.name} {finding.rule}{place}  ({finding.confidence:.0%} sure)"


def _evidence(finding: Finding, indent: str, limit: int) -> Iterator[str]:
    for line in finding.evidence[:limit]:
        shown = "".join(c if c.isprintable() else "?" for c in line)
        room = WIDTH + 40 - len(indent)
        yield indent + (shown if len(shown) <= room else shown[: room - 4] + " ...")
    if len(finding.evidence) > limit:
        yield f"{indent}and {len(finding.evidence) - limit} more"


def _paragraph(name: str, text: str, indent: str) -> Iterator[str]:
    if text:
        yield from wrap(name + text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
