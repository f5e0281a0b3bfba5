"""Claims about networks for training, each checked by commands of syncline.

    verdicts = judge(load_claims(None), answer)          # the 70 that ship
    verdicts = judge(load_claims("mine.yaml"), answer)   # or one's own: docs/guides/claims.md has the keys

A claim states a range; a case is a command and which of its numbers is meant. All cases inside the range: reproduced.
None: refuted. Some, or cases on both sides of it: conditional, and the cases say on what. What only a measurement can
tell is measured by a script of the repository; `quick` reads what it printed last. Every verdict says what would change
it; where the number that is computed is one that was fitted, it is undecided.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syncline.describe.guide import cite
from syncline.describe.mistakes import problem
from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError, FileError, UsageError

GUIDE = cite("claims")
#: Commands that only compute, and options of theirs that write.
VERBS = ("schedule", "fabric", "simulate", "scenario", "step", "plan", "cost")
WRITES = ("--html", "--svg", "--png", "--trace", "--save", "--write-job", "--on")
#: The longest that one script may take.
SCRIPT_S = 1800.0
ROOT = Path(__file__).resolve().parents[3]

#: Runs `syncline WORDS --json`: what it printed, and its exit status.
Answer = Callable[[list[str]], tuple[Any, int]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClaimReading(_Strict):
    """One number: of a command's JSON, or of a file that the repository keeps."""

    run: str = ""
    take: str = ""
    file: str = ""
    find: str = ""
    script: str = ""  # what prints the text that `file` keeps: run, unless only the quick ones are
    times: float = 1.0
    over: ClaimReading | None = None


class ClaimCase(ClaimReading):
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
    cases: tuple[ClaimCase, ...] = Field(min_length=1)
    note: str = ""
    undecided: str = ""  # why the number that is computed cannot judge the claim


class ClaimFile(_Strict):
    """Claims, and descriptions that several of them use."""

    given: Mapping[str, str] = Field(default_factory=dict)
    claims: tuple[Claim, ...]

    def commands(self, claim: Claim) -> list[str]:
        """Return the commands that a claim is checked by, each once."""
        runs = (reading.run for case in claim.cases for reading in (case, case.over) if reading is not None)
        return list(dict.fromkeys(f"syncline {run}" for run in runs if run))

    def descriptions(self, claim: Claim) -> dict[str, str]:
        """Return the descriptions that those commands name, by file name."""
        words = {word for command in self.commands(claim) for word in shlex.split(command)}
        return {name: text for name, text in {**self.given, **claim.given}.items() if name in words}


@dataclass(frozen=True)
class CaseResult:
    """What a case came to: its number, and whether that is what the claim states."""

    case: ClaimCase
    value: float | None
    low: float
    high: float
    kept: bool = False  # read from a result that the repository keeps, not run
    why: str = ""  # why there is no value

    @property
    def margin(self) -> float:
        """How far the value is from the nearest end of what is stated, as a share of that end."""
        ends = [end for end in (self.low, self.high) if math.isfinite(end)]
        value = self.value or 0.0
        return min((abs(value - end) / max(abs(end), 1e-12) for end in ends), default=math.inf)

    @property
    def inside(self) -> bool | None:
        return None if self.value is None else self.low <= self.value <= self.high


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim and what came of it."""

    claim: Claim
    found: tuple[CaseResult, ...]

    @cached_property
    def word(self) -> str:
        known = [one for one in self.found if one.value is not None]
        if self.claim.undecided:
            return "undecided"
        if not known:
            return "not here"
        if all(one.inside for one in known):
            return "reproduced"
        return "conditional" if any(one.inside for one in known) or _straddles(known) else "refuted"

    @property
    def would_change(self) -> str:
        """What would make the verdict another one."""
        known = [one for one in self.found if one.value is not None]
        if self.claim.undecided:
            return f"a measurement: {self.claim.undecided}"
        if not known:
            why = next((one.why for one in self.found if one.why), "")
            return f"a run where the result can be made{f' ({why})' if why else ''}"
        if self.word == "conditional":
            held = [one.case.when or "as stated" for one in known if one.inside]
            return f"asking only for: {'; '.join(held) or 'what lies between the cases'}"
        nearest = min(known, key=lambda one: one.margin)
        when = f"{nearest.case.when}: " if nearest.case.when else ""
        unit = self.claim.unit if nearest.case.unit is None else nearest.case.unit
        how = "leaving" if nearest.inside else "reaching"
        return (
            f"{when}{how} {_range(nearest)} {unit}".rstrip() + f" (now {nearest.value:,.4g}, {nearest.margin:.0%} away)"
        )

    def to_json(self) -> JsonObject:
        """Return the verdict with every case as plain data."""
        cases = [
            {"when": one.case.when, "value": one.value, "low": _finite(one.low), "high": _finite(one.high),
             "unit": self.claim.unit if one.case.unit is None else one.case.unit, "inside": one.inside,
             "kept": one.kept, "command": _source(one.case)} | ({"why": one.why} if one.why else {})
            for one in self.found
        ]  # fmt: skip
        told = {name: getattr(self.claim, name) for name in ("id", "area", "claim", "stated", "unit", "note")}
        return told | {"verdict": self.word, "would_change": self.would_change, "cases": cases}


def _straddles(found: Sequence[CaseResult]) -> bool:
    """Say whether cases of the claim's own range lie on both sides of it: between them it holds."""
    own = [(one.value, one.low, one.high) for one in found if one.case.says is None and one.value is not None]
    return any(value < low for value, low, _ in own) and any(value > high for value, _, high in own)


def load_claims(path: str | Path | None) -> ClaimFile:
    """Return the claims of a file, or those that ship."""
    from syncline.describe.document import read_document, read_text

    if path is not None and Path(path).suffix.lower() == ".csv":
        raise DescriptionError(
            f"{path}: sentences alone cannot be judged; claims are YAML with what each states as a range (`says`) and "
            "the commands that give the number (`cases`).",
            hint=f"See {GUIDE}; `syncline validate claims --json` prints 70 of them.",
        )
    text = files("syncline.validation").joinpath("claims.yaml").read_text() if path is None else read_text(Path(path))
    document = read_document(text, str(path or "claims.yaml"))
    try:
        return ClaimFile.model_validate(document.data)
    except ValidationError as error:
        raise problem(document, error, GUIDE, ClaimFile) from None


def judge(
    claims: ClaimFile,
    answer: Answer,
    only: Sequence[str] = (),
    *,
    quick: bool = False,
    started: Callable[[str, str], None] = lambda claim, script: None,
) -> Iterator[ClaimVerdict]:
    """Yield the verdict of each claim, or of those named by number or area; `answer` runs a command for its JSON.

    `quick` reads what scripts printed when they were last kept instead of running them; `started` is told the claim
    and the script before one runs, which may take minutes.
    """
    chosen = select(claims, only)
    with tempfile.TemporaryDirectory(prefix="syncline-claims-") as folder:
        bench = _Bench(Path(folder), answer, quick)
        for claim in chosen:
            bench.started = partial(started, claim.id)
            yield ClaimVerdict(claim, tuple(_found(bench, claims, claim, case) for case in claim.cases))


def select(claims: ClaimFile, only: Sequence[str]) -> list[Claim]:
    """Return the claims of those numbers and areas; all where none is named."""
    known = {name for claim in claims.claims for name in (claim.id, claim.area)}
    for name in only:
        if name not in known:
            raise UsageError(f'no claim or area is called "{name}".', hint=f"Areas: {', '.join(_areas(claims))}.")
    return [claim for claim in claims.claims if not only or claim.id in only or claim.area in only]


def _areas(claims: ClaimFile) -> list[str]:
    return list(dict.fromkeys(claim.area for claim in claims.claims))


def _found(bench: _Bench, claims: ClaimFile, claim: Claim, case: ClaimCase) -> CaseResult:
    low, high = case.says or claim.says
    try:
        value = bench.number(case, {**claims.given, **claim.given})
    except DescriptionError as error:
        error.where = error.where or f"claim {claim.id}"
        raise
    kept = bool(case.file) and (bench.quick or not case.script)
    why = "" if value is not None else bench.failed.get(case.script, "")
    return CaseResult(case, value, -math.inf if low is None else low, math.inf if high is None else high, kept, why)


class _Bench:
    """Runs commands, each once, on the descriptions that a claim gives."""

    def __init__(self, folder: Path, answer: Answer, quick: bool = False) -> None:
        self.folder, self.quick = folder, quick
        self.answer = answer
        self.known: JsonObject = {}
        self.failed: dict[str, str] = {}  # scripts that printed nothing, and why
        self.started: Callable[[str], None] = lambda script: None

    def number(self, reading: ClaimReading, given: Mapping[str, str]) -> float | None:
        """Return the number of a reading; None where it is in a file that is not here."""
        if bool(reading.run) == bool(reading.file):
            raise DescriptionError("a case has `run` and `take`, or `file` and `find`.", hint=f"See {GUIDE}.")
        value = taken(self._run(reading.run, given), reading.take) if reading.run else self._text(reading)
        if value is None or reading.over is None:
            return None if value is None else value * reading.times
        under = self.number(reading.over, given)
        if under == 0:
            raise DescriptionError(f"divides by {_source(reading.over)}, which is 0.")
        return None if under is None else value * reading.times / under

    def _text(self, reading: ClaimReading) -> float | None:
        """Return the number that a pattern finds in what a script prints now, or in what was kept of it."""
        if self.quick or not reading.script:
            return _kept(reading)
        script = reading.script
        if script not in self.known and script not in self.failed:
            self.started(script)
            text, why = _printed(script)
            if why:
                self.failed[script] = why
            else:
                self.known[script] = text
        return None if script in self.failed else _number(reading, str(self.known[script]), script)

    def _run(self, command: str, given: Mapping[str, str]) -> Any:
        words = shlex.split(command)
        if not words or words[0] not in VERBS or any(word.split("=")[0] in WRITES for word in words):
            raise DescriptionError(
                f'"{command}" is not a command that a claim may run.',
                hint=f"One of {', '.join(VERBS)}, writing nothing.",
            )
        key = json.dumps([command, {name: text for name, text in given.items() if name in words}])
        if key not in self.known:
            data, status = self.answer([self._placed(word, given) for word in words])
            if status:
                message = data.get("message", "no answer") if isinstance(data, dict) else "no answer"
                raise DescriptionError(f"`syncline {command}` ended with {status}: {message}")
            self.known[key] = data
        return self.known[key]

    def _placed(self, word: str, given: Mapping[str, str]) -> str:
        """Return a word of a command; one that names a description is written to its file first."""
        if word not in given:
            return word
        path = self.folder / Path(word).name
        path.write_text(given[word])
        return str(path)


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


def _kept(reading: ClaimReading) -> float | None:
    """Return the number that a pattern's group finds in a kept file."""
    path = ROOT / reading.file
    if not path.is_file():
        return None
    try:
        text = path.read_text()
    except OSError as error:
        raise FileError(f'cannot look into "{reading.file}": {error}.') from None
    return _number(reading, text, reading.file)


def _number(reading: ClaimReading, text: str, where: str) -> float:
    try:
        found = re.search(reading.find, text, re.MULTILINE)
    except re.error as error:
        raise DescriptionError(f'"{reading.find}" is not a pattern: {error}.') from None
    if found is None:
        raise DescriptionError(f'"{reading.find}" is not in {where}.')
    return float(found.group(1).replace(",", ""))


def _printed(script: str) -> tuple[str, str]:
    """Return what a script of the repository prints, or why it printed nothing: tried twice, a lab may be disturbed."""
    words = shlex.split(script)
    if not words or words[0].split("/")[0] not in ("examples", "benchmarks") or ".." in words[0]:
        raise DescriptionError(f'"{script}" is not a script of examples/ or benchmarks/.', hint=f"See {GUIDE}.")
    if not (ROOT / words[0]).is_file():
        return "", f"{words[0]} is in the repository, not in the installed package"
    why = ""
    for _ in range(2):
        try:
            ran = subprocess.run(  # noqa: S603 - only scripts of this repository
                [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=SCRIPT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return "", f"{script} took more than {SCRIPT_S / 60:.0f} minutes"
        if ran.returncode == 0:
            return ran.stdout, ""
        why = f"{script} ended with {ran.returncode}: {(ran.stderr.strip().splitlines() or ['nothing said'])[-1][:200]}"
    return "", why


def _range(one: CaseResult) -> str:
    low, high = one.low, one.high
    if not math.isfinite(low):
        return f"at most {high:,.4g}"
    return f"at least {low:,.4g}" if not math.isfinite(high) else f"{low:,.4g} to {high:,.4g}"


def _source(reading: ClaimReading) -> str:
    own = f"syncline {reading.run}" if reading.run else f"python {reading.script}" if reading.script else reading.file
    return own if reading.over is None else f"{own}  over  {_source(reading.over)}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
