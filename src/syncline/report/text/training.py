"""Predicted against published training runs, as one screen of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

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
