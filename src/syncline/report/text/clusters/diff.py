"""Differences between a described and a found cluster, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from syncline.questions.clusters.diff import CableComparison

MOST = 40


def diff_lines(answer: CableComparison) -> list[str]:
    """Return a line a difference, the first forty, and what was counted."""
    counted = f"{answer.cables_described:,} cables described, {answer.cables_found:,} found"
    if not answer.differences:
        lines = [f"{answer.cluster}: cabled as described ({counted})"]
    else:
        kinds = Counter(one.kind for one in answer.differences)
        counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        many = "s" if len(answer.differences) > 1 else ""
        lines = [f"{answer.cluster}: {len(answer.differences):,} difference{many}: {counts} ({counted})", ""]
        wide = min(48, max(len(one.where) for one in answer.differences[:MOST]))
        lines += [
            f"  {one.kind:<12}  {one.where:<{wide}}  described {one.described}, found {one.found}"
            for one in answer.differences[:MOST]
        ]
        if len(answer.differences) > MOST:
            lines.append(f"  ... and {len(answer.differences) - MOST:,} more; all of them with --json")
    if answer.switches_taken_for:
        first = ", ".join(f"{theirs} as {mine}" for mine, theirs in list(answer.switches_taken_for.items())[:4])
        more = len(answer.switches_taken_for) - 4
        lines += ["", f"Switches taken by what hangs on them: {first}{f', and {more:,} more' if more > 0 else ''}."]
    return lines


def text(answer: CableComparison, width: int) -> Iterable[str]:
    """Return what differs, cable by cable."""
    return diff_lines(answer)
