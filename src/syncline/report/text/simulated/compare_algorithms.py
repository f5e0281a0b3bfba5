"""Which algorithm wins at which size, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from syncline.describe import units
from syncline.questions.simulated.compare_algorithms import AlgorithmComparison
from syncline.report.table import columns

MAX_COLUMNS, SIZE_WIDTH, COLUMN_WIDTH = 6, 9, 15
"""Algorithms shown side by side, fewer on a narrow terminal; what a size and an algorithm take of it."""


def text(answer: AlgorithmComparison, width: int) -> Iterator[str | Table]:
    """Yield who wins at which size."""
    times: dict[int, dict[str, float]] = {}
    for row in answer.rows:
        times.setdefault(row.size_bytes, {})[row.algorithm] = row.time_s
    names, left_out = _columns(answer, times, width)
    levels = " x ".join(f"{part.size:,} {part.name}{'s' if part.size > 1 else ''}" for part in answer.levels)
    yield f"{answer.collective} on {answer.cluster}: {answer.ranks:,} ranks ({levels}); * wins"
    yield contest_table(names, [(one.size_bytes, times[one.size_bytes], one.algorithm) for one in answer.winners])
    yield ""
    for winner in answer.winners:
        if winner.chunks > 1:
            yield f"{units.show_given_size(winner.size_bytes)}: {winner.algorithm} in {winner.chunks} chunks"
    if left_out:
        yield f"never first, and not shown: {', '.join(left_out)} (--json has them all)"
    for change in answer.crossovers:
        yield f"from {units.show_size(change.size_bytes)} on: {change.after} beats {change.before}"
    yield f"{answer.level} level; ignores {', '.join(answer.ignores)}"
    yield from (f"  assumed: {line}" for line in answer.assumed)


def contest_table(names: Sequence[str], rows: Sequence[tuple[int, Mapping[str, float], str]]) -> Table:
    """Return one line a size and one column an algorithm, the winner marked."""
    cells = [
        (units.show_given_size(size),
         *(units.show_time(times[n]) + (" *" if n == winner else "  ") if n in times else "-  " for n in names))
        for size, times, winner in rows
    ]  # fmt: skip
    heads = ("size", *(name.replace("-", "\n", 1) for name in names))
    return columns(cells, heads, right=range(len(heads)))


def _columns(
    answer: AlgorithmComparison, times: Mapping[int, Mapping[str, float]], width: int
) -> tuple[list[str], list[str]]:
    """Return the algorithms that win at some size, filled up with those that come nearest, and the rest."""
    behind: dict[str, float] = {}
    for mine in times.values():
        best = min(mine.values())
        for name, time_s in mine.items():
            gap = time_s / best if best > 0 else 1.0
            behind[name] = min(behind.get(name, gap), gap)
    winners = {winner.algorithm for winner in answer.winners}
    ordered = sorted(behind, key=lambda name: (name not in winners, behind[name]))
    cut = max(min(MAX_COLUMNS, (width - SIZE_WIDTH) // COLUMN_WIDTH), len(winners))
    return ordered[:cut], ordered[cut:]
