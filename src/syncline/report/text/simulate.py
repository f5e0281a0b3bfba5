"""Simulated collectives as a table of the shape of nccl-tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from syncline.describe import units
from syncline.questions.simulate import Simulation
from syncline.questions.simulated.rows import CollectiveRow
from syncline.report.text.simulated.packet import against_flow, background_line


def sweep_table(rows: Sequence[CollectiveRow], width: int = 0) -> Table:
    """Return one line a size: time, bandwidths, the limiting link and how it was found.

    On a screen of `width` columns the least telling ones are left out rather than any figure cut; names fold.
    """
    sure, beside = any(row.low_s is not None for row in rows), any(row.best is not None for row in rows)
    cells = {
        "size": [units.show_given_size(row.size_bytes) for row in rows],
        rows[0].library or "time": [units.show_time(row.time_s) for row in rows],
        **({"90 % between": [_between(row.low_s, row.high_s) for row in rows]} if sure else {}),
        **({"50 % between": [_between(row.low50_s, row.high50_s) for row in rows]} if sure else {}),
        **({"best known\nschedule": [_time(row.best.time_s if row.best else None) for row in rows]} if beside else {}),
        **({"bound": [_time(row.bound_s) for row in rows]} if sure else {}),
        "algbw\nGB/s": [_gigabytes(row.algbw_Bps) for row in rows],
        "busbw\nGB/s": [_gigabytes(row.busbw_Bps) for row in rows],
        "wire\nGB/s": [_gigabytes(row.wire_Bps) for row in rows],
        "util": [f"{100 * row.utilisation:.1f} %" if row.utilisation is not None else "-" for row in rows],
        "algorithm": [row.algorithm for row in rows],
        # NCCL's own choice has no chunks, and one method.
        **({} if sure else {"chunks": [str(row.chunks or "-") for row in rows]}),
        "limiting link": [row.limiting_link or "-" for row in rows],
        **({} if sure else {"method": [row.method for row in rows]}),
    }
    table = Table(box=None, pad_edge=False)
    shown = _that_fit(cells, width)
    for heading in shown:
        figure = heading not in _NAMES
        right = figure and heading != "chunks"
        table.add_column(heading, justify="right" if right else "left", no_wrap=figure, overflow="fold")
    for line in zip(*(cells[heading] for heading in shown), strict=True):
        table.add_row(*line)
    return table


_NAMES = {"algorithm": 12, "limiting link": 18, "method": 8}
"""Columns of words, and how narrow they may fold."""
_LEAST = (
    "50 % between", "wire\nGB/s", "method", "chunks", "util", "algbw\nGB/s", "algorithm", "limiting link", "bound",
)  # fmt: skip
"""What is left out first on a narrow screen."""
_BEFORE_FOLDING = ("50 % between", "wire\nGB/s")  # rather than a name in two lines


def _that_fit(cells: Mapping[str, Sequence[str]], width: int) -> list[str]:
    def wide(heading: str) -> int:
        return max(map(len, (*heading.split("\n"), *cells[heading])))

    def folded(heading: str) -> int:
        return min(wide(heading), _NAMES.get(heading, wide(heading)))

    shown = list(cells)
    for heading in _LEAST:
        gaps = 2 * (len(shown) - 1)
        fits = folded if heading not in _BEFORE_FOLDING else wide
        if not width or sum(map(fits, shown)) + gaps <= width:
            break
        if heading in shown:
            shown.remove(heading)
    return shown


def _time(time_s: float | None) -> str:
    return "-" if time_s is None else units.show_time(time_s)


def _between(low_s: float | None, high_s: float | None) -> str:
    if low_s is None or high_s is None:
        return "-"
    first, last = units.show_time(low_s), units.show_time(high_s)
    number, _, unit = first.partition(" ")
    return f"{number}..{last}" if last.endswith(f" {unit}") else f"{first}..{last}"


def _gigabytes(rate_Bps: float | None) -> str:
    return "-" if rate_Bps is None else f"{rate_Bps / 1e9:.3g}" if rate_Bps < 1e9 else f"{rate_Bps / 1e9:.2f}"


METHODS = {
    "pipeline": "chunks that follow each other: filling the stages, then the pace of the busiest link or sender",
    "recurrence": "no two flows compete: exact recurrence over rounds",
    "flows": "every flow simulated",
    "periodic": "repeated rounds simulated to their steady state, then extrapolated exactly",
    "barrier": "each different round solved once with a barrier after it: a bound",
    "bound": "lower bound: busiest link and longest chain of rounds",
    "nccl": "the library's choice and its fitted cost",
    "packets": "every packet simulated",
}


def method_lines(methods: Sequence[str]) -> list[str]:
    """Return what the methods that occur mean."""
    lines = []
    for method in dict.fromkeys(methods):
        folded, plain = method.startswith("folded "), method.removeprefix("folded ")
        text = METHODS.get(plain, plain)
        lines.append(f"  {method}: {'identical ranks simulated as one; ' if folded else ''}{text}")
    return lines


def best_lines(answer: Simulation) -> Iterator[str]:
    """Yield what the best known schedule is, and how to have it."""
    row = answer.rows[-1]
    if row.best is None:
        return
    if row.best.method == "nccl":
        yield f"no schedule known here is faster than what {row.library} runs"
        return
    pieces = f" in {row.best.chunks} chunks" if row.best.chunks > 1 else ""
    how = "priced by its pipeline" if row.best.method == "pipeline" else "executed at flow level"
    yield f"best known schedule; {row.library} does not run it; export with --schedule"
    yield (
        f"  {units.show_given_size(row.size_bytes)}: {row.best.name}{pieces}, {how}, limited by "
        f"{row.best.limiting_link or 'latency'}"
    )


def text(answer: Simulation, width: int) -> Iterator[str | Table]:
    """Yield a sweep of sizes."""
    how = ", ".join(filter(None, (answer.placement, answer.routing, answer.transport)))
    yield f"{answer.collective} on {answer.cluster}: {answer.ranks:,} ranks" + (f" ({how})" if how else "")
    yield sweep_table(answer.rows, width)
    yield ""
    yield from best_lines(answer)
    if (spread := answer.spread) is not None:
        times = {"median": spread.median_s, "p10": spread.p10_s, "p90": spread.p90_s, "worst": spread.worst_s}
        shown = ", ".join(f"{name} {units.show_time(time_s)}" for name, time_s in times.items())
        yield f"over {spread.num_seeds} seeds, {units.show_given_size(spread.size_bytes)}: {shown}"
    for row in answer.rows:
        if row.packet is not None:
            yield "\n  ".join(against_flow(row))
            if row.packet.background is not None:
                yield f"  {background_line(row.packet.background)}"
    source = f"{answer.rows[-1].library}'s time" if answer.rows[-1].library else f"{answer.level} level;"
    yield f"{source} ignores {', '.join(answer.ignores)}"
    yield from (f"  assumed: {line}" for line in answer.assumed)
    yield from (f"  intervals from {line}" for line in answer.interval_basis)
    yield from method_lines([row.method for row in answer.rows])
