"""The account of a step in words: causes with their parts, and what removing each would save where that differs."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.describe import units
from syncline.timeline.account import Account, AccountDifference, StepCause
from syncline.timeline.account.account import WORDS

LEAST_SHARE = 5e-4
HIDING = (StepCause.COPIES, StepCause.NETWORK, StepCause.LATE, StepCause.STAGE)
"""Causes of which it matters how much ran behind kernels."""


def account_lines(account: Account, indent: str = "  ") -> Iterator[str]:
    """Yield a step's account; parts below a twentieth of a percent are left out."""
    step = max(account.step_s, 1e-12)
    for cause in StepCause:
        seconds = account.seconds(cause)
        lines = [line for line in account.lines if line.cause is cause]
        hides = cause in HIDING
        if seconds / step < LEAST_SHARE and not (hides and account.hidden_s(cause) / step >= LEAST_SHARE):
            continue
        took = f"{units.show_time(seconds):>10} {seconds / step:7.1%}"
        yield f"{indent}{WORDS[cause]:46} {took}{_removal(account, cause)}"
        for line in lines:
            hidden_s = line.hidden_s if hides else 0.0
            if max(line.seconds, hidden_s) / step < LEAST_SHARE:
                continue
            hidden = f"  + {units.show_time(hidden_s)} hidden" if hidden_s / step >= LEAST_SHARE else ""
            name = line.what if len(line.what) <= 44 else f"{line.what[:43]}…"
            yield f"{indent}  {name:44} {units.show_time(line.seconds):>10} {line.seconds / step:7.1%}{hidden}"


def _removal(account: Account, cause: StepCause) -> str:
    """Return what removing a cause saves, where that is not its part."""
    removal = account.removal(cause)
    if removal is None or abs(removal.behind_s) < 0.01 * account.step_s:
        return ""
    why = "other work hid behind it" if removal.behind_s > 0 else "it also delays what follows"
    return f"  (removing it saves {units.show_time(max(removal.saves_s, 0.0))}: {why})"


def cause_lines(account: AccountDifference, before: str, after: str) -> Iterator[str]:
    """Yield two accounts by cause."""
    time = units.show_time
    yield f"  {'':46} {before:>10} {after:>10} {'change':>11}"
    steps = f"{time(account.before.step_s):>10} {time(account.after.step_s):>10} {signed(account.change_s):>11}"
    yield f"  {'step':46} {steps}"
    for row in account.causes:
        if max(row.before_s, row.after_s) < LEAST_SHARE * max(account.before.step_s, account.after.step_s):
            continue
        yield f"  {WORDS[row.cause]:46} {time(row.before_s):>10} {time(row.after_s):>10} {signed(row.change_s):>11}"


def signed(seconds: float) -> str:
    """Return a time with its sign; below a nanosecond no clock says anything."""
    return "0 s" if abs(seconds) < 1e-9 else f"{'-' if seconds < 0 else '+'}{units.show_time(abs(seconds))}"
