"""How far off predictions are, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.table import Table

from syncline.questions.validate import (
    WIDTHS,
    CollectiveErrors,
    GroupCoverage,
    IntervalErrors,
    TrainingErrors,
    UnseenCoverage,
)
from syncline.validation.collectives import CollectiveFigures, Errors


def collective_errors(found: CollectiveFigures) -> Iterator[str | Table]:
    """Yield errors by system and size band."""
    table = Table(title=f"Errors in %, {found.source}", title_justify="left", box=None, padding=(0, 1))
    table.add_column("system", no_wrap=True, max_width=26)
    for name in ("rows", "used", "all", "XS", "S", "M", "L", "six sizes", "interp.", "left out"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in {"overall": found.overall, **found.systems}.items():
        bands = [_percent(row.by_band[band]) for band in ("XS", "S", "M", "L")]
        others = [_percent(errors) for errors in (row.calibrated, row.interpolated, row.left_out)]
        table.add_row(name, str(row.rows), str(row.modelled), _percent(row), *bands, *others)
    yield table
    yield found.bands + ". Each cell: median / 90th percentile."
    far = found.overall.beyond_64_hosts
    if far.scored:
        yield f"Beyond 64 hosts ({far.scored} rows): {_percent(far)} %; the interval holds {far.coverage:.0%} of them."
    for name, row in found.systems.items():
        yield from (f"read: {name[:60]}: {words}" for words in row.remarks)
    for item in found.unmodelled:
        yield f"not modelled: {item.rows} rows of {item.system[:60]}: {item.reason}"


def _percent(row: Errors) -> str:
    if row.median_error is None or row.p90_error is None:
        return "-"
    return f"{100 * row.median_error:.1f}/{100 * row.p90_error:.0f}"


def coverage_lines(answer: IntervalErrors) -> list[str]:
    """Return one line a group: how many measurements lie inside, and how far off the predictions are."""
    lines = [
        f"{answer.residuals:,} residuals; {answer.judged}",
        "",
        COVERAGE_HEAD,
        *(_coverage_line(name, name, row) for name, row in answer.groups.items()),
    ]
    if answer.unseen:
        lines += ["", *_unseen_lines(answer.unseen)]
    return lines


_GROUPS = {
    "collective, one": "collective, one scale-up domain",
    "collective, few": "collective over RDMA",
    "collective, sockets": "collective over TCP",
    "collective, cards": "collective, cards without NVLink",
}


COVERAGE_HEAD = (
    f"{'':42} {'rows':>6} {'sources':>8} {'in 90 %':>8} {'in 50 %':>8} {'width':>7} {'wanted':>7} "
    f"{'error, median / p90 in %':>25}"
)


def _coverage_line(name: str, group: str, row: GroupCoverage | UnseenCoverage) -> str:
    error = f"{100 * row.median_error:.1f} / {100 * row.p90_error:.0f}"
    wanted = f"x{WIDTHS[group]:.1f}" if group in WIDTHS else ""
    shares = f"{row.in_90:>8.1%} {row.in_50:>8.1%} {f'x{row.width:.2f}':>7} {wanted:>7}"
    return f"{name:42} {row.rows:>6,} {row.publications:>8} {shares} {error:>25}"


def _unseen_lines(groups: Mapping[str, UnseenCoverage]) -> list[str]:
    return [
        "Blind sets from the sixth on as first scored, each in intervals made from what was known before it;",
        "a width is the high end of the 90 % interval over its low one",
        COVERAGE_HEAD,
        *(_coverage_line(_GROUPS.get(group, group), group, row) for group, row in groups.items()),
    ]


NAME_WIDTH = 58


def training_lines(payload: Mapping[str, Any]) -> list[str]:
    """Return the answer of `validate training` for people."""
    lines = [
        f"{payload['source']}: {payload['predicted_rows']} of {payload['rows']} rows predicted, "
        f"{payload['num_runs']} distinct runs, {payload['constants']['num_fitted']} fitted constants",
        "error = |predicted / measured step time - 1|, median / 90th percentile in %",
        "left out = by a fit that never saw the source",
        "",
        f"{'':{NAME_WIDTH}} {'runs':>5} {'error':>12} {'bias':>7} {'left out':>12}",
    ]
    lines += [_row(name, row, row["left_out"]) for name, row in payload["sources"].items() if row["num_runs"]]
    lines.append("")
    groups = ("dense", "experts", "all")
    lines += [_row(name, payload["overall"][name], payload["left_out"][name]) for name in groups]
    lines += ["", *_others(payload), *_readings(payload), *_unmodelled(payload)]
    return lines


def _readings(payload: Mapping[str, Any]) -> list[str]:
    """Return how free text was read, each reading once with the lines of the file that it stands for."""
    lines: dict[str, list[int]] = {}
    for run in payload["runs"]:
        assumed = [words for words in run["remarks"] if "not published" in words or "does not go with" in words]
        for words in dict.fromkeys([*run["readings"], *assumed]):
            lines.setdefault(words, []).append(run["line"])
    return [f"read: {_which(numbers)}: {words}" for words, numbers in lines.items()]


def _which(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:3]))
    return f"line {shown}" if len(numbers) == 1 else f"lines {shown}{' ...' if len(numbers) > 3 else ''}"


def _row(name: str, errors: Mapping[str, Any], left_out: Mapping[str, Any]) -> str:
    shown = name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 3]}..."
    bias = "-" if errors["bias"] is None else f"{100 * errors['bias']:+.1f}"
    return f"{shown:{NAME_WIDTH}} {errors['num_runs']:>5} {_pair(errors):>12} {bias:>7} {_pair(left_out):>12}"


def _pair(errors: Mapping[str, Any]) -> str:
    if errors["median_error"] is None:
        return "-"
    return f"{100 * errors['median_error']:.1f} / {100 * errors['p90_error']:.1f}"


def _others(payload: Mapping[str, Any]) -> list[str]:
    ratios, rank, held = payload["scaling_ratios"], payload["rank"], payload["coverage"]
    lines = []
    if held["num_runs"]:
        lines.append(
            f"inside the 90 % interval: {held['in_90']:.0%} of the runs, inside the 50 % interval: {held['in_50']:.0%}"
        )
    if ratios["num_pairs"]:
        lines.append(f"scaling ratios inside a series: {_pair(ratios)} % over {ratios['num_pairs']} pairs")
    if rank["num_sweeps"]:
        lines.append(f"rank correlation inside sweeps: median {rank['median']:.3f} over {rank['num_sweeps']} sweeps")
    return lines


def _unmodelled(payload: Mapping[str, Any]) -> list[str]:
    reasons = Counter(item["reason"] for item in payload["unmodelled"])
    return [
        f"not predicted: {count} row{'s' if count > 1 else ''}: {reason}" for reason, count in reasons.most_common()
    ]


_SIGNS = {True: "as stated", False: "not as stated", None: "not measured here"}


def claim_lines(verdict: Mapping[str, Any]) -> list[str]:
    """Return a claim with its cases for people."""
    lines = [f"{verdict['id']}  {verdict['verdict']}: {verdict['claim']} (stated: {verdict['stated']})"]
    for case in verdict["cases"]:
        when = f"{case['when']}: " if case["when"] else ""
        value = "-" if case["value"] is None else f"{case['value']:,.4g} {case['unit']}".rstrip()
        kept = " (kept, not run)" if case["kept"] and case["value"] is not None else ""
        why = f" ({case['why']})" if case.get("why") else ""
        lines.append(f"       {when}{value}, {_SIGNS[case['inside']]}{kept}{why}")
    lines.append(f"       would change: {verdict['would_change']}")
    return lines + ([f"       {verdict['note']}"] if verdict["note"] else [])


def text(answer: CollectiveErrors | TrainingErrors | IntervalErrors, width: int) -> Iterable[str | Table]:
    """Return errors against published measurements."""
    match answer:
        case CollectiveErrors():
            return collective_errors(answer.figures)
        case TrainingErrors():
            return training_lines(answer.to_json())
        case IntervalErrors():
            return coverage_lines(answer)
