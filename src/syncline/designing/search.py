"""Search: price every choice, plan the jobs on those that may win, and keep what nothing else beats.

Building and pricing a fabric takes milliseconds, planning a job on it a second. So a choice is built and priced first;
its step cannot be shorter than on a fat tree of the same cards without oversubscription, which is planned once for each
kind of card. A choice that loses to another with that bound is never planned. What is planned is what `syncline plan`
says of the cluster, executed; fabrics on which a step crosses the same links share one plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

import numpy as np

from syncline.describe.document import read_text
from syncline.describe.files import write_text
from syncline.describe.progress import Meter
from syncline.designing.choice import TREES, FabricChoice
from syncline.designing.point import Card, DesignPoint, DesignSearch, Limits, card_of, cheap_first
from syncline.designing.resilience import remains
from syncline.errors import PlanError, SynclineError
from syncline.fabric import Fabric
from syncline.fabric.bill import network_lines
from syncline.fabric.catalog import load_catalog
from syncline.fabric.draft import UNKNOWN_CABLE
from syncline.install.rack import shares_racks
from syncline.planning.answer import HEADROOM, ask, make_plan
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.owning import own
from syncline.planning.cost.recovery import LEAST_GOODPUT, parts_of, recovery
from syncline.planning.search import search
from syncline.planning.space import USUAL
from syncline.sim.reach import fabric_reach
from syncline.sim.step.machine import machine_from_fabric
from syncline.version import __version__
from syncline.workload.job import Job

FORMAT = "syncline design 3"
OPTICAL = ("multimode", "single_mode", "aoc")
SAVE_EVERY = 50


class PlannedJob(TypedDict):
    """What a search keeps of the plan of one job between runs."""

    plan: str
    step_s: float
    num_gpus: int


@dataclass
class Designer:
    """A search under way: the jobs with their weights, the limits, and what has been planned already."""

    jobs: Sequence[tuple[Job, float]]
    limits: Limits = field(default_factory=Limits)
    assumptions: Assumptions | None = None
    state: Path | None = None
    ideals: dict[Card, float] = field(default_factory=dict)
    kept: dict[str, list[PlannedJob]] = field(default_factory=dict)
    """The jobs' plans by the network that a step sees."""
    read_keys: frozenset[str] = frozenset()
    """Networks that were planned by a search before this one."""

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
        priced: list[DesignPoint] = []
        try:
            for choice in every:
                point = self._priced(choice, found)
                priced += [] if point is None else [point]
                meter.advance(2 if point is None else 1)
            # Cheap ones first: they bound the dear ones.
            for number, point in enumerate(sorted(priced, key=cheap_first)):
                try:
                    self._look(point, found)
                except PlanError as error:  # no split of the job fits this number of GPUs
                    found.impossible[f"{point.num_gpus:,} GPUs: {point.choice.label}"] = error.message
                meter.advance()
                if number % SAVE_EVERY == SAVE_EVERY - 1:
                    self.write()
        except KeyboardInterrupt:
            found.complete = False
        return found

    def every(self, choices: Iterable[FabricChoice], found: DesignSearch, meter: Meter | None = None) -> None:
        """Plan every alternative that was asked for, by its cheapest switch: nothing is bounded away."""
        self.read()
        cheapest: dict[FabricChoice, DesignPoint] = {}
        for choice in choices:
            found.num_choices += 1
            point = self._priced(choice, found)
            kind = replace(choice, switch="")
            if point is not None and (kind not in cheapest or point.usd_per_year < cheapest[kind].usd_per_year):
                cheapest[kind] = point
        meter = meter or Meter()
        meter.expect(len(cheapest))
        for point in cheapest.values():
            try:
                found.points.append(self._whole(point, found))
            except PlanError as error:
                found.impossible[point.choice.label] = error.message
            self.write()
            meter.advance()

    def _priced(self, choice: FabricChoice, found: DesignSearch) -> DesignPoint | None:
        try:
            fabric = choice.build()
            owned = own(fabric, self.assumptions)
            if choice.copper and not shares_racks(fabric):
                raise PlanError(f"{choice.rack_hosts} hosts and their leaf do not fit one rack.")
        except SynclineError as error:
            found.impossible[choice.label] = error.message
            return None
        left, optics_usd = remains(fabric), _optics_usd(fabric)
        point = DesignPoint(
            choice, fabric.num_gpus, owned.capital_usd, owned.network_usd, optics_usd, owned.usd_per_year,
            owned.rated_power_w, owned.num_racks, left.after_one, left.after_two, left.worst,
            owned.assumptions.utilisation,
        )  # fmt: skip
        broken = self.limits.broken(point)
        if broken:
            found.miss(broken)
            return None
        return point

    def _whole(self, point: DesignPoint, found: DesignSearch) -> DesignPoint:
        """Return a point with the plans of the jobs and what failures take; its fabric is built a second time."""
        fabric = point.choice.build()
        found.num_planned += network_key(point.choice, fabric) not in self.read_keys
        return self._with_failures(self._with_plans(point, self._planned(point.choice, fabric)), fabric)

    def _look(self, point: DesignPoint, found: DesignSearch) -> None:
        if self._loses(replace(point, s_per_token=self._ideal(point)), found):
            return
        whole = self._whole(point, found)
        broken = self.limits.broken(whole)
        if broken:
            found.miss(broken)
            return
        if not any(other.at_least(whole) for other in found.points):
            found.points.append(whole)

    def _with_plans(self, point: DesignPoint, plans: Sequence[PlannedJob]) -> DesignPoint:
        tokens = [job.batch.global_ * job.batch.sequence for job, _ in self.jobs]
        step_s = tuple(plan["step_s"] for plan in plans)
        return replace(
            point, s_per_token=self._mean([s / n for s, n in zip(step_s, tokens, strict=True)]), step_s=step_s,
            plans=tuple(plan["plan"] for plan in plans), executed=executable(point.choice),
            idle_gpus=max(point.num_gpus - plan["num_gpus"] for plan in plans),
        )  # fmt: skip

    def ideal_s(self, point: DesignPoint) -> float:
        """Return the seconds a token on a network of a point's cards that is nowhere narrower than they are."""
        return self.ideals.get(card_of(point), point.s_per_token)

    def _ideal(self, point: DesignPoint) -> float:
        """Return the seconds a token on a network of a point's cards that is nowhere narrower than they are.

        It is executed, so it is a bound within what executing resolves; 0 where no such network can be built.
        """
        card = card_of(point)
        if card not in self.ideals:
            c = point.choice
            plain = FabricChoice(
                c.host, c.num_hosts, c.nic, c.nics, c.link, "fat-tree", 1.0, c.switch, sites=c.sites, wan=c.wan,
                reduction=c.reduction,
            )  # fmt: skip
            try:
                plans = self._planned(plain, plain.build())
                self.ideals[card] = self._with_plans(point, plans).s_per_token
            except SynclineError:
                self.ideals[card] = 0.0
        return self.ideals[card]

    def _loses(self, bound: DesignPoint, found: DesignSearch) -> bool:
        """Whether a point is beaten even if it ran as fast as its cards allow."""
        beaten = any(other.at_least(bound) for other in found.points)
        found.num_bounded += beaten
        return beaten

    def _with_failures(self, point: DesignPoint, fabric: Fabric) -> DesignPoint:
        """Return a point with the seconds a token that are paid for: failures, checkpoints and restarts included.

        A job that says on how many GPUs it runs pays for those.
        """
        paid = []
        for (job, _), step_s in zip(self.jobs, point.step_s, strict=True):
            used = job.gpus or point.num_gpus
            goodput = recovery(job, step_s, parts_of(fabric).of(used), self.assumptions or Assumptions()).goodput
            if goodput < LEAST_GOODPUT:
                raise PlanError(f"{job.model.name} never gets done: failures leave {goodput:.1%} of the time.")
            paid.append(step_s * used / point.num_gpus / (job.batch.global_ * job.batch.sequence * goodput))
        return replace(point, paid_s_per_token=self._mean(paid))

    def _mean(self, values: Sequence[float]) -> float:
        weights = [weight for _, weight in self.jobs]
        return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)

    def _planned(self, choice: FabricChoice, fabric: Fabric) -> list[PlannedJob]:
        """Return what `plan` says of every job on a fabric; networks that a step cannot tell apart are planned once."""
        key = network_key(choice, fabric)
        if key not in self.kept:
            self.kept[key] = [_plan(fabric, job, executable(choice)) for job, _ in self.jobs]
        return self.kept[key]

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
        if (data.get("jobs"), data.get("digest")) != (self._names(), self._digest()):
            raise PlanError(
                f"holds a design for {', '.join(data.get('jobs', []))}, which are other jobs, or of another version.",
                where=str(self.state), hint="Name another file, or remove it.",
            )  # fmt: skip
        self.kept = dict(data["points"])
        self.read_keys = frozenset(self.kept)

    def write(self) -> None:
        """Keep what was planned, where a file was named."""
        if self.state is not None:
            found = {"format": FORMAT, "jobs": self._names(), "digest": self._digest(), "points": self.kept}
            text = json.dumps(found, allow_nan=False)
            write_text(self.state, text + "\n")

    def _digest(self) -> str:
        """Return what tells apart searches whose plans may differ: the version, and everything the jobs say."""
        said = [__version__, *(job.model_dump_json() for job, _ in self.jobs)]
        return sha256("\n".join(said).encode()).hexdigest()[:24]

    def _names(self) -> list[str]:
        return [f"{job.name} {job.model.name} {job.batch.global_}x{job.batch.sequence} {w:g}" for job, w in self.jobs]


def _optics_usd(fabric: Fabric) -> float:
    """Return the price of optical cables with their modules."""
    catalog = fabric.spec.catalog
    optical = [name != UNKNOWN_CABLE and catalog.cable(name).kind in OPTICAL for name in fabric.cables]
    mask = np.array([*optical, False])[fabric.links.cable]  # the last where there is no cable, -1
    return sum(line.price_usd for line in network_lines(fabric, links=mask) if line.kind == "cable")


def executable(choice: FabricChoice) -> bool:
    """Whether the flow level can run it: it knows neither sums in switches nor cards that compress."""
    return not choice.reduction and load_catalog().nic(choice.nic).compresses <= 1


def _plan(fabric: Fabric, job: Job, executed: bool) -> PlannedJob:
    """Return the best plan of a job on a fabric: that of `syncline plan`, or the closed forms' if it cannot execute."""
    if not executed:
        question, num_gpus = ask(fabric, job, headroom=HEADROOM)
        looked = search(question, num_gpus, axes=USUAL, keep=1)
        if not looked.complete:
            raise KeyboardInterrupt
        if not looked.best:
            raise PlanError(f"{job.model.name} fits on none of {num_gpus:,} {question.machine.gpu.name}.")
        best = looked.best[0]
        return PlannedJob(plan=best.decision.label, step_s=best.step_s, num_gpus=best.decision.num_gpus)
    answer = make_plan(fabric, job, with_actions=False, with_run=False)
    if not answer.found.complete:  # what an interrupt left is not the best
        raise KeyboardInterrupt
    plan = answer.best
    return PlannedJob(plan=plan.decision.label, step_s=plan.predicted.step_time_s, num_gpus=plan.decision.num_gpus)


def network_key(choice: FabricChoice, fabric: Fabric) -> str:
    """Return what tells the networks of two fabrics apart for a step: cards, and cells that are narrower than them.

    Brands of switches, and cells with as much as their cards, make no difference. Where flows keep their own links
    (a torus, a dragonfly, circuits) every wire does.
    """
    machine = machine_from_fabric(fabric)
    reach, digest = machine.reach, sha256()
    for cells in fabric_reach(fabric).outer:
        if reach.oversubscribed or cells.name == "site":
            digest.update(cells.of_host.tobytes() + np.round(cells.even_Bps, 3).tobytes())
    if choice.topology not in (*TREES, "rail-only"):
        for column in (fabric.links.src, fabric.links.dst, fabric.links.rate_Bps):
            digest.update(np.ascontiguousarray(column).tobytes())
    seen = replace(reach, rack_gpus=0.0, pod_gpus=0.0) if not reach.oversubscribed else reach
    card = (choice.host, choice.num_hosts, choice.nic, choice.nics, choice.link, choice.planes, choice.reduction)
    digest.update(repr((card, machine.nic_Bps, seen, choice.pods, choice.circuits)).encode())
    return digest.hexdigest()[:24]
