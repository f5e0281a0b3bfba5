"""A diagnosis for people: each first cause with its lines, its meaning and its fix, and what it led to below it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap

from syncline.describe import units
from syncline.diagnosis import Cause, Diagnosis
from syncline.diagnosis.following import next_command
from syncline.finding import Finding
from syncline.logs.unexplained import FAILURES
from syncline.questions.diagnose import DiagnosisAnswer, NewRule, RuleCheck, RuleList

WIDTH = 116
_LINES_OF_CAUSE = 4
_MAX_WRAPPED = 3
"""Lines of the screen for one line of a log: what matters often stands at its end."""
_LINES_OF_EFFECT = 1
_KEY = 120
_OPEN_SHOWN = 6
_COUNT = re.compile(r" \((?:more than )?[\d,]+ lines[^)]*\)$")
_PATH = re.compile(r"^.*?:(\d+): ")


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Return the whole answer as lines: the answer itself, what to type next, then what shows it."""
    lines = [_answer(diagnosis)]
    if diagnosis.causes and (command := next_command(diagnosis.causes[0])):
        lines.append(f"next: {command}")
    elif not diagnosis.causes and diagnosis.table:
        lines.append(f"next: syncline bench --read {diagnosis.table} --cluster CLUSTER  # what should it be?")
    for number, cause in enumerate(diagnosis.causes, start=1):
        lines += ["", *_cause(cause, number, is_one=diagnosis.num_files == 1)]
    lines += _open_lines(diagnosis)
    if diagnosis.unread:
        lines += ["", "not read:", *(f"  {item.path}: {item.reason}" for item in diagnosis.unread)]
    if diagnosis.causes:
        lines += ["", f"{_read(diagnosis)}: {_counted(diagnosis)}."]
    return lines


def _open_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the lines that no rule explains, but for those that a finding shows already."""
    shown = "\n".join(text for cause in diagnosis.causes for finding in cause.all() for text in finding.evidence)
    rest = [line for line in diagnosis.unexplained if line.text[:_KEY] not in shown]
    if not rest:
        return
    yield ""
    yield "not explained by any rule, the most telling first:"
    for line in rest[:_OPEN_SHOWN]:
        times = f" (x{line.count:,})" if line.count > 1 else ""
        where = f"{line.place}: " if line.place and line.place not in line.text else ""
        yield from wrap(
            f"{line.level}{times} {where}{line.path}:{line.line}: {line.text}",
            WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False,
        )[:_MAX_WRAPPED]  # fmt: skip
    if len(rest) > _OPEN_SHOWN:
        yield f"  and {len(rest) - _OPEN_SHOWN} more (--json has them)"
    yield "  write a rule for one: syncline diagnose --new-rule 'LINE'"


def _answer(diagnosis: Diagnosis) -> str:
    if diagnosis.nothing_read:
        return "UNKNOWN: no log could be read."
    if not diagnosis.causes and diagnosis.unread:
        return f"UNKNOWN: nothing is wrong in what could be read, and not all could ({_read(diagnosis)})."
    if not diagnosis.causes and not diagnosis.understood:
        num = {level: sum(line.count for line in diagnosis.unexplained if line.level == level) for level in FAILURES}
        parts = [f"{num[level]:,} line{'s' * (num[level] != 1)} {how}" for level, how in FAILURES.items() if num[level]]
        strange = [path for path, form in diagnosis.forms.items() if not form]
        why = f"{' and '.join(parts)} that no rule explains" if parts else (
            f"the form of {strange[0]} is not known" + f" (and of {len(strange) - 1} more)" * (len(strange) > 1)
            + "; no line of it speaks of a failure"
        )  # fmt: skip
        return f"NOT UNDERSTOOD: {why} ({_read(diagnosis)})."
    if not diagnosis.causes:
        kinds = ", ".join(sorted(set(diagnosis.forms.values()))) or "no log"
        if warnings := sum(line.count for line in diagnosis.unexplained):
            what = f"{warnings:,} warning{'s' * (warnings != 1)} that no rule explains"
            return f"NO KNOWN FAULT: {kinds}; nothing at error level, but {what} ({_read(diagnosis)})."
        return f"OK: {kinds}, and no line at error level or in words of failure ({_read(diagnosis)})."
    first = diagnosis.causes[0]
    where = f" on {first.place}" if first.place else ""
    more = len(diagnosis.causes) - 1
    others = f"; {more} other cause{'s' * (more != 1)} below" if more else ""
    said = f"{_COUNT.sub('', first.observed)} ({first.rule}, {_sure(first)})"
    if first.is_possible:
        return f"{first.severity.name}{where}: the cause is not known; it may be that {said}{others}"
    return f"{first.severity.name}{where}: {said}{others}"


def _read(diagnosis: Diagnosis) -> str:
    return (
        f"{diagnosis.num_files:,} file{'s' * (diagnosis.num_files != 1)}, {diagnosis.num_lines:,} "
        f"line{'s' * (diagnosis.num_lines != 1)}, {units.show_size(diagnosis.num_bytes)} read"
    )


def _counted(diagnosis: Diagnosis) -> str:
    effects = len(diagnosis.findings) - len(diagnosis.causes)
    what = f"{len(diagnosis.causes)} cause{'s' * (len(diagnosis.causes) != 1)}"
    return what + (f" with {effects} effect{'s' * (effects != 1)}" if effects else "")


def _sure(finding: Finding) -> str:
    return f"{'may be, ' * finding.is_possible}{finding.confidence:.0%} sure"


def _cause(finding: Cause, number: int, *, is_one: bool) -> Iterator[str]:
    yield f"{number}. {_head(finding)}"
    yield f"   {finding.observed}"
    yield from _evidence(finding, "     ", _LINES_OF_CAUSE, is_one=is_one)
    for name in ("meaning", "fix"):
        yield from _paragraph(f"{name}: ", getattr(finding, name), "   ")
    if finding.reference:
        yield f"   see {finding.reference}"
    if finding.effects:
        yield "   led to:"
        for effect in finding.effects:
            yield from _effect(effect, "     ", is_one=is_one)


def _effect(cause: Cause, indent: str, *, is_one: bool) -> Iterator[str]:
    yield f"{indent}{_head(cause)}: {cause.observed}"
    yield from _evidence(cause, indent + "  ", _LINES_OF_EFFECT, is_one=is_one)
    for effect in cause.effects:
        yield from _effect(effect, indent + "  ", is_one=is_one)


def _head(finding: Finding) -> str:
    place = f"  {finding.place}" if finding.place else ""
    return f"{finding.severity.name} {finding.rule}{place}  ({_sure(finding)})"


def _evidence(finding: Finding, indent: str, limit: int, *, is_one: bool) -> Iterator[str]:
    """Return lines of the log, wrapped; of a single file only their numbers, since its name says nothing new."""
    for line in finding.evidence[:limit]:
        shown = "".join(c if c.isprintable() else "?" for c in line)
        if is_one:
            shown = _PATH.sub(r"line \1: ", shown)
        rows = wrap(shown, WIDTH + 4, initial_indent=indent, subsequent_indent=indent + "    ", break_on_hyphens=False)
        yield from rows[:_MAX_WRAPPED]
        if len(rows) > _MAX_WRAPPED:
            yield indent + "    ..."
    if len(finding.evidence) > limit:
        yield f"{indent}and {len(finding.evidence) - limit} more"


def _paragraph(name: str, text: str, indent: str) -> Iterator[str]:
    if text:
        yield from wrap(name + text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def text(answer: DiagnosisAnswer | RuleList | NewRule | RuleCheck, width: int) -> Iterator[str]:
    """Return first causes and what they led to, or the rules."""
    match answer:
        case DiagnosisAnswer():
            yield from diagnosis_lines(answer.diagnosis)
        case RuleList():
            yield from (f"{rule.id:32} {rule.severity:9} {rule.title}" for rule in answer.rules)
            yield f"and {len(answer.environment)} of the environment (nccl.env.*)"
        case NewRule():
            if answer.known:
                yield f"# {', '.join(answer.known)} match this line already: does it need a rule of its own?"
            yield f"- id: {answer.id}"
            if answer.source:
                yield f"  source: {answer.source}"
            yield "  # name what varies, as in {port}, {count:number} or {why:text}, and drop what does not matter"
            yield f"  says: {_quoted(answer.says)}"
            yield "  cause: WHAT IS WRONG WHEN THIS LINE IS WRITTEN"
            yield "  severity: warning  # or critical"
            yield "  effect_of: []  # rules that lead to this one (syncline diagnose --list)"
            yield "  fix: WHAT TO DO"
            yield "  reference: https://"
            yield f"  example: {_quoted(answer.example)}"
            yield "# Save it as our-rules/NAME.yaml; syncline diagnose --rules our-rules/ --check-rules tries it."
        case RuleCheck():
            yield f"{answer.tried} rules find their examples."
