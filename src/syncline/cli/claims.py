"""Claims about networks for training, each checked by commands of syncline.

    verdicts = judge(load_claims(None))          # the 70 that ship
    verdicts = judge(load_claims("mine.yaml"))   # or one's own: docs/guides/claims.md has the keys

A claim states a range; a case is a command and which of its numbers is meant. All cases inside the range: reproduced.
None: refuted. Some, or cases on both sides of it: conditional, and the cases say on what. What only a measurement can
tell is read from the results that the repository keeps.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syncline.errors import DescriptionError, FileError, UsageError

GUIDE = "docs/guides/claims.md"
#: Commands that only compute, and options of theirs that write.
VERBS = ("schedule", "fabric", "simulate", "compare-algorithms", "scenario", "step", "volumes", "plan", "cost")
WRITES = ("--html", "--svg", "--png", "--trace", "--save", "--write-job", "--on")
ROOT = Path(__file__).resolve().parents[3]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Reading(_Strict):
    """One number: of a command's JSON, or of a file that the repository keeps."""

    run: str = ""
    take: str = ""
    file: str = ""
    find: str = ""
    times: float = 1.0
    over: Reading | None = None


class Case(Reading):
    """A number that a claim is measured by, and under which condition."""

    when: str = ""
    unit: str | None = None  # where it differs from the claim's own
    says: tuple[float | None, float | None] | None = None  # where it differs from the claim's own range


class Claim(_Strict):
    """A claim: what it states as a range, and how it is checked."""

    id: str
    area: str
    claim: str
    stated: str
    unit: str = ""
    says: tuple[float | None, float | None]
    given: Mapping[str, str] = Field(default_factory=dict)
    cases: tuple[Case, ...] = Field(min_length=1)
    note: str = ""


class ClaimFile(_Strict):
    """Claims, and descriptions that several of them use."""

    given: Mapping[str, str] = Field(default_factory=dict)
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Found:
    """What a case came to: its number, and whether that is what the claim states."""

    case: Case
    value: float | None
    low: float
    high: float

    @property
    def inside(self) -> bool | None:
        return None if self.value is None else self.low <= self.value <= self.high


@dataclass(frozen=True)
class Verdict:
    """A claim and what came of it."""

    claim: Claim
    found: tuple[Found, ...]

    @cached_property
    def word(self) -> str:
        known = [one for one in self.found if one.value is not None]
        if not known:
            return "not here"
        if all(one.inside for one in known):
            return "reproduced"
        return "conditional" if any(one.inside for one in known) or _straddles(known) else "refuted"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict with every case as plain data."""
        cases = [
            {"when": one.case.when, "value": one.value, "low": _finite(one.low), "high": _finite(one.high),
             "unit": self.claim.unit if one.case.unit is None else one.case.unit, "inside": one.inside,
             "command": _source(one.case)}
            for one in self.found
        ]  # fmt: skip
        told = {name: getattr(self.claim, name) for name in ("id", "area", "claim", "stated", "unit", "note")}
        return told | {"verdict": self.word, "cases": cases}


def _straddles(found: Sequence[Found]) -> bool:
    """Say whether cases of the claim's own range lie on both sides of it: between them it holds."""
    own = [(one.value, one.low, one.high) for one in found if one.case.says is None and one.value is not None]
    return any(value < low for value, low, _ in own) and any(value > high for value, _, high in own)


def load_claims(path: str | Path | None) -> ClaimFile:
    """Return the claims of a file, or those that ship."""
    from syncline.fabric.document import read_document, read_text

    text = files("syncline.cli").joinpath("claims.yaml").read_text() if path is None else read_text(Path(path))
    document = read_document(text, str(path or "claims.yaml"))
    try:
        return ClaimFile.model_validate(document.data)
    except ValidationError as error:
        first = error.errors()[0]
        spot = ".".join(map(str, first["loc"]))
        raise DescriptionError(f"{spot}: {first['msg']}.", where=document.source, hint=f"See {GUIDE}.") from None


def judge(claims: ClaimFile, only: Sequence[str] = ()) -> Iterator[Verdict]:
    """Yield the verdict of each claim, or of those named by number or area."""
    known = {name for claim in claims.claims for name in (claim.id, claim.area)}
    for name in only:
        if name not in known:
            raise UsageError(f'no claim or area is called "{name}".', hint=f"Areas: {', '.join(_areas(claims))}.")
    with tempfile.TemporaryDirectory(prefix="syncline-claims-") as folder:
        bench = _Bench(Path(folder))
        for claim in claims.claims:
            if not only or claim.id in only or claim.area in only:
                yield Verdict(claim, tuple(_found(bench, claims, claim, case) for case in claim.cases))


def _areas(claims: ClaimFile) -> list[str]:
    return list(dict.fromkeys(claim.area for claim in claims.claims))


def _found(bench: _Bench, claims: ClaimFile, claim: Claim, case: Case) -> Found:
    low, high = case.says or claim.says
    try:
        value = bench.number(case, {**claims.given, **claim.given})
    except DescriptionError as error:
        error.where = error.where or f"claim {claim.id}"
        raise
    return Found(case, value, -math.inf if low is None else low, math.inf if high is None else high)


class _Bench:
    """Runs commands, each once, on the descriptions that a claim gives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, Any] = {}

    def number(self, reading: Reading, given: Mapping[str, str]) -> float | None:
        """Return the number of a reading; None where it is in a file that is not here."""
        if bool(reading.run) == bool(reading.file):
            raise DescriptionError("a case has `run` and `take`, or `file` and `find`.", hint=f"See {GUIDE}.")
        value = taken(self._run(reading.run, given), reading.take) if reading.run else _kept(reading)
        if value is None or reading.over is None:
            return None if value is None else value * reading.times
        under = self.number(reading.over, given)
        if under == 0:
            raise DescriptionError(f"divides by {_source(reading.over)}, which is 0.")
        return None if under is None else value * reading.times / under

    def _run(self, command: str, given: Mapping[str, str]) -> Any:
        words = shlex.split(command)
        if not words or words[0] not in VERBS or any(word.split("=")[0] in WRITES for word in words):
            raise DescriptionError(
                f'"{command}" is not a command that a claim may run.',
                hint=f"One of {', '.join(VERBS)}, writing nothing.",
            )
        key = json.dumps([command, {name: text for name, text in given.items() if name in words}])
        if key not in self.known:
            self.known[key] = _answer([self._placed(word, given) for word in words], command)
        return self.known[key]

    def _placed(self, word: str, given: Mapping[str, str]) -> str:
        """Return a word of a command; one that names a description is written to its file first."""
        if word not in given:
            return word
        path = self.folder / Path(word).name
        path.write_text(given[word])
        return str(path)


def _answer(words: list[str], command: str) -> Any:
    from syncline.cli.app import run

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = run([*words, "--json"])
    data = json.loads(out.getvalue() or "{}")
    if status:
        raise DescriptionError(f"`syncline {command}` ended with {status}: {data.get('message', 'no answer')}")
    return data


def taken(data: Any, path: str) -> float:
    """Return the number at a path of keys, places and choices: `rows.0.time_s`, `volumes.kind=data.size_bytes`.

    A star adds up over all: `volumes.*.size_bytes`.
    """
    at = data
    steps = path.split(".")
    for number, step in enumerate(steps):
        if step == "*":
            items = at.values() if isinstance(at, dict) else at
            return math.fsum(taken(item, ".".join(steps[number + 1 :])) for item in items)
        at = _next(at, step, path)
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        raise DescriptionError(f'"{path}" is {str(at)[:60]!r}, not a number.')
    return float(at)


def _next(at: Any, step: str, path: str) -> Any:
    key, chosen, wanted = step.partition("=")
    if chosen and isinstance(at, list):
        found = [item for item in at if isinstance(item, dict) and str(item.get(key)) == wanted]
    elif isinstance(at, dict):
        found = [at[step]] if step in at else []
    else:
        found = [at[int(step)]] if isinstance(at, list) and step.isdigit() and int(step) < len(at) else []
    if not found:
        raise DescriptionError(f'there is no "{step}" on the way to "{path}".', hint="Look at the command's --json.")
    return found[0]


def _kept(reading: Reading) -> float | None:
    """Return the number that a pattern's group finds in a kept file."""
    path = ROOT / reading.file
    if not path.is_file():
        return None
    try:
        found = re.search(reading.find, path.read_text(), re.MULTILINE)
    except (OSError, re.error) as error:
        raise FileError(f'cannot look into "{reading.file}": {error}.') from None
    if found is None:
        raise DescriptionError(f'"{reading.find}" is not in {reading.file}.')
    return float(found.group(1).replace(",", ""))


def _source(reading: Reading) -> str:
    own = f"syncline {reading.run}" if reading.run else reading.file
    return own if reading.over is None else f"{own}  over  {_source(reading.over)}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
