"""Money of a plan: one price of a GPU-hour, owned or rented, and the share of time that this job's failures leave."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.errors import CostError
from syncline.fabric.fabric import Fabric
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.charge import cost_per_step, cost_per_token
from syncline.planning.cost.owning import HOURS_PER_YEAR
from syncline.planning.cost.prices import Prices
from syncline.planning.cost.recovery import LEAST_GOODPUT, Parts, Recovery, parts_of, recovery
from syncline.planning.cost.statement import Statement, statement
from syncline.planning.plan import PlanCost
from syncline.workload.job import Job


@dataclass(frozen=True)
class Money:
    """What GPU-hours of a cluster cost, and what failures leave of them to one job."""

    basis: str
    usd_per_gpu_hour: float
    account: Statement
    parts: Parts
    job: Job
    assumptions: Assumptions

    @property
    def utilisation(self) -> float:
        return self.assumptions.utilisation

    @property
    def owned(self) -> bool:
        return self.basis == "owned"

    @property
    def fixed(self) -> bool:
        """Whether the price is a rent that was given, not a list price that moves."""
        return any(f"rented: {quote.label}" == self.basis and quote.fixed for quote in self.account.quotes)

    def recovery(self, step_time_s: float, num_gpus: int) -> Recovery:
        """Return how the job saves its state and comes back on so many GPUs."""
        found = recovery(self.job, step_time_s, self.parts.of(num_gpus), self.assumptions)
        if found.goodput < LEAST_GOODPUT:
            raise CostError(
                f"the job never gets done: an interruption every {found.mttf_s / 60:.2g} min, a checkpoint every "
                f"{found.interval_s / 60:.2g} min and {found.restart_s / 60:.2g} min to start again.",
                hint="Checkpoint more often, restart faster (restart_s), or use fewer GPUs.",
            )
        return found

    def cost(self, step_time_s: float, tokens_per_step: int, num_gpus: int) -> PlanCost:
        """Return what a step of this length costs."""
        price, goodput = self.usd_per_gpu_hour, self.recovery(step_time_s, num_gpus).goodput
        return PlanCost(
            self.basis, price, num_gpus, goodput, cost_per_step(step_time_s, price, num_gpus),
            cost_per_token(step_time_s, tokens_per_step, price, num_gpus, goodput),
        )  # fmt: skip

    def usd_per_year(self, num_gpus: int) -> float:
        """Return what so many GPUs cost in a year of the assumed use."""
        return self.usd_per_gpu_hour * num_gpus * HOURS_PER_YEAR * self.utilisation


def money_of(
    fabric: Fabric, job: Job, assumptions: Assumptions | None = None, prices: Prices | None = None
) -> tuple[Money | None, str]:
    """Return the money of a job on a fabric and a note; None where parts have no price and none was given.

    With a `cloud` or a `gpu_hour_usd` among the assumptions the price is that rent, otherwise the cost of owning.
    """
    a = assumptions or Assumptions()
    try:
        account = statement(fabric, a, prices=prices)
    except CostError as error:
        if "no price is known" in error.message and a.host_price_usd is None:
            return None, f"not priced: {error.message}"
        raise
    if a.cloud is not None or a.gpu_hour_usd is not None:
        quote = account.quotes[0]
        rate, basis = quote.usd_per_used_gpu_hour(a.utilisation), f"rented: {quote.label}"
    else:
        rate, basis = account.owned.usd_per_gpu_hour, "owned"
    return Money(basis, rate, account, parts_of(fabric), job, a), ""
