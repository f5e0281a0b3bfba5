"""Two accounts, subtracted line by line: predicted from measured, last week from this week, one rank from another."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.describe.model import reported
from syncline.timeline.account.account import Account, StepCause


@dataclass(frozen=True)
class LineDifference:
    """One line of two accounts."""

    cause: StepCause
    what: str
    before_s: float
    after_s: float

    @reported
    def change_s(self) -> float:
        """After less before."""
        return self.after_s - self.before_s


@dataclass(frozen=True)
class AccountDifference:
    """What became slower and faster between two steps; the changes add up to that of the step."""

    before: Account
    after: Account
    causes: tuple[LineDifference, ...]
    """By cause, in the order of the account."""
    lines: tuple[LineDifference, ...]
    """By line, the largest change first."""

    @reported
    def change_s(self) -> float:
        """What the step takes longer."""
        return self.after.step_s - self.before.step_s


def subtract(before: Account, after: Account) -> AccountDifference:
    """Return what changed from one step to another; a line that only one of them has took no time in the other.

    Where two sources cut a cause differently (a prediction its layers, a trace its kernels), what neither has of the
    other is one line.
    """
    old = {(line.cause, line.what): line.seconds for line in before.lines}
    new = {(line.cause, line.what): line.seconds for line in after.lines}
    if before.source != after.source:
        for cause in StepCause:
            apart = [[key for key in one if key[0] is cause and key not in other]
                     for one, other in ((old, new), (new, old))]  # fmt: skip
            if all(apart):
                for one, keys in zip((old, new), apart, strict=True):
                    one[cause, "all else"] = sum(one.pop(key) for key in keys)
    keys = list(dict.fromkeys([*old, *new]))
    lines = [LineDifference(cause, what, old.get((cause, what), 0.0), new.get((cause, what), 0.0))
             for cause, what in keys]  # fmt: skip
    causes = [LineDifference(cause, "", before.seconds(cause), after.seconds(cause)) for cause in StepCause]
    return AccountDifference(
        before, after, tuple(row for row in causes if row.before_s or row.after_s),
        tuple(sorted((row for row in lines if row.before_s or row.after_s), key=lambda row: -abs(row.change_s))),
    )  # fmt: skip
