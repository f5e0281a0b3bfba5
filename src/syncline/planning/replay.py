"""The plan checked before it is printed: the best plans executed at flow level on the fabric they are for.

Closed forms rank thousands of plans; the few best are executed (`sim/step/executed/`), where collectives share links.
Both times are shown. Where they differ by more than `TRUSTED` for one of the plans, the executed time is the answer of
all that were executed (one kind of time ranks them) and the order is redone; the best of each other pipeline depth is
then executed too if its closed form is below the best so far: what closed forms have wrong of one depth they have wrong
of all its splits, and those alone may fill the first places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from syncline.describe import units
from syncline.errors import BelowBoundError, SynclineError
from syncline.fabric.fabric import Fabric
from syncline.planning.money import Money
from syncline.planning.plan import Plan
from syncline.sim.step.account import executed_account
from syncline.sim.step.constants import Constants
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.step import StepResult

TRUSTED = 0.15
MOST_CHECKED = 3
MOST_MORE = 5
"""Plans behind those that are executed too while closed forms, which were far off, call them faster than the best."""
MOST_GPUS = 32_768
Pair = tuple[Plan, StepResult]


def checked(
    fabric: Fabric,
    pairs: Sequence[Pair],
    constants: Constants,
    money: Money | None,
    more: Callable[[], Iterable[Pair]] = tuple,
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Return plans with what executing them took, best first, and what to say about it; `more` has other depths."""
    best = pairs[0][0].predicted.step_time_s
    # Another view of the network may move a time by what communication has in it; slower plans than that stay behind.
    near = [pair for pair in pairs[:MOST_CHECKED] if pair[0].predicted.step_time_s <= (1 + 2 * TRUSTED) * best]
    if fabric.num_gpus > MOST_GPUS:
        return tuple(pairs), (f"not executed at flow level: more than {MOST_GPUS:,} GPUs",)
    try:
        found = [_executed(fabric, pair, constants) for pair in near]
        rest = list(pairs[len(near) :])
        off = max(abs(_gap(plan)) for plan, _ in found)
        if off <= TRUSTED:
            return (*found, *rest), ()
        found = [_by_execution(pair, money) for pair in found]
        for pair in sorted(rest, key=_time_s)[:MOST_MORE]:
            if _time_s(pair) < min(map(_time_s, found)):
                rest.remove(pair)
                found.append(_by_execution(_executed(fabric, pair, constants), money))
        for pair in more():
            if _time_s(pair) < min(map(_time_s, found)):
                found.append(_by_execution(_executed(fabric, pair, constants), money))
    except BelowBoundError:
        raise
    except SynclineError as error:
        return tuple(pairs), (f"not executed at flow level: {error.message}",)
    ranked = sorted(found, key=_time_s)
    # What was not executed and seems faster only seems so.
    rest = [pair for pair in rest if _time_s(pair) >= _time_s(ranked[0])]
    first = ranked[0][0]
    note = f"executed at flow level, plans differ from the closed form by up to {off:.0%}; the executed times rank them"
    if first.decision != pairs[0][0].decision:
        took = units.show_time(_executed_s(found[0][0]))
        note += f" (the closed form's best, {pairs[0][0].decision.label}, takes {took})"
    return (*ranked, *rest), (note,)


def _executed(fabric: Fabric, pair: Pair, constants: Constants) -> Pair:
    """Return a plan with both its times, that of the closed form its answer."""
    plan, result = pair
    took = execute(fabric, result, constants).step_time_s
    return replace(plan, predicted=replace(
        plan.predicted, executed_s=took, closed_form_s=plan.predicted.step_time_s)), result  # fmt: skip


def _time_s(pair: Pair) -> float:
    return pair[0].predicted.step_time_s


def _executed_s(plan: Plan) -> float:
    return plan.predicted.executed_s or plan.predicted.step_time_s


def _gap(plan: Plan) -> float:
    p = plan.predicted
    return (p.executed_s or p.step_time_s) / (p.closed_form_s or p.step_time_s) - 1


def _by_execution(pair: Pair, money: Money | None) -> Pair:
    """Return a plan whose answer is the time that executing it took."""
    plan, p, executed_s = pair[0], pair[0].predicted, _executed_s(pair[0])
    faster = p.step_time_s / executed_s
    predicted = replace(
        p, step_time_s=executed_s, tokens_per_s=p.tokens_per_s * faster, mfu=p.mfu * faster,
        account=executed_account(p.account, executed_s), interval=p.interval.scaled(1 / faster),
    )  # fmt: skip
    cost = money.cost(executed_s, plan.tokens_per_step, plan.cost.num_gpus) if money and plan.cost else plan.cost
    limit = replace(plan.limit, share=plan.limit.share * faster, then_share=plan.limit.then_share * faster)
    return replace(plan, predicted=predicted, cost=cost, limit=limit), pair[1]
