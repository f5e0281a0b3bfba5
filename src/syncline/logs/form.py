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
from functools import cache, cached_property, lru_cache
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


_NAMES: Mapping[LogLevel, tuple[str, ...]] = {
    LogLevel.DEBUG: ("debug", "trace", "verbose", "dbg", "diag"),
    LogLevel.INFO: ("info", "information", "notice", "inf", "normal", "note", "req", "async", "log"),
    LogLevel.WARNING: ("warning", "warn", "wrn"),
    LogLevel.ERROR: (
        *("error", "err", "erro", "critical", "crit", "criti", "alert", "emerg", "panic", "fatal", "severe", "failure"),
        "-1",
    ),
}
_LETTERS = {"d": LogLevel.DEBUG, "i": LogLevel.INFO, "n": LogLevel.INFO, "w": LogLevel.WARNING} | dict.fromkeys(
    "efc", LogLevel.ERROR
)
_WORDS = {word: level for level, words in _NAMES.items() for word in words} | _LETTERS
_STATED = re.compile(
    r"^.{0,60}?(?:^|[\s\[|(<:*=\"-])(?P<level>EMERG|ALERT|CRITI?|CRITICAL|ERRO?|ERROR|WRN|WARN|WARNING|NOTICE|INFO|INF|DEBUG|DBG"
    r"|TRACE|FATAL)(?:[\s\]|)>:*\"-]|$)"
)
"""A word of severity that stands alone at the beginning of a message, whoever writes it."""
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
        words[name] = spelled_out(pattern, words)
    return tuple(
        _Form(source, spelled_out(pattern, words)) for source, patterns in data["forms"].items() for pattern in patterns
    )


def spelled_out(pattern: str, words: Mapping[str, str]) -> str:
    """Return a pattern with the words in capitals that stand for what is written once."""
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
            if level is None and (priority := _PRIORITY.match(head)):
                level = _BY_NUMBER[int(priority[1]) & 7]
            if level is None and (stated := _STATED.search(head[at:])):
                level = _WORDS[stated["level"].lower()]
            return LineForm(source, groups.get("part", ""), level, at)
    if stated := _STATED.search(head):
        return LineForm("logger", "", _WORDS[stated["level"].lower()], stated.end())
    return None


@lru_cache(maxsize=8192)
def _form_of_shape(shape: str) -> LineForm | None:
    return form_of(shape)


def stated(line: str) -> LineForm | None:
    """Return the form of a line; those that differ in digits alone are asked once, so the part has no digits.

    A digit behind "<", "-" or "/" is a number of severity, and so is a priority in front.
    """
    return _form_of_shape(_DIGITS.sub("0", line[:300]))


_DIGITS = re.compile(r"(?<![<\-/])(?<!^<\d)(?<!^<\d\d)\d")
_PRIORITY = re.compile(r"<(\d{1,3})>")
"""What syslog puts in front of a line that it sends on."""


def texts_of(least: LogLevel) -> tuple[str, ...]:
    """Return the texts of which one stands on every line that calls itself as grave as that, in any form."""
    texts: dict[str, None] = {}
    for name, level in _WORDS.items():
        if level < least or not name.isalpha() or name in _LETTERS:
            continue
        upper, title = name.upper(), name.title()
        found = [f"{word}{end}" for word in {upper, title} for end in ' :|]>)*-,"']
        found += [f"={name}", f"<{name}>", f"[{name}]", f"|{name}|", f"({name})", f".{name} ", f":{name}", f"{name}: "]
        found += [f'"{name}"', f" {name} "]
        texts |= dict.fromkeys(text for text in found if len(text) >= _SHORTEST)
    for letter, level in _LETTERS.items():
        if level < least:
            continue
        mark = letter.upper()
        texts |= dict.fromkeys(f"{mark}{month:02}{day}" for month in range(1, 13) for day in range(4))  # glog
        texts |= dict.fromkeys(f"{before} {mark} " for before in "0123456789]:)Z")
        texts |= dict.fromkeys((f"|{mark}|", f"[{mark}] ", f"]{mark}: "))
    for number in range(8):
        if _BY_NUMBER[number] >= least:
            texts |= dict.fromkeys(f"{before}{number}{mark}" for before, mark in (("<", ">["), ("<", "> "), (":", ";")))
            texts |= dict.fromkeys(f"<{facility * 8 + number}>" for facility in range(1, _FACILITIES))
            texts |= dict.fromkeys(f"-{number}-{letter}" for letter in _CAPITALS)
            texts |= dict.fromkeys(f"/{number}/{letter}" for letter in _CAPITALS)
    for text in [text for text in texts if len(text) < _SHORTEST]:
        del texts[text]
    return (*texts, *(_MORE if least <= LogLevel.ERROR else ()))


_SHORTEST = 4
_FACILITIES = 24
"""Those of syslog, whose number stands above that of the severity in what it puts in front of a line."""
_CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MORE = ("[EC ", *(f"{last} -1 " for last in "0123456789abcdef"))
"""FRR's number of an error, and what Ceph prints for one behind a thread's number."""


def _level(source: str, groups: Mapping[str, str], head: str) -> LogLevel | None:
    if number := groups.get("pri") or groups.get("number"):
        return _BY_NUMBER[int(number) & 7]
    if source == "frr" and "level" not in groups:
        return LogLevel.ERROR if "[EC " in head else None
    word = groups.get("level", "").lower().strip()
    if source == "opensm":
        return LogLevel.ERROR if "ERR" in head and word == "0x01" else LogLevel.INFO
    if source == "nccl" and word in ("version", "call", "abort", ""):
        return LogLevel.WARNING if word == "abort" else LogLevel.INFO
    if source == "kubernetes events":
        return LogLevel.WARNING if word == "warning" else LogLevel.INFO
    return _WORDS.get(word, _WORDS.get(word.rstrip("0123456789"))) if word else None


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
