"""The account of a step: every second of it has one cause, and the causes add up to the step.

    seconds = {(StepCause.KERNELS, "matrix products"): 0.3, (StepCause.NETWORK, "all-reduce"): 0.1}
    account = account_of("measured", 0.4, seconds)
    account.seconds(StepCause.NETWORK), account.share(StepCause.NETWORK)

At each moment the device's own work counts first, then copies, then communication, then what the host did while the
device was idle. What a cause hides behind is therefore not on its line; `hidden_s` says how much of it ran behind
other work, and a `Removal` says what the step takes without the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from syncline.describe.model import reported
from syncline.errors import TimelineError

LEAST_REMAINDER = 1e-3
"""Share of a step by which its parts may miss it: rounding of the clocks that traces are written with."""


class StepCause(StrEnum):
    """What a moment of a step is spent on; where several apply, the first in this order counts."""

    KERNELS = "kernels"
    COPIES = "copies"
    NETWORK = "network"
    LATE = "late rank"
    STAGE = "pipeline stage"
    INPUT = "input"
    HOST = "host"
    IDLE = "idle"


WORDS = {
    StepCause.KERNELS: "the device computes",
    StepCause.COPIES: "the device copies memory",
    StepCause.NETWORK: "waiting for a collective's data",
    StepCause.LATE: "waiting for the slowest rank of a collective",
    StepCause.STAGE: "waiting for another pipeline stage",
    StepCause.INPUT: "waiting for input or storage",
    StepCause.HOST: "waiting for the host",
    StepCause.IDLE: "idle, and nothing recorded says why",
}
COMMUNICATION = (StepCause.NETWORK, StepCause.LATE, StepCause.STAGE)


@dataclass(frozen=True)
class AccountLine:
    """One part of a step: its cause, what exactly, and how much more of it ran behind other work."""

    cause: StepCause
    what: str
    seconds: float
    hidden_s: float = 0.0


@dataclass(frozen=True)
class Removal:
    """What a step takes without a cause, priced or replayed again."""

    cause: StepCause
    step_s: float
    saves_s: float
    behind_s: float
    """What hid behind the cause and takes its place: its part of the account, less what removing it saves.

    Below 0 where the cause also slowed what ran beside it."""


@dataclass(frozen=True)
class Account:
    """One step, attributed without remainder."""

    source: str
    """predicted, executed, previewed, live or measured"""
    name: str
    step_s: float
    lines: tuple[AccountLine, ...]
    without: tuple[Removal, ...] = ()

    def __post_init__(self) -> None:
        missing = self.step_s - sum(line.seconds for line in self.lines)
        if abs(missing) > LEAST_REMAINDER * max(self.step_s, 1e-12):
            raise TimelineError(f"the parts of {self.name} miss its step of {self.step_s:.6g} s by {missing:.3g} s.")

    @reported
    def causes_s(self) -> dict[str, float]:
        """Seconds by cause, in the order in which causes count."""
        return {str(cause): self.seconds(cause) for cause in StepCause if self.seconds(cause) > 0}

    def seconds(self, *causes: StepCause) -> float:
        """Return the part of the step that some causes take."""
        return sum(line.seconds for line in self.lines if line.cause in causes)

    def share(self, *causes: StepCause) -> float:
        """Return that part as a share of the step."""
        return self.seconds(*causes) / self.step_s if self.step_s > 0 else 0.0

    def hidden_s(self, *causes: StepCause) -> float:
        """Return how much of some causes ran behind other work."""
        return sum(line.hidden_s for line in self.lines if line.cause in causes)

    def removal(self, cause: StepCause) -> Removal | None:
        """Return what the step takes without a cause, where that was priced."""
        return next((row for row in self.without if row.cause is cause), None)


Parts = Mapping[tuple[StepCause, str], float]


def account_of(
    source: str, step_s: float, parts: Parts, *, name: str = "step", hidden: Parts | None = None,
    without: Mapping[StepCause, float] | None = None,
) -> Account:  # fmt: skip
    """Return the account of a step from its parts; `without` is the step's time without some causes."""
    behind = hidden or {}
    keys = dict.fromkeys([*parts, *behind])
    lines = [AccountLine(cause, what, parts.get((cause, what), 0.0), behind.get((cause, what), 0.0))
             for cause, what in keys]  # fmt: skip
    kept = [line for line in lines if line.seconds > 0 or line.hidden_s > 0]
    account = Account(source, name, step_s, tuple(sorted(kept, key=_order)))
    return with_removals(account, without or {})


def reported_account(
    source: str, name: str, step_s: float, compute_s: float, exposed_s: float, late_s: float = 0.0
) -> Account:
    """Return the account of a step of which only computing and exposed communication are known.

    `late_s` of the exposed communication is waiting for the last rank to come.
    """
    compute = min(compute_s, step_s)
    exposed = min(exposed_s, step_s - compute)
    late = min(late_s, exposed)
    parts = {(StepCause.KERNELS, "computing"): compute, (StepCause.LATE, "the last rank to come"): late,
             (StepCause.NETWORK, "collectives and messages"): exposed - late,
             (StepCause.IDLE, "nothing reported"): step_s - compute - exposed}  # fmt: skip
    return account_of(source, step_s, parts, name=name)


def with_removals(account: Account, without: Mapping[StepCause, float]) -> Account:
    """Return an account that also says what the step takes without some causes."""
    rows = tuple(_removal(account, cause, step_s) for cause, step_s in without.items())
    return Account(account.source, account.name, account.step_s, account.lines, rows)


def _removal(account: Account, cause: StepCause, step_s: float) -> Removal:
    saves = account.step_s - step_s
    return Removal(cause, step_s, saves, account.seconds(cause) - saves)


def _order(line: AccountLine) -> tuple[int, float]:
    return list(StepCause).index(line.cause), -line.seconds
