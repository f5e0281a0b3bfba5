"""What a calibration found, as text."""

from __future__ import annotations

from collections.abc import Iterable

from syncline.describe import units
from syncline.questions.calibrate import CollectiveProfile, StepProfile

WORDS = {
    "products": "matrix products", "attention": "attention", "memory": "passes over memory",
    "exchange": "exchanges", "host": "host",
}  # fmt: skip


def step_profile_lines(answer: StepProfile) -> list[str]:
    """Return a calibrated step for people: before, after, and the multipliers with how sure they are."""
    measured, shipped, now = answer.measured_s, answer.shipped_s, answer.calibrated_s
    runs = answer.measured_runs
    lines = [
        f"{answer.job} on {answer.cluster} ({answer.gpu}): measured {units.show_time(measured)}",
        *([f"  read        {answer.read}"] if answer.read else []),
        f"  shipped     {units.show_time(shipped)}  ({shipped / measured - 1:+.1%})",
        f"  calibrated  {units.show_time(now)}  ({now / measured - 1:+.1%})",
        "",
        f"  times as long as the model says, after {runs} measured run{'s' if runs != 1 else ''}",
    ]
    for name, found in answer.multipliers.items():
        sigma = found.log_sigma
        lines.append(f"    {WORDS[name]:22} {found.value:5.2f}  within {sigma:.0%} (one sigma)")
    return [*lines, *(f"  remark: {text}" for text in answer.remarks)]


def collective_profile_lines(answer: CollectiveProfile) -> list[str]:
    """Return a calibrated collective for people."""
    rows = answer.rows
    lines = [
        f"{answer.collective} on {answer.ranks} ranks of {answer.cluster} ({answer.hosts} hosts): "
        f"{len(rows)} sizes of {answer.log}",
        "",
        "        size    measured     shipped",
    ]
    for row in rows:
        off = row.shipped_s / row.measured_s - 1
        lines.append(
            f"  {units.show_size(row.size_bytes):>10}  {units.show_time(row.measured_s):>10}  "
            f"{units.show_time(row.shipped_s):>10}  {off:+.1%}"
        )
    return lines


def text(answer: StepProfile | CollectiveProfile, width: int) -> Iterable[str]:
    """Return what a measurement says."""
    match answer:
        case StepProfile():
            return step_profile_lines(answer)
        case CollectiveProfile():
            return collective_profile_lines(answer)
