"""The form of a line: who writes like this, when, on which host, which part of it, and how grave by its own word.

Sources are recognised by their form, before any rule is asked. What states no severity of its own (most of the
kernel's lines, a program's prints) has none here: `emitter` says whether its words are those of a failure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from importlib.resources import files

from syncline.describe.document import read_document

RECOGNISED = 0.2
"""The share of lines by which a log is recognised: the others go on with what a line began (traces, tables)."""


class LogLevel(IntEnum):
    """How grave a line calls itself."""

    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True)
class LineForm:
    """What the form of a line says of it; `part` is the daemon, kernel subsystem or library that wrote it."""

    source: str
    part: str = ""
    level: LogLevel | None = None
    begins: int = 0
    """Where the message begins, behind time, host and part."""


_WORDS: Mapping[str, LogLevel] = {
    **dict.fromkeys(("debug", "trace", "verbose", "d", "dbg", "diag"), LogLevel.DEBUG),
    **dict.fromkeys(("info", "information", "notice", "i", "n", "note", "req", "async", "log"), LogLevel.INFO),
    **dict.fromkeys(("warn", "warning", "w"), LogLevel.WARNING),
    **dict.fromkeys(
        ("err", "error", "crit", "critical", "alert", "emerg", "panic", "fatal", "severe", "e", "f", "c", "failure"),
        LogLevel.ERROR,
    ),
}
_PASSES_ON = ("syslog", "sonic")
"""Who passes on what another wrote: where the outer form states no severity, the message's own does."""
_BY_NUMBER = (*[LogLevel.ERROR] * 4, LogLevel.WARNING, LogLevel.INFO, LogLevel.INFO, LogLevel.DEBUG)
"""Levels of syslog (and of the messages of EOS, IOS, NX-OS and Junos), by their number."""


class _Form:
    """A pattern of a source, compiled when a line first comes to it."""

    def __init__(self, source: str, pattern: str) -> None:
        self.source, self._pattern = source, pattern

    @cached_property
    def search(self) -> Callable[[str], re.Match[str] | None]:
        """What finds the form in a line."""
        return re.compile(self._pattern).search


@cache
def _forms() -> tuple[_Form, ...]:
    data = read_document((files("syncline.logs") / "forms.yaml").read_text(encoding="utf-8"), "forms.yaml").data
    words: dict[str, str] = {}
    for name, pattern in data["words"].items():
        words[name] = _spelled_out(pattern, words)
    return tuple(
        _Form(source, _spelled_out(pattern, words))
        for source, patterns in data["forms"].items()
        for pattern in patterns
    )


def _spelled_out(pattern: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\\b|[A-Z]{3,}", lambda found: words.get(found[0], found[0]), pattern)


def form_of(line: str) -> LineForm | None:
    """Return the form of a line, or None where no source known here writes like this."""
    head = line[:300]
    for form in _forms():
        if found := form.search(head):
            source = form.source
            groups = {name: value for name, value in found.groupdict().items() if value}
            at = found.start("part") if source == "kernel" and groups.get("part") else found.end()
            level = _level(source, groups, head)
            if level is None and source in _PASSES_ON and (inner := form_of(head[at:])):
                level = inner.level
            return LineForm(source, groups.get("part", ""), level, at)
    return None


def _level(source: str, groups: Mapping[str, str], head: str) -> LogLevel | None:
    if number := groups.get("pri") or groups.get("number"):
        return _BY_NUMBER[int(number) & 7]
    if source == "frr" and "level" not in groups:
        return LogLevel.ERROR if "[EC " in head else None
    word = groups.get("level", "").lower()
    if source == "opensm":
        return LogLevel.ERROR if "ERR" in head and word == "0x01" else LogLevel.INFO
    if source == "nccl" and word in ("version", "call", "abort", ""):
        return LogLevel.WARNING if word == "abort" else LogLevel.INFO
    if source == "kubernetes events":
        return LogLevel.WARNING if word == "warning" else LogLevel.INFO
    return _WORDS.get(word.rstrip("0123456789")) if word else None


class FormCount:
    """The forms of a log's lines, counted on a sample of every block as it goes by."""

    def __init__(self) -> None:
        self.forms: Counter[str] = Counter()
        self.num_lines = 0

    def count(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line.strip():
                self.num_lines += 1
                form = form_of(line)
                self.forms[form.source if form else ""] += 1

    @property
    def source(self) -> str:
        """The form that most of the lines have, or nothing where too few have any."""
        known = Counter({name: count for name, count in self.forms.items() if name})
        if not known or known.total() < RECOGNISED * self.num_lines:
            return ""
        return known.most_common(1)[0][0]
