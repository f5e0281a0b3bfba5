"""The statement: everything about the money of one cluster, in one object.

account = statement(load("h100-64-rail"), Assumptions(years=4))
account.owned.usd_per_gpu_hour, account.quotes, account.break_evens, account.failures.goodput
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import CostError
from syncline.fabric.fabric import Fabric
from syncline.planning.cost import growth
from syncline.planning.cost.assumptions import Assumption, Assumptions, listed
from syncline.planning.cost.break_even import BreakEven, break_even, break_even_rent
from syncline.planning.cost.charge import (
    Bought,
    Payback,
    buy,
    check_time,
    cost_per_run,
    cost_per_step,
    cost_per_token,
    payback,
)
from syncline.planning.cost.owning import Owning, own
from syncline.planning.cost.prices import Prices, load_prices
from syncline.planning.cost.recovery import LEAST_GOODPUT, Recovery, link_failures, parts_of, recovery
from syncline.planning.cost.reliability import load_reliability
from syncline.planning.cost.renting import IGNORED, Quote, gpu_models, rent
from syncline.planning.named_job import DEFAULT_JOB, named_job
from syncline.workload.job import Job

IGNORES = (*IGNORED, "storage, login hosts and the management network", "taxes and delivery", "software licences")

#: Of a job whose step is not known: it counts only where the job says after how many steps it saves its state.
UNKNOWN_STEP_S = 10.0


@dataclass(frozen=True)
class CostedRun:
    """What is known of a job: its step time, and perhaps its tokens a step and its length."""

    step_time_s: float
    tokens_per_step: float | None = None
    num_steps: float | None = None
    replica_gpus: int = 0
    """GPUs that hold one replica of the model, where a plan says so."""


@dataclass(frozen=True)
class Losses:
    """What failures do to a job on the whole cluster in a year of the assumed use."""

    recovery: Recovery
    job: str
    days: float
    usd_per_gpu_hour: float

    @property
    def goodput(self) -> float:
        return self.recovery.goodput

    @property
    def interruptions(self) -> float:
        return self.recovery.interruptions_in(self.days)

    @property
    def lost_gpu_hours(self) -> float:
        return (1 - self.goodput) * self.recovery.parts.paid_gpus * self.days * 24

    @property
    def lost_usd(self) -> float:
        return self.lost_gpu_hours * self.usd_per_gpu_hour

    def to_json(self) -> JsonObject:
        """Return the figures as plain data."""
        share = self.recovery.rate.network_share
        return asdict(self.recovery.report()) | {
            "job": self.job, "days": self.days, "interruptions": self.interruptions,
            "network_interruptions": None if share is None else self.interruptions * share,
            "lost_gpu_hours": self.lost_gpu_hours, "lost_usd": self.lost_usd,
            "usd_per_gpu_hour": self.usd_per_gpu_hour,
        }  # fmt: skip


@dataclass(frozen=True)
class Charge:
    """What a job costs at one price of a GPU-hour; failures are counted in tokens and runs, not in a step."""

    basis: str
    usd_per_gpu_hour: float
    usd_per_step: float
    usd_per_token: float | None
    usd_per_run: float | None


@dataclass(frozen=True)
class Statement:
    """The answer of `syncline cost`."""

    name: str
    gpus: Mapping[str, int]
    owned: Owning
    quotes: tuple[Quote, ...]
    break_evens: tuple[BreakEven, ...]
    failures: Losses
    cable_failures: float
    assumptions: tuple[Assumption, ...]
    prices_source: str
    run: CostedRun | None = None
    charges: tuple[Charge, ...] = ()
    bought: tuple[tuple[str, Bought], ...] = ()
    upgrades: tuple[tuple[str, Payback], ...] = ()
    budget_usd: float | None = None

    @property
    def num_gpus(self) -> int:
        return self.owned.num_gpus

    @property
    def run_days(self) -> float | None:
        """Wall days of the run, failures included."""
        if self.run is None or self.run.num_steps is None:
            return None
        return self.run.step_time_s * self.run.num_steps / self.failures.goodput / 86400

    def to_json(self) -> JsonObject:
        """Return the object that `syncline cost --json` prints."""
        a = self.owned.assumptions
        return {
            "name": self.name,
            "gpus": self.num_gpus,
            "hosts": self.owned.num_hosts,
            "gpu_models": dict(self.gpus),
            "owned": self.owned.to_json(),
            "rented": [quote.to_json(a.utilisation) for quote in self.quotes],
            "break_even": [point.to_json() for point in self.break_evens],
            "break_even_rent_usd_per_gpu_hour": break_even_rent(self.owned, a.years, a.utilisation),
            "failures": self.failures.to_json() | {"cables_and_switches": self.cable_failures},
            "run": None if self.run is None else dict(vars(self.run)) | {"days": self.run_days},
            "charges": [dict(vars(charge)) for charge in self.charges],
            "budget": [{"basis": basis} | bought.to_json() for basis, bought in self.bought],
            "payback": [{"basis": basis} | upgrade.to_json() for basis, upgrade in self.upgrades],
            "growth": growth.to_json(),
            "assumptions": [dict(vars(row)) for row in self.assumptions],
            "prices": self.prices_source,
            "ignores": list(IGNORES),
        }


def statement(
    fabric: Fabric,
    assumptions: Assumptions | None = None,
    *,
    job: Job | None = None,
    prices: Prices | None = None,
    origin: Mapping[str, str] | None = None,
    run: CostedRun | None = None,
    budget_usd: float | None = None,
    upgrade: tuple[float, float] | None = None,
) -> Statement:
    """Return the whole account of a fabric: failures are those of a job, by default the one that `plan` takes.

    `upgrade` is a price and the step time it leads to; it needs a run.
    """
    a = assumptions or Assumptions()
    prices = prices or load_prices()
    if run is not None:
        check_time(run.step_time_s)
    if upgrade is not None and run is None:
        raise CostError("an upgrade is judged by the step time it changes.", hint="Give `step_time`, the one of today.")
    owned = own(fabric, a)
    gpus = gpu_models(fabric)
    quotes = rent(gpus, prices, a)
    rates = [("owned", owned.usd_per_gpu_hour)]
    rates += [(quote.label, quote.usd_per_used_gpu_hour(a.utilisation)) for quote in quotes]
    job = job or named_job(DEFAULT_JOB)
    parts, step = parts_of(fabric).of(job.gpus or fabric.num_gpus), run.step_time_s if run else None
    found = recovery(job, step or UNKNOWN_STEP_S, parts, a, replica_gpus=run.replica_gpus if run else 0)
    lost = Losses(found, job.name, 365.25 * a.utilisation, owned.usd_per_gpu_hour)
    if lost.goodput < LEAST_GOODPUT and (run is not None or budget_usd is not None):
        raise never_done(found)
    num_gpus, tokens = parts.paid_gpus, run.tokens_per_step if run else None
    charges, bought, upgrades = [], [], []
    for basis, usd in rates:
        if run:
            charges.append(_charge(basis, usd, run, num_gpus, lost.goodput))
        if budget_usd is not None and (basis != "owned" or owned.to_buy_usd <= budget_usd):
            part = buy(budget_usd, usd, num_gpus, step_time_s=step, tokens_per_step=tokens, goodput=lost.goodput)
            bought.append((basis, part))
        if upgrade and run:
            price, new_s = upgrade
            saved = payback(
                price, run.step_time_s, new_s, usd_per_gpu_hour=usd, num_gpus=num_gpus, utilisation=a.utilisation
            )
            upgrades.append((basis, saved))
    return Statement(
        fabric.name, gpus, owned, quotes, tuple(break_even(owned, quote) for quote in quotes), lost,
        link_failures(fabric, 365.25, load_reliability()), listed(a, origin or {}), prices.source, run, tuple(charges),
        tuple(bought), tuple(upgrades), budget_usd,
    )  # fmt: skip


def never_done(found: Recovery) -> CostError:
    """Return the error of a job that failures leave no time."""
    often, interval = units.show_time(found.mttf_s), units.show_time(found.interval_s)
    return CostError(
        f"the job never gets done: an interruption every {often}, but a checkpoint only every {interval}.",
        detail=f"A restart takes {units.show_time(found.restart_s)}.",
        hint="Checkpoint more often (checkpoint_interval_s), restart faster (restart_s), or use fewer GPUs.",
    )


def _charge(basis: str, usd: float, run: CostedRun, num_gpus: int, goodput: float) -> Charge:
    step, tokens, steps = run.step_time_s, run.tokens_per_step, run.num_steps
    return Charge(
        basis,
        usd,
        cost_per_step(step, usd, num_gpus),
        cost_per_token(step, tokens, usd, num_gpus, goodput) if tokens is not None else None,
        cost_per_run(step, steps, usd, num_gpus, goodput) if steps is not None else None,
    )
