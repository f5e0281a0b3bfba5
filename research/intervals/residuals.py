"""Residuals of published measurements: log(measured / predicted) by constants that never saw their source.

    rows = all_residuals()               # steps, collectives, peak memory, prices
    rows[0].facets, rows[0].residual, rows[0].part

Steps are predicted four times, with less and less of what their source's software is known to do: described, software
(framework and date only), plain (a short job file: the date alone); rows whose layout, batch or precision had to be
assumed are `guessed`. `calibrated` is what is left of a sweep after one of its runs was measured.
`data/parts.yaml` deals the publications into three parts: each is judged by intervals made from the other two.
"""

from __future__ import annotations

import csv
import io
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from research.published import BLIND_SETS, COLLECTIVES, TRAINING, collective_rows, table, training_rows
from research.serving.engines import DEFAULTS, default_ratio
from research.serving.engines import stored as engine_rows
from research.serving.throughput import run as throughput
from research.training.observed import ObservedRun, observe, predicted_s
from research.training.systems import load_systems

from syncline.errors import SynclineError
from syncline.planning.cost.prices import load_prices
from syncline.sim.nccl.interval import BANDS, band
from syncline.sim.profile import in_common, thing_of
from syncline.sim.shared import KnownError, learnt, levels_of
from syncline.sim.step.build import build_case
from syncline.sim.step.constants import Constants, default_constants, document, left_out_constants
from syncline.sim.step.memory import memory, outside
from syncline.sim.step.step import kind_of
from syncline.sim.uncertainty import Facets, StepFacets, generation_of, how_known, size_shares
from syncline.validation.collectives import validate_rows
from syncline.validation.systems import load_systems as load_collective_systems
from syncline.validation.training_run import family
from syncline.workload.job import Job

NUM_PARTS = 3
#: The facets of a residual in the order in which tables keep them.
STORED = {
    "step": ("kind", "stated", "generation", "precision", "scale", "shared"),
    "collective": ("stated", "reach", "band", "op", "generation"),
    "memory": ("framework",), "serve": ("what", "start", "kind", "engine"), "price": (),
}  # fmt: skip
#: Facts that a short job file does not state; each has a default by framework and year.
_FACTS = ("attention", "compiled", "overlap", "optimizer", "gradient_bytes", "parameter_bytes", "accumulate_bytes",
          "early_stop", "cuda_graphs", "dispatcher")  # fmt: skip


@dataclass(frozen=True)
class Residual:
    """One measurement beside its prediction."""

    subject: str
    publication: str
    facets: dict[str, str]
    size: int  # GPUs of a step, hosts of a collective
    residual: float
    line: str  # file and line
    num_bytes: int = 0  # of a collective
    blind_set: int = 2  # the set its row came with; 2 and below: before the first blind score
    new: bool = False  # scored before anybody had looked at its source

    @property
    def known(self) -> Facets:
        """What is known of the case, as intervals are looked up by it."""
        if self.subject == "collective":
            stated = how_known(self.facets["stated"] == "calibrated")
            return {**self.facets, "stated": stated, "size": size_shares(self.num_bytes)}
        return {**self.facets, "source": "new" if self.new else "known"}

    @property
    def part(self) -> int:
        """Which of the three parts its publication belongs to."""
        return parts().get(self.publication, zlib.crc32(self.publication.encode()) % NUM_PARTS)

    @property
    def fitted(self) -> bool:
        """Whether constants of the step model were fitted to its publication; its own prediction left it out."""
        return self.subject == "step" and (
            self.blind_set == 0 or self.publication in document()["fitted_on"]["sources"]
        )

    def cells(self) -> dict[str, str]:
        """Return the row as the stored table has it."""
        facets = "|".join(self.facets.get(name, "") for name in STORED[self.subject])
        return {"subject": self.subject, "publication": self.publication, "part": str(self.part), "facets": facets,
                "size": str(self.size), "residual": f"{self.residual:.4f}", "line": self.line,
                "num_bytes": str(self.num_bytes or "")}  # fmt: skip


@cache
def parts() -> dict[str, int]:
    """Return the part of every publication that is listed; others are dealt by their name."""
    listed: list[list[str]] = table("parts.yaml")["parts"]
    return {name: number for number, names in enumerate(listed) for name in names}


def read_table(text: str) -> list[Residual]:
    """Return the residuals of a table that `table_text` wrote."""
    rows = csv.DictReader(io.StringIO(text))
    return [
        Residual(row["subject"], row["publication"], _facets(row["subject"], row["facets"]), int(row["size"]),
                 float(row["residual"]), row["line"], int(row["num_bytes"] or 0))
        for row in rows
    ]  # fmt: skip


def _facets(subject: str, text: str) -> dict[str, str]:
    return {name: value for name, value in zip(STORED[subject], text.split("|"), strict=False) if value}


def publication(source: str) -> str:
    """Return which publication a source is: a page that is renewed with every release is one a release."""
    name = family(source)
    release = re.search(r"(?<![\d.])(2\d\.\d\d)(?!\d)", source)
    return f"{name} {release.group(1)}" if release and "Megatron-Bridge" in name else name


@cache
def all_residuals() -> tuple[Residual, ...]:
    """Return every residual to four digits; about half a minute."""
    found: list[Residual] = []
    for blind_set in BLIND_SETS:
        found += step_residuals(blind_set)
    for blind_set in BLIND_SETS:
        found += collective_residuals(blind_set)
    return tuple(
        replace(row, residual=round(row.residual, 4)) for row in (*found, *serving_residuals(), *price_residuals())
    )


def step_residuals(blind_set: int, only: Sequence[str] | None = None) -> list[Residual]:
    """Return the residuals of a set of training rows; `only` publications whose names contain one of these."""
    rows = training_rows(blind_set)
    if only is not None:
        rows = [row for row in rows if any(text in publication(row.text("source")) for text in only)]
    runs = [run for run in observe(rows, load_systems(None))[0] if run.case is not None and not _is_open(run)]
    found: list[Residual] = []
    described: dict[int, float] = {}
    for number, run in enumerate(runs):
        for stated in ("described", "software", "plain"):
            value = _residual(run, stated)
            if value is None:
                continue
            if stated == "described":
                described[number] = value
            found.append(_of_step(run, "guessed" if run.assumed or run.recalled else stated, value, blind_set))
            if run.assumed or run.recalled:
                break
        found += _of_memory(run, blind_set)
    systems: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in described:
        run = runs[number]
        systems[publication(run.run.source), run.described.machine.gpu.name].append(number)
    for numbers in systems.values():
        found += _after_one([runs[i] for i in numbers], [described[i] for i in numbers], blind_set)
    return found


def _after_one(runs: Sequence[ObservedRun], off: Sequence[float], blind_set: int) -> list[Residual]:
    """Return what is left of each run of a system after one was measured, for each that it may have in common."""
    things = [thing_of(run.described.job, run.described.num_gpus) for run in runs]
    found = []
    for number, run in enumerate(runs):
        levels, done = levels_of("experts" if run.has_experts else "step"), set[str]()
        for other, thing in enumerate(things):
            shared = in_common(thing, things[number])
            if other != number and shared not in done:
                done.add(shared)
                mean = learnt(levels, [KnownError(thing, off[other])], [things[number]]).mean
                found.append(_of_step(run, "calibrated", off[number] - float(mean[0]), blind_set, shared))
    return found


def _is_open(run: ObservedRun) -> bool:
    """Say whether a run leaves its precision open: a factor of two, which is no error of the model."""
    return any(remark.startswith("precision") for remark in run.described.remarks)


def _residual(run: ObservedRun, stated: str) -> float | None:
    """Return log(measured / predicted) with as much of the job as is stated; None where that has no prediction."""
    job = run.described.job if stated == "described" else stripped(run.described.job, software=stated == "software")
    try:
        total = float(predicted_s(build_case(job, run.described.machine), _constants(run.source)))
    except (SynclineError, ValueError, ArithmeticError):
        return None
    return math.log(run.measured_s / total) if total > 0 and math.isfinite(total) else None


def _constants(source: str) -> Constants:
    return left_out_constants().get(source, default_constants())


def stripped(job: Job, *, software: bool) -> Job:
    """Return a job without the facts about its kernels and overlap, and without its framework unless that is kept.

    Its date stays: whoever writes a short job file runs the software of the day, and so did these runs.
    """
    gone: dict[str, object] = {name: Job.model_fields[name].default for name in _FACTS if name in Job.model_fields}
    gone["parallel"] = job.parallel.model_copy(update={"sp": None})
    if not software:
        gone["software"] = job.software.model_copy(update={"framework": "auto"})
    return job.model_copy(update=gone)


def _of_step(run: ObservedRun, stated: str, value: float, blind_set: int, shared: str = "") -> Residual:
    gpu, job = run.described.machine.gpu, run.described.job
    generation = generation_of(gpu.architecture, gpu.vendor)
    facets = StepFacets(kind_of(job), stated, generation, job.precision, run.described.num_gpus, shared)
    line = f"{TRAINING}:{run.rows[0][0].line}"
    return Residual(
        "step", publication(run.run.source), facets.as_dict(), run.described.num_gpus, value, line, blind_set=blind_set
    )


def _of_memory(run: ObservedRun, blind_set: int) -> list[Residual]:
    """Return the residual of a run's peak memory where its notes state one: "peak memory 77.1 GiB".

    Frameworks report what their allocator holds; context and communicators lie outside of it.
    """
    stated = re.search(r"peak memory (\d+(?:\.\d+)?) ?GiB", run.run.best.text("notes"))
    if stated is None or run.case is None:
        return []
    reported = float(stated.group(1)) * 2**30 + float(outside(run.case))
    value = math.log(reported / float(memory(run.case).total))
    line = f"{TRAINING}:{run.rows[0][0].line}"
    facets = {"framework": str(run.described.job.software.framework)}
    return [Residual("memory", run.run.source, facets, run.described.num_gpus, value, line, blind_set=blind_set)]


def collective_residuals(blind_set: int, only: Sequence[str] | None = None) -> list[Residual]:
    """Return the residuals of a set of nccl-tests rows; `only` systems whose names contain one of these.

    A row that says "about" is a statement, not a measurement: constants may learn from it, intervals may not.
    """
    rows = [row for row in collective_rows(blind_set) if not re.match(r"about\b", row.notes)]
    if only is not None:
        rows = [row for row in rows if any(text in row.system for text in only)]
    found = []
    for point in validate_rows(rows, load_collective_systems(None), COLLECTIVES).points:
        row, size = point.row, float(point.row.size_bytes)
        for ratio, stated in ((point.left_out_ratio, point.stated), (point.left_out_calibrated_ratio, "calibrated")):
            if ratio is None or ratio <= 0:
                continue
            facets = {"stated": stated, "reach": point.reach, "op": row.op,
                      "band": BANDS[int(band(np.array([size]))[0])], "generation": point.generation}  # fmt: skip
            found.append(
                Residual(
                    "collective",
                    row.system,
                    facets,
                    row.num_hosts,
                    -math.log(ratio),
                    f"{COLLECTIVES}:{row.line}",
                    int(size),
                    blind_set,
                )
            )
    return found


def serving_residuals() -> list[Residual]:
    """Return how far published rates and times of serving engines lie from the predicted ones."""
    found = []
    for row in throughput()["rows"]:
        kind = "dense" if "llama3" in row["model"] else "experts"
        line = f"throughput.py {row['prompt']}/{row['answer']}"
        facets = {"what": "rate", "start": "tuned", "kind": kind, "engine": "trtllm"}
        found.append(Residual("serve", f"{row['model']} on {row['host']}", facets, 1, -math.log(row["ratio"]), line))
    for each in engine_rows():
        line = f"engine-residuals.csv {each['prompt']}/{each['answer']}, {each['users']} users"
        for what in ("rate", "token"):  # users of a fixed number ask in bursts, so first tokens are another quantity
            facets = {"what": what, "start": "tuned", "kind": each["kind"], "engine": each["engine"]}
            found.append(Residual("serve", each["group"], facets, 1, float(each[what]), line))
    for run in DEFAULTS:
        facets = {"what": "rate", "start": "default", "kind": run.kind, "engine": run.engine}
        log = -math.log(default_ratio(run))
        found.append(Residual("serve", f"{run.model} on {run.host}, defaults", facets, 1, log, "engines.py"))
    return found


def price_residuals() -> list[Residual]:
    """Return how far list prices of a GPU-hour lie from the median of the sellers of that GPU."""
    offers: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for price in load_prices(None).rows:
        if price.kind in ("instance", "gpu_hour") and price.status == "current" and price.gpu and price.num_gpus:
            offers[price.gpu][price.provider].append(price.usd_per_gpu_hour)
    return list(_of_prices(offers))


def _of_prices(offers: dict[str, dict[str, list[float]]]) -> Iterable[Residual]:
    for gpu, sellers in offers.items():
        if len(sellers) < 3:
            continue
        middle = float(np.median([np.median(prices) for prices in sellers.values()]))
        for seller, prices in sellers.items():
            yield Residual("price", seller, {}, 1, math.log(float(np.median(prices)) / middle), f"prices.csv {gpu}")
