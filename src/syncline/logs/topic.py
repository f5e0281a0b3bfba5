"""What a failing line that no rule knows is about: a subject and what happened to it name the rule that says the rest.

Components differ in their messages, less in their words: whoever lost a neighbour says BGP and down. The table in
`topics.yaml` joins such words to rules; a rule's own texts always go first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files

from syncline.describe.document import read_document
from syncline.logs.emitter import is_calm
from syncline.logs.form import LogLevel, spelled_out, stated

SURE = 0.55
"""How sure a rule is that is named by a line's topic."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])|_")
_LONGEST = 400


@dataclass(frozen=True)
class Writers:
    """Who writes: the sources of forms, or words that stand in what they write."""

    sources: frozenset[str]
    words: re.Pattern[str] | None

    def include(self, source: str, text: str) -> bool:
        return source in self.sources or (self.words is not None and self.words.search(text) is not None)


@dataclass(frozen=True)
class Topic:
    """A subject, the states of it that count (any, where none is named), and the rule that both name."""

    rule: str
    subject: re.Pattern[str]
    states: tuple[re.Pattern[str], ...]
    plain: tuple[re.Pattern[str], ...]
    """Those that tell of a fault whatever the line calls itself."""
    by: Writers | None

    def begins(self, text: str, whole: str, source: str, *, grave: bool) -> int | None:
        """Return where the subject stands in a text that is about it, or None; the `whole` begins with who writes."""
        found = self.subject.search(text)
        if found is None or (self.by and not self.by.include(source, whole)):
            return None
        states = self.states if grave else self.plain
        if (states or not grave) and not any(state.search(text) for state in states):
            return None
        return found.start()


@dataclass(frozen=True)
class TopicTable:
    """The topics, those of causes first, the words of an end, and the patterns of places by their names."""

    causes: tuple[Topic, ...]
    topics: tuple[Topic, ...]
    over: re.Pattern[str]
    switches: Writers
    """Whose information may be a fault where it has their form: they number what they say by how urgent it is."""
    warned: frozenset[str]
    """Sources whose warnings are faults where a switch writes them."""
    headed: frozenset[str]
    """Sources whose lines begin with what they are about: a driver, a facility."""
    places: dict[str, re.Pattern[str]]


@cache
def table() -> TopicTable:
    """Return the table that ships."""
    data = read_document((files("syncline.logs") / "topics.yaml").read_text(encoding="utf-8"), "topics.yaml").data
    plain = data["plain"]
    states = {name: re.compile(pattern) for name, pattern in data["states"].items()}
    writers = {
        name: Writers(frozenset(row["sources"]), re.compile(row["words"]) if row["words"] else None)
        for name, row in data["writers"].items()
    }

    def topics(key: str) -> tuple[Topic, ...]:
        return tuple(
            Topic(
                row["rule"],
                re.compile(rf"\b(?:{spelled_out(row['of'], data['words'])})"),
                tuple(states[name] for name in row.get("tells", ())),
                tuple(states[name] for name in row.get("tells", plain) if name in plain and not row.get("grave")),
                writers[row["by"]] if "by" in row else None,
            )
            for row in data[key]
        )

    places = {name: re.compile(pattern) for name, pattern in data["places"].items()}
    return TopicTable(
        topics("causes"),
        topics("topics"),
        re.compile(data["over"]),
        writers["switch"],
        frozenset(data["warned"]),
        frozenset(data["headed"]),
        places,
    )


@lru_cache(maxsize=1024)
def rule_of(line: str, *, grave: bool = True) -> str:
    """Return the rule that a line's topic names, or nothing; a `grave` line calls itself an error or tells of one."""
    form = stated(line)
    known, source = table(), form.source if form else ""
    whole = _words(line, max(line.find(form.part), 0) if form and form.part else form.begins if form else 0)
    if known.over.search(whole) or (not grave and source not in known.switches.sources and is_calm(line)):
        return ""
    if source in known.warned and form is not None and (form.level or LogLevel.DEBUG) >= LogLevel.WARNING:
        grave |= known.switches.include(source, whole)
    message = whole if form is None or source in known.headed else _words(line, form.begins)
    for topics, any_grave in ((known.causes, True), (known.topics, grave)):
        for text in dict.fromkeys((message, whole)):  # what is said goes before who says it
            at = (topic.begins(text, whole, source, grave=any_grave) for topic in topics)
            found = [(begins, number) for number, begins in enumerate(at) if begins is not None]
            if found:
                return topics[min(found)[1]].rule
    return ""


def _words(line: str, begin: int) -> str:
    return _CAMEL.sub(" ", line[begin : begin + _LONGEST]).lower()


def is_over(line: str) -> bool:
    """Say whether a line tells of the end of a fault."""
    return table().over.search(_words(line, 0)) is not None


def place_in(line: str, kind: str) -> str:
    """Return the port, peer or device that a line names, or nothing."""
    pattern = table().places.get(kind)
    found = pattern.search(line) if pattern else None
    return found[1] if found else ""
