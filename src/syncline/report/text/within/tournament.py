"""A tournament as text: who was slow to whom, and what explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from syncline.bench.tournament import Result
from syncline.describe import units
from syncline.questions.within.tournament import NOT_PLAYED, TournamentAnswer
from syncline.report.text.bench import finding_lines

MAX_MATRIX = 32


def tournament_lines(result: Result, names: Sequence[str]) -> list[str]:
    """Return a line of summary and, up to 32 hosts, the matrix of measured over expected rates in per cent."""
    share = result.measured_Bps / result.expected_Bps
    healthy = result.measured_Bps[result.attribution.slowness < max(0.1, 3 * result.attribution.noise)]
    paths = "paths known" if result.paths_known else "paths not known: flows kept apart on uplinks"
    lines = [
        f"{len(names)} hosts, {len(result.matches)} flows in {result.num_rounds} rounds ({paths})",
        f"healthy flows get {units.show_rate(float(np.median(healthy)))} at the median, "
        f"{100 * result.attribution.typical_factor:.0f} % of what the links allow; "
        f"noise {100 * result.attribution.noise:.0f} %",
    ]
    if len(names) <= MAX_MATRIX:
        lines += ["", *_matrix(result, names, share)]
    return lines


def _matrix(result: Result, names: Sequence[str], share: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[str]:
    worst = np.full((len(names), len(names)), np.nan)
    for match, value in zip(result.matches, share.tolist(), strict=True):
        worst[match.src, match.dst] = np.fmin(worst[match.src, match.dst], value)
    wide = max(len(name) for name in names)
    lines = [
        "rate in % of what the links allow: row sends, column receives",
        " " * wide + "".join(f"{i:>5}" for i in range(len(names))),
    ]
    for i, name in enumerate(names):
        cells = ["    -" if np.isnan(value) else f"{100 * value:5.0f}" for value in worst[i]]
        lines.append(f"{name:<{wide}}{''.join(cells)}")
    return lines


def text(answer: TournamentAnswer, width: int) -> Iterator[str]:
    """Yield who was slow to whom, and what explains it."""
    if answer.result is not None:
        yield from tournament_lines(answer.result, answer.hosts)
        yield ""
    yield from finding_lines(answer.findings) or ["nothing is slow beyond the noise, and no part loses packets"]
    if answer.result is None:
        yield NOT_PLAYED
