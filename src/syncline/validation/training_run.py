"""One measured training run as a job on a machine, what the step model predicts for it, and the published runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.describe.own_data import own_data
from syncline.errors import DescriptionError
from syncline.fabric.catalog import Catalog, HostModel, load_catalog
from syncline.sim.step.arithmetic.layers_cost import layers_cost
from syncline.sim.step.build import build_case
from syncline.sim.step.case import Case, stack
from syncline.sim.step.constants import Constants, default_constants, left_out_constants
from syncline.sim.step.cost import step_cost
from syncline.sim.step.machine import Machine, machine_of
from syncline.sim.step.step import kind_of, stated_of
from syncline.sim.uncertainty import Spread, StepFacets, generation_of, step_spread
from syncline.validation.systems import shipped
from syncline.workload.job import Job
from syncline.workload.layer_list import LayerList
from syncline.workload.parallel import check_split
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of

Floats = npt.NDArray[np.float64]
SHIPPED = "training-runs.json.gz"


@dataclass(frozen=True, eq=False)
class PublishedTraining:
    """One measured run as a job on a machine; `num_rows` rows of its table state its speed in different metrics."""

    line: int
    table: str  # the source as its row states it
    model: str
    metric: str
    convention: str
    measured_s: float
    job: Job
    machine: Machine
    num_gpus: int
    remarks: tuple[str, ...] = ()
    readings: tuple[str, ...] = ()  # how free text of the row was read
    num_rows: int = 1
    is_open: bool = False  # shape, layout, batch or rates had to be assumed

    @property
    def source(self) -> str:
        return family(self.table)

    @property
    def has_experts(self) -> bool:
        return isinstance(self.job.model, Shape) and self.job.model.moe is not None

    @property
    def tokens_per_gpu(self) -> float:
        """Tokens (samples where the model has none) of one step and GPU."""
        per_sample = self.job.batch.sequence if self.case is not None else 1
        return self.job.batch.global_ * per_sample / self.num_gpus

    @cached_property
    def case(self) -> Case | None:
        """The run as the step model prices it; None for a model that is a list of layers."""
        return case_of(self.job, self.machine)

    @property
    def spread(self) -> Spread:
        """How far off the prediction may be, by what the row states."""
        job, gpu = self.job, self.machine.gpu
        stated = "guessed" if self.is_open else stated_of(job, facts_of(job))
        generation = generation_of(gpu.architecture, gpu.vendor)
        found = step_spread(StepFacets(kind_of(job), stated, generation, job.precision, self.num_gpus))
        if not any(remark.startswith("precision") for remark in self.remarks):
            return found
        why = "the precision is not published, and 8 bits would be up to twice as fast"
        return replace(found, low_90=found.low_90 / 2, low_50=found.low_50 / 1.5, unmeasured=(*found.unmeasured, why))


@dataclass(frozen=True)
class SkippedRow:
    """A row that is not predicted, and why."""

    line: int
    source: str
    model: str
    metric: str
    reason: str


def family(source: str) -> str:
    """Return which publication a source belongs to: its name without table, commit and page."""
    name = re.split(r" @|: | \(| p\d| Table| via ", source)[0].strip()
    return name if len(name) > 3 else source


def case_of(job: Job, machine: Machine) -> Case | None:
    """Return the case of a job, None for a list of layers; raise where it cannot be split or priced."""
    if isinstance(job.model, LayerList):
        layers_cost(job, machine, Constants(), 2.0)
        return None
    check_split(job.model, job.parallel)
    case = build_case(job, machine)
    if not np.isfinite(step_cost(case, Constants()).total):
        raise DescriptionError("its numbers give no finite step time")
    return case


def predictions(runs: Sequence[PublishedTraining], constants: Constants) -> Floats:
    """Return the predicted step times of runs."""
    out = np.empty(len(runs))
    cases = [run.case for run in runs]
    if any(case is not None for case in cases):
        stacked = stack([case for case in cases if case is not None])
        out[[case is not None for case in cases]] = step_cost(stacked, constants).total
    for number, run in enumerate(runs):
        if cases[number] is None:
            gradient_bytes = facts_of(run.job).gradient_bytes
            out[number] = layers_cost(run.job, run.machine, constants, gradient_bytes).total
    return out


def left_out_predictions(runs: Sequence[PublishedTraining]) -> Floats:
    """Return each run's step time as predicted by constants that were fitted without its source."""
    out, by_source = np.empty(len(runs)), left_out_constants()
    for source in dict.fromkeys(run.source for run in runs):
        mine = [number for number, run in enumerate(runs) if run.source == source]
        out[mine] = predictions([runs[number] for number in mine], by_source.get(source, default_constants()))
    return out


@cache
def parts() -> Catalog:
    """Return the catalogue with the accelerators that only published runs have."""
    return load_catalog().with_parts(own_data("validation", "data/accelerators.yaml"))


def published_runs() -> tuple[list[PublishedTraining], list[SkippedRow], int]:
    """Return the published runs that ship, the rows that cannot be modelled, and how many rows there are."""
    stored = json.loads(shipped(SHIPPED))
    skipped = [SkippedRow(**row) for row in stored["skipped"]]
    return [_stored_run(row) for row in stored["runs"]], skipped, stored["rows"]


def _stored_run(row: Mapping[str, Any]) -> PublishedTraining:
    """Return one run of the stored file: fields of PublishedTraining, with the host as changes of a catalogue host."""
    fields = dict(row)
    host, link, nic_Bps, oversubscription = (fields.pop(key) for key in ("host", "link", "nic_Bps", "oversubscription"))
    fields["job"] = Job.model_validate(fields["job"])
    fields["remarks"], fields["readings"] = tuple(fields["remarks"]), tuple(fields["readings"])
    machine = stored_machine(host, link, nic_Bps, oversubscription, fields["num_gpus"])
    return PublishedTraining(**fields, machine=machine)


def stored_machine(
    host: Mapping[str, object], link: str | None, nic_Bps: float, oversubscription: float, num_gpus: int
) -> Machine:
    """Return the machine of a stored run: `host` names a host of the catalogue and what of it differs."""
    model: HostModel = parts().host(str(host["model"]))
    model = model.model_copy(update={key: value for key, value in host.items() if key != "model"})
    kind = parts().link(link) if link else None
    machine = machine_of(model, kind, num_gpus, catalog=parts(), oversubscription=oversubscription)
    return replace(machine, nic_Bps=nic_Bps)
