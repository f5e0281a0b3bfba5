"""Break-even: how much, how long and at what rent owning costs the same as renting."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from syncline.describe.plain import JsonObject
from syncline.planning.cost.owning import HOURS_PER_YEAR, Owning
from syncline.planning.cost.renting import Quote

MAX_YEARS = 40.0


@dataclass(frozen=True)
class BreakEven:
    """Owning against one quote. Infinite means that owning never gets cheaper."""

    quote: Quote
    utilisation: float
    """Use above which owning is cheaper, over the assumed years; above 1 it cannot be reached."""
    years: float
    """Time after which owning is cheaper, at the assumed use; nothing is resold."""
    saving: float
    """Part of the rent that owning saves at the assumed years and use; negative: it costs more."""

    def to_json(self) -> JsonObject:
        """Return the figures as plain data; what does not exist is null."""
        return {
            "against": self.quote.label,
            "utilisation": self.utilisation if math.isfinite(self.utilisation) else None,
            "reachable": self.utilisation <= 1,
            "years": self.years if math.isfinite(self.years) else None,
            "saving": self.saving,
        }


def break_even(owned: Owning, quote: Quote) -> BreakEven:
    """Return both break-even points and the saving at the assumptions."""
    a = owned.assumptions
    rent = quote.cost_usd(a.years, a.utilisation)
    saving = 1 - owned.cost_usd(a.years, a.utilisation) / rent if rent else -math.inf
    return BreakEven(
        quote, break_even_utilisation(owned, quote, a.years), break_even_years(owned, quote, a.utilisation), saving
    )


def break_even_utilisation(owned: Owning, quote: Quote, years: float) -> float:
    """Return the use above which owning is cheaper over so many years; above 1, it never is.

    Both sides are straight lines in use. A commitment is paid whether used or not: then owning is cheaper at any use
    (0) or at none (infinite), judged at full use.
    """
    if quote.committed:
        return 0.0 if owned.cost_usd(years, 1.0) < quote.cost_usd(years, 1.0) else math.inf
    idle = owned.cost_usd(years, 0.0)
    slope = quote.cost_usd(years, 1.0) - (owned.cost_usd(years, 1.0) - idle)
    return idle / slope if slope > 0 else math.inf


def break_even_years(owned: Owning, quote: Quote, utilisation: float) -> float:
    """Return the time after which owning is cheaper at this use, without resale; infinite if it is not in 40 years."""
    new = owned.assumptions.model_copy(update={"resale": 0.0})
    kept = Owning(**{**vars(owned), "assumptions": new})
    return _crossing(lambda years: kept.cost_usd(years, utilisation) - quote.cost_usd(years, utilisation))


def break_even_rent(owned: Owning, years: float, utilisation: float) -> float:
    """Return the rent, in dollars per used GPU-hour, at which owning costs the same."""
    return owned.cost_usd(years, utilisation) / (owned.num_gpus * HOURS_PER_YEAR * years * utilisation)


def _crossing(excess: Callable[[float], float]) -> float:
    """Return where a function that starts positive and falls crosses zero."""
    low, high = 1e-6, MAX_YEARS
    if excess(high) > 0:
        return math.inf
    if excess(low) <= 0:
        return 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high
