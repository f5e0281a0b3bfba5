"""Who says so: the source of a timeline, and what that source cannot see."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from syncline.errors import TimelineError

MAX_DEPTH = 32


class SourceKind(StrEnum):
    """How a timeline came to be."""

    SIMULATED_ANALYTIC = "simulated-analytic"
    SIMULATED_FLOW = "simulated-flow"
    SIMULATED_PACKET = "simulated-packet"
    LAB = "lab"
    RUNTIME = "runtime"
    RECORDED = "recorded"


@dataclass(frozen=True)
class Source:
    """Who made a timeline, which version of it, with which seed, and what it ignores.

    Source(SourceKind.SIMULATED_FLOW, "syncline flow", "0.1", ignores=("packet loss", "host jitter"))
    """

    kind: SourceKind
    name: str
    version: str = ""
    ignores: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "kind", SourceKind(self.kind))
        except ValueError:
            known = ", ".join(kind.value for kind in SourceKind)
            raise TimelineError(f"source kind {self.kind!r} is unknown.", hint=f"Known kinds: {known}.") from None
        object.__setattr__(self, "ignores", text_tuple(self.ignores, "source ignores"))
        for field, text in (("name", self.name), ("version", self.version), *(("ignores", t) for t in self.ignores)):
            check_text(text, f"source {field}")
        if not self.name:
            raise TimelineError("source name is empty.", hint="Say who made this timeline.")
        if self.seed is not None and not (type(self.seed) is int and -(2**63) <= self.seed < 2**64):
            raise TimelineError(f"source seed {self.seed!r} is not a whole number of 64 bits.")

    def label(self) -> str:
        """Return the source on one line, as it should stand beside any number taken from it."""
        who = f"{self.name} {self.version}".strip()
        seed = f", seed {self.seed}" if self.seed is not None else ""
        ignores = f"; ignores {', '.join(self.ignores)}" if self.ignores else ""
        return f"{self.kind.value}: {who}{seed}{ignores}"


def text_tuple(texts: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the texts as a tuple; one bare text is refused, since it would become its letters."""
    if isinstance(texts, str):
        raise TimelineError(f"{what} must be a list of texts, not one text.")
    return tuple(texts)


def check_text(text: object, what: str) -> str:
    """Return `text` if it is text that any file format can hold."""
    if not isinstance(text, str):
        raise TimelineError(f"{what} {text!r} is not text.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TimelineError(f"{what} {text!r} is not valid Unicode text.", hint="Replace lone surrogates.") from None
    return text


def json_safe(value: object, what: str = "metadata", depth: int = 0) -> Any:
    """Return a copy of `value` made only of what JSON keeps without loss; tuples become lists."""
    if depth > MAX_DEPTH:
        raise TimelineError(f"{what} is nested deeper than {MAX_DEPTH} levels.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_text(value, what)
    if type(value) is int and -(2**63) <= value < 2**64:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, (list, tuple)):
        return [json_safe(item, f"{what}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {check_text(key, f"{what} key"): json_safe(v, f'{what}["{key}"]', depth + 1) for key, v in value.items()}
    hint = "Use null, true, false, text, finite numbers, lists and objects."
    raise TimelineError(f"{what} holds {value!r:.80} ({type(value).__name__}), which JSON cannot keep.", hint=hint)
