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
from syncline.planning.cost.statement import Statement, never_done, statement
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

    @property
    def hour_words(self) -> str:
        """The price of a GPU-hour with its basis, as it is printed everywhere."""
        use = self.utilisation
        rented = {f"rented: {quote.label}": quote.hour_words(use) for quote in self.account.quotes}
        return self.account.owned.hour_words if self.owned else rented[self.basis]

    def recovery(self, step_time_s: float, num_gpus: int, replica_gpus: int = 0) -> Recovery:
        """Return how the job saves its state and comes back on so many GPUs."""
        parts = self.parts.of(num_gpus)
        found = recovery(self.job, step_time_s, parts, self.assumptions, replica_gpus=replica_gpus)
        if found.goodput < LEAST_GOODPUT:
            raise never_done(found)
        if found.parts.rents and not self.rent_usd_per_gpu_hour:
            raise CostError("nobody in the price table rents these GPUs, and `spares: rent` needs it.",
                            hint="Write a number of hosts, or give `gpu_hour_usd`.")  # fmt: skip
        return found

    @property
    def rent_usd_per_gpu_hour(self) -> float:
        """What a GPU-hour costs at the cheapest cloud, or where it is rented now; 0 where nobody rents these GPUs."""
        if not self.owned:
            return self.usd_per_gpu_hour
        quotes = self.account.quotes
        return quotes[0].usd_per_used_gpu_hour(self.utilisation) if quotes else 0.0

    def cost(self, step_time_s: float, tokens_per_step: int, num_gpus: int, replica_gpus: int = 0) -> PlanCost:
        """Return what a step of this length costs, its spare hosts included."""
        price, found = self.usd_per_gpu_hour, self.recovery(step_time_s, num_gpus, replica_gpus)
        paid, goodput = found.parts.paid_gpus, found.goodput
        return PlanCost(
            self.basis, price, num_gpus, goodput, cost_per_step(step_time_s, price, paid),
            cost_per_token(step_time_s, tokens_per_step, price, paid, goodput),
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
        account = statement(fabric, a, job=job, prices=prices)
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
