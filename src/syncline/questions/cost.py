"""What does a cluster cost, owned and rented, and what does a job on it cost?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import PlanError, UsageError
from syncline.fabric import Fabric
from syncline.planning.answer import make_plan
from syncline.planning.cost.assumptions import Assumptions, load_assumptions
from syncline.planning.cost.prices import Prices, load_prices
from syncline.planning.cost.statement import CostedRun, Statement, statement
from syncline.planning.decide.forecast import Forecast, owned_interval
from syncline.planning.decide.prospects import run_option, stated_run
from syncline.planning.decide.side_by_side import Candidate
from syncline.planning.money import money_of
from syncline.planning.named_job import DEFAULT_JOB
from syncline.planning.serving_comparison import compare_serving
from syncline.questions.answer import Answer, Parameter, question
from syncline.questions.inputs import (
    AssumeOption,
    AssumptionsOption,
    ClusterArgument,
    JobSource,
    MoreOption,
    PricesOption,
    ReliabilityOption,
    built,
    job_of,
    read_number,
)
from syncline.questions.serve import ServingComparisonAnswer
from syncline.sim.uncertainty import Interval
from syncline.workload.job import Job


@dataclass(frozen=True, eq=False)
class CostAnswer(Answer):
    """A GPU-hour owned against rented, where the money goes, what failures, steps and tokens cost."""

    schema_name: ClassVar[str] = "cost"

    statement: Statement = field(repr=False)
    forecast: Forecast | None = None
    """The run of a job that says on how many tokens it trains; None: it does not, or nothing of it fits."""
    note: str = ""
    """Why such a job has no run here."""
    more: bool = False
    """Whether all is shown, not the answer alone."""
    sources: bool = False
    """Whether every assumption is shown with its source."""

    def to_json(self) -> JsonObject:
        owned = self.statement.owned.to_json() | {"usd_per_gpu_hour_interval": asdict(self.interval)}
        run = None if self.forecast is None else asdict(self.forecast.report())
        return self.statement.to_json() | {"owned": owned, "forecast": run}

    @property
    def interval(self) -> Interval:
        """Where an owned GPU-hour may lie; a run's cost in `plan` moves with the same ranges."""
        return owned_interval(self.statement.owned)


@question(
    "syncline cost h100-64-rail",
    "syncline cost h100-64-rail llama3-70b --budget 500k",
    "syncline cost cluster.yaml --years 3 --utilisation 0.5 --cloud aws",
    "syncline cost h100-64-rail --step-time 2.1s --tokens-per-step 4M --steps 250000 --json",
    "syncline cost h100-64-rail --step-time 2.1s --upgrade-price 500k --upgrade-step-time 1.9s",
    "syncline cost cluster.yaml --assumptions ours.yaml --prices ours.csv --set hosts_per_fte=100",
    help="""Say what a cluster costs.

    A GPU-hour owned against rented, where the money goes, where owning breaks even, what failures cost; with
    --step-time what steps and tokens cost; of a job with `tokens`, when it ends and whether its deadline and budget
    hold. All of it follows from the bill, dated prices and assumptions, which --more shows and which can be changed.
    """,
)
def cost(
    cluster: ClusterArgument,
    job: Annotated[JobSource, Parameter("The job that failures interrupt: a file, or one that ships.", kind=str)] = (
        DEFAULT_JOB
    ),
    *,
    years: Annotated[float | None, Parameter("Years the cluster is kept. [4]")] = None,
    utilisation: Annotated[float | None, Parameter("Share of hours in which it is used. [0.7]")] = None,
    financing: Annotated[float | None, Parameter("Interest a year on the capital. [0]")] = None,
    cloud: Annotated[str | None, Parameter("Only this cloud: aws, azure, gcp, oci, lambda, nebius.")] = None,
    gpu_hour: Annotated[float | None, Parameter("Dollars you pay for a rented GPU-hour, instead of a cloud's.")] = None,
    discount: Annotated[
        float | None, Parameter("Discount for a commitment; every hour is then paid, used or not. [0]")
    ] = None,
    step_time: Annotated[str | None, Parameter("Time of a training step: 2.1s.")] = None,
    tokens_per_step: Annotated[str | float | None, Parameter("Tokens a step trains on: 4M.")] = None,
    steps: Annotated[str | float | None, Parameter("Steps of the run: 250000.")] = None,
    budget: Annotated[str | float | None, Parameter("Dollars to spend: 2M. Says what they buy.")] = None,
    upgrade_price: Annotated[str | float | None, Parameter("What an upgrade costs: 500k.")] = None,
    upgrade_step_time: Annotated[str | None, Parameter("The step time after it: 1.9s.")] = None,
    assumptions: AssumptionsOption = None,
    assume: AssumeOption = None,
    prices: PricesOption = None,
    reliability: ReliabilityOption = None,
    more: MoreOption = False,
    sources: Annotated[bool, Parameter("List every assumption with its source.")] = False,
) -> CostAnswer | ServingComparisonAnswer:
    """Say what a cluster costs; `assume` sets any assumption by name (years, utilisation, cloud ...).

    >>> cost("h100-64-rail", assume={"years": 3}).to_json()["gpus"]
    512
    """
    named = {
        "years": years, "utilisation": utilisation, "financing_rate": financing, "cloud": cloud,
        "gpu_hour_usd": gpu_hour, "commitment_discount": discount,
        "reliability": None if reliability is None else str(reliability),
    }  # fmt: skip
    given = dict(assume or {}) | {name: value for name, value in named.items() if value is not None}
    assumed, origin = load_assumptions(Path(assumptions) if assumptions else None, given)
    described, fabric, table = job_of(job, served=True), built(cluster), load_prices(Path(prices) if prices else None)
    if described.kind == "serve":
        for name, value in {"step_time": step_time, "tokens_per_step": tokens_per_step, "steps": steps,
                            "budget": budget, "upgrade_price": upgrade_price}.items():  # fmt: skip
            if value is not None:
                raise UsageError(f"`{name}` is for a training job.", hint=f"Leave out `{name}`.")
        quotes = statement(fabric, assumed, prices=table).quotes
        ways = [Candidate("owned", fabric), *(Candidate(one.cloud, fabric, one.cloud) for one in quotes)]
        ways = ways[1:] if cloud is not None or gpu_hour is not None else ways
        asked = [(way, described) for way in {way.name: way for way in ways}.values()]
        return ServingComparisonAnswer(compare_serving(asked, assumptions=assumed, prices=table))
    if described.kind != "train":
        raise UsageError("`cost` counts the failures of a training job.", hint="Ask `syncline step` about decoding.")
    run, seen, note = _run(step_time, tokens_per_step, steps), None, ""
    if described.tokens:
        try:
            run, seen = _goal_run(fabric, described, run, assumed, table)
        except PlanError as error:
            note = error.message
    found = statement(
        fabric,
        assumed,
        prices=table,
        job=described,
        origin=origin,
        run=run,
        budget_usd=read_number("budget", budget) if budget is not None else None,
        upgrade=_upgrade(upgrade_price, upgrade_step_time),
    )
    return CostAnswer(found, seen, note, more or sources, sources)


def _goal_run(
    fabric: Fabric, job: Job, run: CostedRun | None, assumed: Assumptions, prices: Prices
) -> tuple[CostedRun | None, Forecast | None]:
    """Return the run that a job is for and its forecast: at the step that is stated, else as `plan` has it."""
    assert job.tokens
    if run is None:
        answer = make_plan(fabric, job, assumptions=assumed, prices=prices, with_actions=False, with_run=False)
        best, money = answer.best, answer.money
        if money is None:
            return None, None
        steps = job.tokens / best.tokens_per_step
        run = CostedRun(best.predicted.step_time_s, best.tokens_per_step, steps, best.decision.replica_gpus)
        return run, run_option(answer.question, best, money).forecast
    money, _ = money_of(fabric, job, assumed, prices)
    tokens = job.batch.global_ * job.batch.sequence
    run = replace(run, tokens_per_step=run.tokens_per_step or tokens, num_steps=run.num_steps or job.tokens / tokens)
    return run, stated_run(job, money, run.step_time_s, job.gpus or fabric.num_gpus) if money else None


def _run(step_time: str | None, tokens_per_step: str | float | None, steps: str | float | None) -> CostedRun | None:
    if step_time is None:
        for name, given in (("tokens_per_step", tokens_per_step), ("steps", steps)):
            if given is not None:
                raise UsageError(f"`{name}` needs the time of a step.", hint="Give `step_time` too: 2.1s, say.")
        return None
    tokens = read_number("tokens_per_step", tokens_per_step) if tokens_per_step is not None else None
    num_steps = int(read_number("steps", steps)) if steps is not None else None
    return CostedRun(units.time(step_time), tokens, num_steps)


def _upgrade(price: str | float | None, step_time: str | None) -> tuple[float, float] | None:
    if price is None and step_time is None:
        return None
    if price is None or step_time is None:
        raise UsageError("`upgrade_price` and `upgrade_step_time` go together.", hint="Give both.")
    return read_number("upgrade_price", price), units.time(step_time)


COMMANDS = {"": cost}
