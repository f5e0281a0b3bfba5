"""What does a cluster cost, owned and rented, and what does a job on it cost?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import UsageError
from syncline.plan.cost.assumptions import load_assumptions
from syncline.plan.cost.prices import load_prices
from syncline.plan.cost.reliability import load_reliability
from syncline.plan.cost.statement import CostedRun, Statement, statement
from syncline.plan.decide.forecast import owned_interval
from syncline.questions.answer import Answer
from syncline.questions.cluster import Cluster, built


@dataclass(frozen=True, eq=False)
class CostAnswer(Answer):
    """A GPU-hour owned against rented, where the money goes, what failures, steps and tokens cost."""

    statement: Statement = field(repr=False)

    def to_json(self) -> JsonObject:
        owned = self.statement.owned.to_json() | {"usd_per_gpu_hour_interval": self.interval}
        return self.statement.to_json() | {"owned": owned}

    @property
    def interval(self) -> JsonObject:
        """Where an owned GPU-hour may lie; a run's cost in `plan` moves with the same ranges."""
        return owned_interval(self.statement.owned)


def cost(
    cluster: Cluster,
    *,
    step_time: str | None = None,
    tokens_per_step: str | float | None = None,
    steps: str | float | None = None,
    budget: str | float | None = None,
    upgrade_price: str | float | None = None,
    upgrade_step_time: str | None = None,
    assumptions: str | Path | None = None,
    assume: Mapping[str, object] | None = None,
    prices: str | Path | None = None,
    reliability: str | Path | None = None,
) -> CostAnswer:
    """Say what a cluster costs; `assume` sets any assumption by name (years, utilisation, cloud ...).

    >>> cost("h100-64-rail", assume={"years": 3}).to_json()["gpus"]
    512
    """
    assumed, origin = load_assumptions(Path(assumptions) if assumptions else None, dict(assume or {}))
    found = statement(
        built(cluster),
        assumed,
        prices=load_prices(Path(prices) if prices else None),
        reliability=load_reliability(Path(reliability) if reliability else None),
        origin=origin,
        run=_run(step_time, tokens_per_step, steps),
        budget_usd=read_number("--budget", budget) if budget is not None else None,
        upgrade=_upgrade(upgrade_price, upgrade_step_time),
    )
    return CostAnswer(found)


def read_number(option: str, given: str | float) -> float:
    """Read 250000, 4M, 2.5B or $500k.

    >>> read_number("--budget", "$2.5M")
    2500000.0
    """
    text = str(given)
    factors = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
    digits = text.replace("_", "").replace(",", "").replace("$", "").strip()
    factor = factors.get(digits[-1:], 1.0)
    try:
        value = float(digits[:-1] if factor != 1.0 else digits) * factor
    except ValueError:
        raise UsageError(f'{option} "{text}" is not a number.', hint="Write it as 250000, 4M or 500k.") from None
    if not 0 <= abs(value) < 1e30:
        raise UsageError(f"{option} {text} is out of range.", hint="Write a finite number.")
    return value


def _run(step_time: str | None, tokens_per_step: str | float | None, steps: str | float | None) -> CostedRun | None:
    if step_time is None:
        for name, given in (("--tokens-per-step", tokens_per_step), ("--steps", steps)):
            if given is not None:
                raise UsageError(f"{name} needs the time of a step.", hint="Add --step-time 2.1s, say.")
        return None
    tokens = read_number("--tokens-per-step", tokens_per_step) if tokens_per_step is not None else None
    num_steps = int(read_number("--steps", steps)) if steps is not None else None
    return CostedRun(units.time(step_time), tokens, num_steps)


def _upgrade(price: str | float | None, step_time: str | None) -> tuple[float, float] | None:
    if price is None and step_time is None:
        return None
    if price is None or step_time is None:
        raise UsageError("--upgrade-price and --upgrade-step-time go together.", hint="Give both.")
    return read_number("--upgrade-price", price), units.time(step_time)
