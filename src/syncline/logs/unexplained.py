"""What no rule knows: the first error-like lines by rank and host, what they share, and what to look at next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, log2

from syncline.finding import Action, Finding, Place, Severity
from syncline.logs.causes import RankedFinding
from syncline.logs.emitter import DOUBT, is_calm
from syncline.logs.form import form_of
from syncline.logs.tally import NUMBERS, Evidence, MatchRow, Tallies, Tally
from syncline.logs.topic import is_over
from syncline.logs.verdict import some
from syncline.logs.words import log_odds, table

RULE = "log.unexplained"
SIGNAL = "signal.error"
_LEVELS = {SIGNAL: "error", DOUBT: "doubt", "signal.warning": "warning"}
"""What a line that no rule explains is called, by the signal that took it: the first of them counts."""
FAILURES = {"error": "at error level", "doubt": "in words of failure"}
"""The levels of lines that keep a log from being understood, and how they are told."""
MAX_OPEN = 20
"""Lines without a rule that are kept for people to look at."""
SHOWN = 4
REFERENCE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_KIND = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt))\b")
_HEADER = "Traceback (most recent call last)"
_NEXT: tuple[tuple[str, str], ...] = (
    (
        "NCCL WARN",
        "Run again with NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/tmp/nccl.%h.%p on all hosts and read what stands before it.",
    ),
    ("UCX", "Run again with UCX_LOG_LEVEL=info; ucx_info -d on the host named."),
    ("kernel", "Read the kernel log of that host around this moment (journalctl -k)."),
    ("NVRM", "Read the kernel log of that host around this moment, and run `syncline audit` there."),
    ("srun", "Ask the scheduler: sacct -j JOB and slurmctld's log at this time."),
    ("slurm", "Ask the scheduler: sacct -j JOB and slurmctld's log at this time."),
)


def unexplained(
    tallies: Tallies, *, has_symptom: bool, has_cause: bool, effects: Sequence[Tally] = ()
) -> list[RankedFinding]:
    """Return one finding over the error-like lines that no rule has taken, or nothing where there are none.

    A warning of NCCL alone is not worth one where some rule has found a cause (`has_cause`). Where nothing but
    `effects` was found, they stand for the cause that is not in the log.
    """
    tally = tallies.get(SIGNAL)
    rows = sorted(tally.open_rows(), key=lambda row: row.evidence.when) if tally is not None else []
    if effects and all(_HEADER in row.evidence.text for row in rows):
        return [_without_cause(effects)]
    if has_symptom and all(_HEADER in row.evidence.text for row in rows):
        return []  # the traceback's own last line has been recognised
    if not rows or (has_cause and all(row.get("weak") for row in rows)):
        return []
    firsts = _firsts(rows)
    shown = tuple(str(row.evidence) for row in firsts[:SHOWN])
    finding = Finding(
        rule=RULE,
        severity=Severity.WARNING,
        place=firsts[0].evidence.context.place,
        places=_at(firsts[0].evidence),
        observed=f"{_count(rows)} that no rule knows; {_common(firsts)}",
        evidence=shown,
        meaning="These lines look like errors, and none of the rules says what they mean, so the cause is not known"
        + (" (what was recognised are consequences)." if has_symptom else "."),
        fix=_advice(firsts),
        reference=REFERENCE if "NCCL" in shown[0] else "",
        action=Action.INSPECT,
        confidence=0.5,
    )
    return [RankedFinding(finding, firsts[0].evidence, frozenset())]


def _at(line: Evidence) -> tuple[Place, ...]:
    return (Place(line.context.host, line.context.who),) if line.context.place else ()


def _without_cause(effects: Sequence[Tally]) -> RankedFinding:
    lines = sorted((line for tally in effects for line in tally.evidence), key=lambda line: (line.order, line.line))
    by_nccl = any(tally.rule.id.startswith("nccl.") for tally in effects)
    finding = Finding(
        rule=RULE,
        severity=Severity.WARNING,
        place=lines[0].context.place,
        places=_at(lines[0]),
        observed=f"{' and '.join(tally.rule.title for tally in effects)}, and no line says why",
        evidence=tuple(str(line) for line in lines[:SHOWN]),
        meaning="A consequence; the cause stands in none of what was read, but in what the process wrote before it, in "
        "the log of another rank or in the kernel log of a host.",
        fix=_NEXT[0][1]
        if by_nccl
        else "Read what that rank itself wrote (its own log, --tee 3 or --log-dir of torchrun, "
        "srun --output with %t), and give diagnose the logs of all ranks and the kernel log of its host.",
        reference=REFERENCE if by_nccl else "",
        action=Action.INSPECT,
        confidence=0.5,
    )
    return RankedFinding(finding, lines[0], frozenset(tally.rule.id for tally in effects))


@dataclass(frozen=True)
class OpenLine:
    """A line that no rule explains; `count` lines differ from it in numbers only.

    Its `level` is "error" or "warning" by its own word, "doubt" where it states neither and its words speak plainly of
    a failure, and "warning" where they may.
    """

    level: str
    place: str
    part: str
    path: str
    line: int
    text: str
    count: int


def open_lines(tallies: Tallies, num_lines: Mapping[int, int], limit: int = MAX_OPEN) -> tuple[OpenLine, ...]:
    """Return the lines that no rule explains, what matters first.

    Errors stand before all others. Then a message whose words speak of a failure, that is rare, that comes early of its
    kind and near the end of its log (`num_lines` by file) tells more than one that fills the log from its beginning.
    """
    found: dict[str, tuple[str, list[MatchRow]]] = {}
    for name, level in _LEVELS.items():
        for row in tallies[name].open_rows() if name in tallies else ():
            known_as, rows = found.setdefault(NUMBERS.sub("0", row.evidence.text), (level, []))
            if known_as == level and _HEADER not in row.evidence.text:
                rows.append(row)
    total = sum(row.count for _, rows in found.values() for row in rows) or 1
    ranked = []
    for level, rows in found.values():
        if not rows:
            continue
        first = min((row.evidence for row in rows), key=lambda seen: seen.when)
        order, last = max((row.evidence.order, row.last) for row in rows)
        count = sum(row.count for row in rows)
        end = last / max(num_lines.get(order, last), 1)
        form = form_of(first.text)
        odds = log_odds(first.text)
        level = _level(level, first.text)
        start = first.line / max(num_lines.get(first.order, first.line), 1)
        score = -log2(count / total) + end - start / 2 + odds / log(2)
        shown = OpenLine(
            level, first.context.place, form.part if form else "", first.path, first.line, first.text.strip(), count
        )
        ranked.append((level == "error", score, -first.order, -first.line, shown))
    ranked.sort(key=lambda item: item[:4], reverse=True)
    return tuple(shown for *_, shown in ranked[:limit])


def failing_rows(tallies: Tallies) -> list[tuple[MatchRow, str]]:
    """Return the open rows of lines that call themselves errors or warnings or speak of a failure, the earliest first.

    Each with its level, as that of an OpenLine.
    """
    rows = [
        (row, _level(level, row.evidence.text))
        for name, level in _LEVELS.items()
        if name in tallies
        for row in tallies[name].open_rows()
        if _HEADER not in row.evidence.text
    ]
    return sorted(rows, key=lambda row: row[0].evidence.when)


def _level(level: str, text: str) -> str:
    """Return "warning" for doubt about a line whose writer has weighed it, or whose words are not plain."""
    if level != "doubt":
        return level
    form = form_of(text)
    calm = (form and form.level is not None) or is_calm(text) or is_over(text) or log_odds(text) < table().sure
    return "warning" if calm else level


def num_open(tallies: Tallies) -> int:
    """Return how many lines look like errors of their own, which a traceback's header and a bare warning do not."""
    rows = tallies[SIGNAL].open_rows() if SIGNAL in tallies else ()
    return sum(row.count for row in rows if _HEADER not in row.evidence.text and not row.get("weak"))


def _firsts(rows: Sequence[MatchRow]) -> list[MatchRow]:
    """Return the first telling line of each rank and host; a traceback's last line tells more than its first."""
    telling = [row for row in rows if _HEADER not in row.evidence.text] or list(rows)
    found: dict[tuple[str, str, int], MatchRow] = {}
    for row in telling:
        where = row.evidence.context
        found.setdefault((where.host, where.rank, row.evidence.order), row)
    return list(found.values())


def _count(rows: Sequence[MatchRow]) -> str:
    num = sum(row.count for row in rows)
    return f"{num} lines that look like errors" if num != 1 else "a line that looks like an error"


def _common(firsts: Sequence[MatchRow]) -> str:
    """Say what the first errors share: their kind, and where they are."""
    kinds = Counter(match[1] for row in firsts if (match := _KIND.search(row.evidence.text)))
    hosts = {row.evidence.context.host for row in firsts} - {""}
    ranks = {row.evidence.context.rank for row in firsts} - {""}
    parts = []
    if kinds:
        name, count = kinds.most_common(1)[0]
        parts.append(f"{name} first" if len(firsts) == 1 else f"{name} in {count} of {len(firsts)} places")
    if len(hosts) == 1 and len(firsts) > 1:
        parts.append(f"all on {next(iter(hosts))}")
    elif len(hosts) > 1:
        parts.append(f"on {len(hosts)} hosts ({some(hosts)})")
    if ranks:
        parts.append(f"rank {some(ranks)}")
    return ", ".join(parts) or "the first is shown"


def _advice(firsts: Sequence[MatchRow]) -> str:
    text = firsts[0].evidence.text
    for word, advice in _NEXT:
        if word in text:
            return f"Start with the first line above. {advice}"
    where = firsts[0].evidence.context.place
    who = f" ({where})" if where else ""
    return (
        f"Start with the first line above{who}: read its traceback and the lines before it, compare with a rank that "
        "did not fail, and give diagnose the logs of the other ranks and the kernel log of its host too."
    )
