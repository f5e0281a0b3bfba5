"""The account and the limit of an executed step, of the same types as those of a priced one."""

from __future__ import annotations

from syncline.sim.step.account import LINES
from syncline.sim.step.constants import Constants
from syncline.sim.step.executed.execute import StepRun
from syncline.sim.step.executed.tasks import PARTS
from syncline.sim.step.limit import Limit, limit_of
from syncline.sim.step.step import StepResult
from syncline.timeline.account import Account, account_of


def executed_account(account: Account, run: StepRun) -> Account:
    """Return the account of a step that was executed, with what hides behind its work."""
    took: dict[str, float] = {}
    for each in run.collectives:
        part = PARTS[each.name.split(" ")[0]]
        took[part] = took.get(part, 0.0) + each.total_s
    hidden = {LINES[part]: max(whole - run.parts_s.get(part, 0.0), 0.0) for part, whole in took.items()}
    parts = {LINES[part]: seconds for part, seconds in run.parts_s.items()}
    without = {row.cause: min(row.step_s, run.step_time_s) for row in account.without}
    return account_of("executed", run.step_time_s, parts, name=account.name, hidden=hidden, without=without)


def executed_limit(result: StepResult, run: StepRun, k: Constants) -> Limit:
    """Return what limits a step as it was executed."""
    return limit_of(run.parts_s, run.step_time_s, result.machine, result.case, result.fits, k)
