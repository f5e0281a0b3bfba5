"""Search: price every choice, plan the jobs on those that may win, and keep what nothing else beats.

Building and pricing a fabric takes milliseconds, planning a job on it most of a second. So a choice is built and
priced first; its step cannot be shorter than on a network of the same cards without oversubscription, which is
planned once for each kind of card. A choice that loses to another with that bound is never planned. Fabrics on which
the model sees the same network share one plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from syncline.describe import units
from syncline.describe.document import read_text
from syncline.describe.files import write_text
from syncline.describe.plain import JsonObject
from syncline.describe.progress import Meter
from syncline.designing.choice import FabricChoice
from syncline.designing.growth import cables_usd
from syncline.designing.resilience import remains
from syncline.errors import PlanError, SynclineError, UsageError
from syncline.fabric import Fabric
from syncline.fabric.catalog import load_catalog
from syncline.install.rack import shares_racks
from syncline.planning.answer import ask
from syncline.planning.block import PlanQuestion
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.owning import HOURS_PER_YEAR, own
from syncline.planning.cost.recovery import LEAST_GOODPUT, parts_of, recovery
from syncline.planning.search import search as plan_search
from syncline.planning.space import USUAL
from syncline.workload.job import Job

FORMAT = "syncline design 2"
OPTICAL = ("multimode", "single_mode", "aoc")
SAVE_EVERY = 50


@dataclass(frozen=True)
class Limits:
    """What a design must keep to; None: no limit."""

    budget_usd: float | None = None
    power_w: float | None = None
    racks: int | None = None
    days: float | None = None
    tokens: float | None = None
    after_one: float = 0.0
    """The least share that must remain after a failed switch."""

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            if name != "after_one" and limit is not None and not limit > 0:
                short = name.removesuffix("_usd").removesuffix("_w")
                raise UsageError(
                    f"`{short}` must be positive, got {limit:g}.", hint=f"Raise it, or leave `{short}` out."
                )
        if self.days is not None and self.tokens is None:
            raise UsageError("`days` needs `tokens`: how much must be trained by then.", hint="Give `tokens` 15T, say.")

    def broken(self, point: DesignPoint) -> Miss | None:
        """Return the limit that a point breaks, or nothing."""
        if point.after_one < self.after_one:
            return Miss("resilience", point.after_one, self.after_one)
        days = self.tokens * point.s_per_token / 86_400 if self.tokens else 0.0
        checks = (
            ("budget", self.budget_usd, point.capital_usd), ("power", self.power_w, point.power_w),
            ("racks", self.racks, point.racks), ("deadline", self.days, days),
        )  # fmt: skip
        return next(
            (Miss(name, value, most) for name, most, value in checks if most is not None and value > most), None
        )


@dataclass(frozen=True)
class Miss:
    """A limit that a fabric breaks: what it has, and what it may have."""

    limit: str
    value: float
    asked: float

    @property
    def by(self) -> float:
        """The part of the limit by which it is missed."""
        return abs(self.value / self.asked - 1)

    @property
    def words(self) -> str:
        """What misses the limit by how much, in the limit's own unit."""
        if self.limit == "resilience":
            return f"keeps {self.value:.0%} after one failed switch where {self.asked:.0%} is asked"
        shown: dict[str, Callable[[float], str]] = {
            "budget": units.show_money, "power": units.show_power, "deadline": "{:,.1f} days".format,
            "racks": lambda n: f"{n:,.0f} rack{'' if n == 1 else 's'}",
        }  # fmt: skip
        show = shown[self.limit]
        verb = "takes" if self.limit == "deadline" else "needs"
        return (
            f"{verb} {show(self.value)}, {show(self.value - self.asked)} ({self.by:.1%}) more than {show(self.asked)}"
        )


@dataclass(frozen=True)
class DesignPoint:
    """One fabric with its price, power and resilience, and how fast the jobs run on it."""

    choice: FabricChoice
    num_gpus: int
    capital_usd: float
    network_usd: float
    optics_usd: float
    usd_per_year: float
    power_w: float
    racks: int
    after_one: float
    after_two: float
    worst: str
    utilisation: float = 1.0
    """Share of the year in which the cluster is used."""
    s_per_token: float = 0.0
    """Seconds a token, the mean over the jobs by their weights."""
    paid_s_per_token: float = 0.0
    """The same with the time that failures take."""
    plans: tuple[str, ...] = ()
    step_s: tuple[float, ...] = ()
    executed_s: tuple[float | None, ...] = ()

    @property
    def usd_per_token(self) -> float:
        """What a token costs, as `plan` prices it: idle time and the time that failures take are paid for."""
        return self.usd_per_year / (HOURS_PER_YEAR * 3600 * self.utilisation) * self.paid_s_per_token

    @property
    def executable(self) -> bool:
        """Whether the flow level can run it: it knows neither sums in switches nor cards that compress."""
        return not self.choice.reduction and load_catalog().nic(self.choice.nic).compresses <= 1

    def beats(self, other: DesignPoint) -> bool:
        """Whether this is at least as good in everything and better in something."""
        return self.at_least(other) and self._figures() != other._figures()

    def at_least(self, other: DesignPoint) -> bool:
        """Whether this is as good as another in time, cost, power and resilience, or better."""
        return all(a <= b for a, b in zip(self._figures(), other._figures(), strict=True))

    def _figures(self) -> tuple[float, ...]:
        return self.s_per_token, self.usd_per_year, self.power_w, -self.after_one

    def to_json(self) -> JsonObject:
        return asdict(self) | {
            "label": self.choice.label, "usd_per_token": self.usd_per_token, "executable": self.executable,
        }  # fmt: skip


Card = tuple[str, int, int, str, str, int, bool]


def card_of(point: DesignPoint) -> Card:
    """Return what decides the fastest step that any network of a point's cards allows."""
    c = point.choice
    return c.host, point.num_gpus, c.nics, c.nic, c.link, c.planes, c.reduction


class PlannedPoint(TypedDict):
    """What a search keeps of a choice between runs."""

    s_per_token: float
    plans: list[str]
    step_s: list[float]


@dataclass
class DesignSearch:
    """What a search has looked at."""

    points: list[DesignPoint] = field(default_factory=list)
    impossible: dict[str, str] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    nearest: dict[str, Miss] = field(default_factory=dict)
    """By limit, the fabric that breaks it by the least."""
    num_choices: int = 0
    num_bounded: int = 0
    num_planned: int = 0
    complete: bool = True

    def miss(self, one: Miss, count: int = 1) -> None:
        """Count fabrics that break a limit."""
        self.over[one.limit] = self.over.get(one.limit, 0) + count
        self.nearest[one.limit] = min(self.nearest.get(one.limit, one), one, key=lambda each: each.by)

    def front(self) -> list[DesignPoint]:
        """Return the points that no other beats, cheapest token first."""
        kept = [p for p in self.points if not any(other.beats(p) for other in self.points)]
        return sorted(kept, key=lambda p: (p.usd_per_token, p.choice))


@dataclass
class Designer:
    """A search under way: the jobs with their weights, the limits, and what has been planned already."""

    jobs: Sequence[tuple[Job, float]]
    limits: Limits = field(default_factory=Limits)
    assumptions: Assumptions | None = None
    state: Path | None = None
    _planned: dict[Any, tuple[float, str, float]] = field(default_factory=dict)
    ideals: dict[Card, float] = field(default_factory=dict)
    kept: dict[str, PlannedPoint] = field(default_factory=dict)

    def run(self, choices: Iterable[FabricChoice], meter: Meter | None = None) -> DesignSearch:
        """Consider every choice, going on from a kept state; an interrupt ends the search with what there is."""
        self.read()
        found = self.search(choices, DesignSearch(), meter)
        self.write()
        return found

    def search(self, choices: Iterable[FabricChoice], found: DesignSearch, meter: Meter | None = None) -> DesignSearch:
        """Consider every choice: build and price all of them, then plan those that may win; known points bound them."""
        every, meter = list(choices), meter or Meter()
        found.num_choices = len(every)
        meter.expect(2 * len(every))
        built: list[tuple[DesignPoint, Fabric]] = []
        try:
            for choice in every:
                pair = self._priced(choice, found)
                built += [] if pair is None else [pair]
                meter.advance(2 if pair is None else 1)
            # Cheap ones first: they bound the dear ones.
            built.sort(key=lambda pair: pair[0].usd_per_year)
            for number, (point, fabric) in enumerate(built):
                try:
                    self._look(point, fabric, found)
                except PlanError as error:  # no split of the job fits this number of GPUs
                    found.impossible[f"{point.num_gpus:,} GPUs: {point.choice.label}"] = error.message
                meter.advance()
                if number % SAVE_EVERY == SAVE_EVERY - 1:
                    self.write()
        except KeyboardInterrupt:
            found.complete = False
        return found

    def _priced(self, choice: FabricChoice, found: DesignSearch) -> tuple[DesignPoint, Fabric] | None:
        try:
            fabric = choice.build()
            owned = own(fabric, self.assumptions)
            if choice.copper and not shares_racks(fabric):
                raise PlanError(f"{choice.rack_hosts} hosts and their leaf do not fit one rack.")
        except SynclineError as error:
            found.impossible[choice.label] = error.message
            return None
        left, optics_usd = remains(fabric), cables_usd(fabric, np.ones(len(fabric.links), bool), OPTICAL)
        point = DesignPoint(
            choice, fabric.num_gpus, owned.capital_usd, owned.network_usd, optics_usd, owned.usd_per_year,
            owned.rated_power_w, owned.num_racks, left.after_one, left.after_two, left.worst,
            owned.assumptions.utilisation,
        )  # fmt: skip
        broken = self.limits.broken(point)
        if broken:
            found.miss(broken)
            return None
        return point, fabric

    def _look(self, point: DesignPoint, fabric: Fabric, found: DesignSearch) -> None:
        kept = self.kept.get(point.choice.key)
        if kept is None:
            card = card_of(point)
            if card in self.ideals and self._loses(replace(point, s_per_token=self.ideals[card]), found):
                return
            jobs = [job.model_copy(update={"gpus": None}) for job, _ in self.jobs]
            asked = [ask(fabric, job) for job in jobs]
            if card not in self.ideals:
                self.ideals[card] = self._mean([self._ideal(*one) for one in asked])
                if self._loses(replace(point, s_per_token=self.ideals[card]), found):
                    return
            best = [self._best(*one) for one in asked]
            if point.choice.pods and not point.choice.circuits:  # circuits are laid for each job as it runs best
                mesh = replace(point.choice, circuits="mesh").build()
                best = [min(one, self._best(*ask(mesh, job))) for one, job in zip(best, jobs, strict=True)]
            per_token, plans, step_s = zip(*best, strict=True)
            kept = PlannedPoint(s_per_token=self._mean(per_token), plans=list(plans), step_s=list(step_s))
            self.kept[point.choice.key] = kept
            found.num_planned += 1
        whole = replace(
            point, s_per_token=kept["s_per_token"], plans=tuple(kept["plans"]), step_s=tuple(kept["step_s"])
        )
        whole = self._with_failures(whole, fabric)
        broken = self.limits.broken(whole)
        if broken:
            found.miss(broken)
            return
        if not any(other.at_least(whole) for other in found.points):
            found.points.append(whole)

    def ideal_s(self, point: DesignPoint) -> float:
        """Return the seconds a token on a network of a point's cards that is nowhere narrower than they are."""
        return self.ideals.get(card_of(point), point.s_per_token)

    def _loses(self, bound: DesignPoint, found: DesignSearch) -> bool:
        """Whether a point is beaten even if it ran as fast as its cards allow."""
        beaten = any(other.at_least(bound) for other in found.points)
        found.num_bounded += beaten
        return beaten

    def _with_failures(self, point: DesignPoint, fabric: Fabric) -> DesignPoint:
        """Return a point with the seconds a token that are paid for: failures, checkpoints and restarts included."""
        parts, paid = parts_of(fabric).of(point.num_gpus), []
        for (job, _), step_s in zip(self.jobs, point.step_s, strict=True):
            goodput = recovery(job, step_s, parts, self.assumptions or Assumptions()).goodput
            if goodput < LEAST_GOODPUT:
                raise PlanError(f"{job.model.name} never gets done: failures leave {goodput:.1%} of the time.")
            paid.append(step_s / (job.batch.global_ * job.batch.sequence * goodput))
        return replace(point, paid_s_per_token=self._mean(paid))

    def _mean(self, values: Sequence[float]) -> float:
        weights = [weight for _, weight in self.jobs]
        return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)

    def _ideal(self, question: PlanQuestion, num_gpus: int) -> float:
        """Return the seconds a token on a network of these cards that is nowhere narrower than they are."""
        return self._best(_unlimited(question), num_gpus)[0]

    def _best(self, question: PlanQuestion, num_gpus: int) -> tuple[float, str, float]:
        """Return seconds a token, the split and the step of the best plan; equal networks are planned once."""
        if not question.reach.oversubscribed:
            question = _unlimited(question)
        key = (question.job.name, question.job.model.name, question.machine.gpu.name, question.reach, num_gpus)
        if key not in self._planned:
            looked = plan_search(question, num_gpus, axes=USUAL, keep=1)
            if not looked.best:
                raise PlanError(
                    f"{question.job.model.name} fits on none of {num_gpus:,} {question.machine.gpu.name}.",
                    hint="Ask for more GPUs, or name a host with more memory.",
                )
            best = looked.best[0]
            tokens = question.job.batch.global_ * question.job.batch.sequence
            self._planned[key] = (best.step_s / tokens, best.decision.label.split(";")[0], best.step_s)
        return self._planned[key]

    def read(self) -> None:
        """Go on from what a search before this one kept."""
        if self.state is None or not self.state.exists():
            return
        try:
            data = json.loads(read_text(self.state))
        except ValueError:
            data = None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise PlanError("is not the state of a design.", where=str(self.state), hint="Name another file.")
        if data.get("jobs") != self._names():
            raise PlanError(
                f"holds a design for {', '.join(data.get('jobs', []))}.", where=str(self.state),
                hint="Name another file, or remove it.",
            )  # fmt: skip
        self.kept = dict(data["points"])

    def write(self) -> None:
        """Keep what was planned, where a file was named."""
        if self.state is not None:
            text = json.dumps({"format": FORMAT, "jobs": self._names(), "points": self.kept}, allow_nan=False)
            write_text(self.state, text + "\n")

    def _names(self) -> list[str]:
        return [f"{job.name} {job.model.name} {job.batch.global_}x{job.batch.sequence} {w:g}" for job, w in self.jobs]


def _unlimited(question: PlanQuestion) -> PlanQuestion:
    """Return the question on a network that is nowhere narrower than the cards."""
    free = float("inf")
    reach = replace(question.reach, rack_gpus=free, rack_Bps=free, pod_gpus=free, pod_Bps=free)
    return replace(question, reach=reach)
