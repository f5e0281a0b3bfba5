"""Step times in a training log: since when is a step longer than it was, and by how much? And did steps go on?

A level that rises and stays counts; a checkpoint, an evaluation or a slow start does not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from syncline.describe import units
from syncline.logs.context import LineContext, context
from syncline.logs.tally import Evidence, MatchRow, Tallies, Tally, rows_of
from syncline.logs.verdict import CheckVerdict

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SIGNAL = "signal.steps"
SLOWER = "train.steps.slower"
MAX_STEPS = 4096
"""Of more steps every second, fourth ... is kept, so that the end of a log counts as its beginning does."""
FEWEST_BEFORE, FEWEST_AFTER = 8, 5
LONGER = 1.10
_LATE, _EARLY = 0.2, 0.9  # all but a fifth of the later steps are longer than all but a tenth of the earlier ones
_FLAT = 3.0  # a step that takes longer than this many usual ones is a pause: it counts as so many
TAIL_BYTES = 1 << 16
_STEP = re.compile(
    r"(?i:\b(?:iteration|iter|global_step|step|epoch|batch)\b[\s:=\[\"'#]{0,6})(?P<step>\d{1,12})"
    r"|(?P<done>\d{1,12})/\d{1,12} \["
    r"|\b(?P<stage>Stage \d{1,3}: |initialized host \S{1,80} as rank \d|All distributed processes registered)"
)
_RESULT = re.compile(r"\d ?(?:[GM]i?B/s|[GM]b/s|tokens/s\w*|samples/s\w*|it/s|ima?ge?s?/s\w*)(?:\W|$)")


@dataclass
class StepTally(Tally):
    """The step lines of all files, thinned evenly where there are many."""

    _every: int = 1
    _seen: int = 0

    def add(self, match: re.Match[str], path: str, line: int, text: str, order: int, host: str = "") -> None:
        """Note one step line."""
        self.count += 1
        self._seen += 1
        if self._seen % self._every:
            return
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        seen = Evidence(path, line, text, LineContext(), order)
        self.rows[(order, line)] = MatchRow(groups, "", seen)
        if len(self.rows) > MAX_STEPS:
            self.rows = dict(list(self.rows.items())[1::2])
            self._every *= 2


def steps_slower(tallies: Tallies) -> list[CheckVerdict]:
    """Logs in which every step is longer from some line on, to the end."""
    kinds: dict[tuple[int, str], list[MatchRow]] = defaultdict(list)
    for row in rows_of(tallies, SIGNAL):
        kinds[row.evidence.order, next(iter(sorted(row.groups.keys() & _SECONDS.keys())), "")].append(row)
    found: dict[int, CheckVerdict] = {}
    for (order, kind), rows in kinds.items():
        if kind and order not in found and (verdict := _slower(kind, rows)):
            found[order] = verdict
    return list(found.values())


#: What a group's number is in seconds; what is only a rate is told as times as long.
_SECONDS = {"ms": 1e-3, "s": 1.0, "rate": 0.0}


def _slower(kind: str, rows: Sequence[MatchRow]) -> CheckVerdict | None:
    import numpy as np

    values = np.array([float(row.get(kind).replace(",", "").replace("_", "")) for row in rows])
    batch = np.array([float(row.get("batch") or 1) for row in rows])
    if not (values > 0).all() or not (batch > 0).all():
        return None
    times = (1 / values if kind == "rate" else values * _SECONDS[kind]) / batch  # a larger batch may take longer
    first = min(max(2, len(times) // 10), 20)
    split = risen(times[first:])
    if split is None:
        return None
    split += first
    before, after = float(np.median(times[first:split])), float(np.median(times[split:]))
    line = _with_context(rows[split])
    clock = line.context.time_s
    when = f", {datetime.fromtimestamp(clock, timezone.utc):%H:%M:%S}" if clock is not None else ""
    level = f" ({units.show_time(after * batch[-1])}, {units.show_time(before * batch[-1])} before)"
    text = (
        f"by {after / before - 1:.0%}{level if kind != 'rate' else ''}, since line {line.line:,} of {line.path}{when}"
    )
    return CheckVerdict(text, "", (_with_context(rows[split - 1]), line, _with_context(rows[-1])))


def risen(times: npt.NDArray[np.float64]) -> int | None:
    """Return where a level begins that is a tenth above the one before and lasts to the end, if there is one."""
    import numpy as np

    count = len(times)
    if count < FEWEST_BEFORE + FEWEST_AFTER:
        return None
    flat = np.minimum(times, _FLAT * float(np.median(times)))
    places = np.arange(FEWEST_BEFORE, count - FEWEST_AFTER + 1)
    sums = np.cumsum(flat)
    before, after = sums[places - 1] / places, (sums[-1] - sums[places - 1]) / (count - places)
    split = int(places[np.argmax((after - before) * np.sqrt(places * (count - places)))])
    level, late = float(np.median(times[:split])), float(np.quantile(times[split:], _LATE))
    longer = float(np.median(times[split:])) >= LONGER * level
    return split if longer and late > float(np.quantile(times[:split], _EARLY)) else None


def _with_context(row: MatchRow) -> Evidence:
    return replace(row.evidence, context=context(row.evidence.text))


class LogEnd:
    """The last bytes of a stream that goes by: did the job go on after a line that looked like trouble?"""

    def __init__(self) -> None:
        self._data = b""

    def passing(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the blocks as they are."""
        for block in blocks:
            self._data = block[-TAIL_BYTES:] if len(block) >= TAIL_BYTES else (self._data + block)[-TAIL_BYTES:]
            yield block

    def went_on(self, num_lines: int) -> int:
        """Return a line in front of which nothing stopped the job, or 0.

        Two steps or results stand there and after; a script's next stage and ranks that have met count as steps.
        """
        lines = self._data.decode("utf-8", "replace").removesuffix("\n").split("\n")
        last, marks = "", 0
        for back, line in enumerate(reversed(lines)):
            mark = _mark(line)
            if mark and mark != last:
                last, marks = mark, marks + 1
                if marks == 2:
                    return num_lines - back
        return 0


def _mark(line: str) -> str:
    step = _STEP.search(line)
    if step is not None:
        return step["step"] or step["done"] or step["stage"]
    return line if _RESULT.search(line) else ""
