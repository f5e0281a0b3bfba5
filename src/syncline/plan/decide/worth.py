"""What is worth doing: changes that earn more than they cost, after their price and the risk that they disappoint."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.plan.money import Money
from syncline.plan.sensitivity import Improvement

#: Savings below this part of the time are smaller than what the step model can tell apart.
LEAST_SAVING = 0.005


def worthwhile(actions: Sequence[Improvement], money: Money | None) -> tuple[Improvement, ...]:
    """Return the actions worth doing, most money first; nobody rewires a cluster that is rented.

    Without prices they are those that cost nothing, the largest saving after risk first.
    """
    if money is None:
        free = [a for a in actions if a.saving >= LEAST_SAVING and a.kind != "hardware"]
        return tuple(sorted(free, key=lambda a: -a.saving * a.chance))
    years = money.assumptions.years
    ranked = []
    for action in actions:
        net = action.net_usd_per_year(years)
        if net is None or net <= 0 or action.saving < LEAST_SAVING or (action.kind == "hardware" and not money.owned):
            continue
        ranked.append((net, action))
    return tuple(action for _, action in sorted(ranked, key=lambda pair: -pair[0]))
