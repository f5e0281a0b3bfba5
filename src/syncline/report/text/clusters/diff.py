"""Differences between a described and a found cluster, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from syncline.questions.clusters.diff import CableComparison

MOST = 40


def diff_lines(answer: CableComparison) -> list[str]:
    """Return a line a difference, the first forty, and what was counted."""
    diff = answer.diff
    counted = f"{diff.num_described:,} cables described, {diff.num_found:,} found"
    if not diff.differences:
        lines = [f"{answer.name}: cabled as described ({counted})"]
    else:
        kinds = Counter(one.kind for one in diff.differences)
        told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        many = "s" if len(diff.differences) > 1 else ""
        lines = [f"{answer.name}: {len(diff.differences):,} difference{many}: {told} ({counted})", ""]
        wide = min(48, max(len(one.where) for one in diff.differences[:MOST]))
        lines += [
            f"  {one.kind:<12}  {one.where:<{wide}}  described {one.described}, found {one.found}"
            for one in diff.differences[:MOST]
        ]
        if len(diff.differences) > MOST:
            lines.append(f"  ... and {len(diff.differences) - MOST:,} more; all of them with --json")
    if diff.switches:
        first = ", ".join(f"{theirs} as {mine}" for mine, theirs in list(diff.switches.items())[:4])
        more = len(diff.switches) - 4
        lines += ["", f"Switches taken by what hangs on them: {first}{f', and {more:,} more' if more > 0 else ''}."]
    return lines


def text(answer: CableComparison, width: int) -> Iterable[str]:
    """Return what differs, cable by cable."""
    return diff_lines(answer)
