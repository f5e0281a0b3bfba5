"""How often intervals hold, as one screen of text."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.questions.validate import IntervalErrors, UnseenCoverage


def coverage_lines(answer: IntervalErrors) -> list[str]:
    """Return one line a group: how many measurements lie inside, and how far off the predictions are."""
    lines = [
        f"{answer.residuals:,} residuals; {answer.judged}",
        "",
        f"{'':42} {'rows':>6} {'sources':>8} {'in 90 %':>8} {'in 50 %':>8} {'error, median / p90 in %':>25}",
    ]
    for name, row in answer.groups.items():
        error = f"{100 * row.median_error:.1f} / {100 * row.p90_error:.0f}"
        shares = f"{row.in_90:>8.1%} {row.in_50:>8.1%}"
        lines.append(f"{name:42} {row.rows:>6,} {row.publications:>8} {shares} {error:>25}")
    if answer.unseen:
        lines += ["", *_unseen_lines(answer.unseen)]
    return lines


_GROUPS = {"collective, one": "collective, one scale-up domain", "collective, few": "collective, several",
           "collective, cards": "collective, cards without NVLink"}  # fmt: skip


def _unseen_lines(groups: Mapping[str, UnseenCoverage]) -> list[str]:
    lines = [
        "Blind sets from the sixth on as first scored, each in intervals made from what was known before it and what",
        "the sets before it were off by; a factor is the root of the 90 % interval's high end over its low one",
        f"{'':42} {'rows':>6} {'sources':>8} {'in 90 %':>8} {'in 50 %':>8} {'factor':>7} {'without: 90 %, factor':>22}",
    ]
    for group, row in groups.items():
        name = _GROUPS.get(group, group)
        shares = f"{row.in_90:>8.1%} {row.in_50:>8.1%} {row.factor:>7.2f}"
        without = f"{row.in_90_without:.1%}, {row.factor_without:.2f}"
        lines.append(f"{name:42} {row.rows:>6,} {row.publications:>8} {shares} {without:>22}")
    return lines
