"""From a row to a job on a machine: what the row says, then what a systems file says of its source, then defaults.

What nobody says is chosen as a tuned run would: the fastest split that fits the memory; recomputation only where a run
cannot fit without it. Every such choice is a remark of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from research.training import guess
from research.training.accelerator import accelerator_of, network_of, power_of
from research.training.layout import (
    batch_of,
    is_sharded,
    keeps_gathered,
    late_sums,
    not_overlapped,
    possible_splits,
    sharded_split,
    stated_split,
    stated_total,
    virtual_of,
    zero_of,
)
from research.training.model_of_row import model_of
from research.training.number import counts_hosts
from research.training.rows import PublishedRow
from research.training.systems import TrainingSystemEntry, merged

from syncline.describe.mistakes import first_mistake
from syncline.errors import DescriptionError, SynclineError
from syncline.fabric.catalog import HostModel
from syncline.fabric.spec import ClusterSpec, HostSpec, host_from_text
from syncline.sim.step.build import build_case
from syncline.sim.step.constants import Constants
from syncline.sim.step.cost import step_cost
from syncline.sim.step.machine import Machine, machine_from_spec, machine_of
from syncline.sim.step.memory import memory
from syncline.validation.metrics import usual_convention
from syncline.validation.training_run import parts
from syncline.workload.job import Job
from syncline.workload.layer_list import LayerList
from syncline.workload.shape import Shape
from syncline.workload.software import TORCH_LIKE

#: A run is taken to fit if its memory is estimated below this share: of runs that say they fit without recomputation
#: the estimate is 1.18 of the part at most.
MEMORY_MARGIN = 1.2


#: Whole layers repeated, least first: as many as the memory asks for (Megatron's `--recompute-method block`).
REPEATED = ("partial-25", "partial-50", "partial-75", "full")
#: Month of software of which only the year is known.
MID_YEAR = 6


@dataclass(frozen=True)
class RowReading:
    """A row as a job on a machine, with the convention of its metric and what was assumed."""

    job: Job
    machine: Machine
    num_gpus: int
    convention: str
    peak_flops: float
    params: float
    remarks: tuple[str, ...] = field(default=())
    readings: tuple[str, ...] = field(default=())  # how the row's free text was read
    counted_vocab: int = 0  # that FLOP are counted by, where made-up data has fewer words; 0: the job's
    host: HostModel | None = None
    link: str | None = None
    oversubscription: float = 1.0


def describe(row: PublishedRow, entries: Sequence[TrainingSystemEntry]) -> RowReading:
    """Return the job and machine of a row, or raise a DescriptionError that says why it cannot be modelled."""
    facts: dict[str, Any] = {}
    for entry in entries:
        if entry.matches(row):
            facts = merged(facts, entry.fields)
    if facts.get("skip"):
        raise DescriptionError(str(facts["skip"]))
    host, unverified = _host(row, facts)
    if counts_hosts(row.text("gpus")):
        said = row.text("gpus")
        raise DescriptionError(
            f'"{said}" counts hosts, but this column counts GPUs (a {host.name} has {host.num_gpus})'
        )
    num_gpus = row.whole("gpus")
    if not num_gpus or num_gpus < 1:
        raise DescriptionError("the number of GPUs is not published")
    machine, network = _machine(row, facts, host, num_gpus)
    reader = _Reader(row, facts, machine, num_gpus)
    job = reader.job()
    precision: Any = job.precision
    gpu, peak = machine.gpu, facts.get("peak_tflops")
    flops = gpu.flops_at(precision) or gpu.flops_at("bf16") or gpu.flops_at("fp16") or 0.0
    flops = float(peak) * 1e12 if peak else flops / max(gpu.num_dies, 1)
    params = _met(job.model) or (row.number("params_b") or 0.0) * 1e9 or float(_active(job.model))
    convention = str(facts.get("convention") or usual_convention(row.text("metric"), job))
    remarks = [str(facts["remark"])] if facts.get("remark") else []
    remarks += [remark for remark in (unverified, *reader.remarks) if remark]
    readings = tuple(words for words in (network, reader.precision_words) if words)
    told = tuple(dict.fromkeys(remarks))
    link, oversubscription = _uplink(facts, host)
    return RowReading(
        job, machine, num_gpus, convention, flops, params, told, readings, reader.counted_vocab, host, link,
        oversubscription,
    )  # fmt: skip


def _uplink(facts: Mapping[str, Any], host: HostModel) -> tuple[str | None, float]:
    """Return the link type and oversubscription of a machine: the network's of a described cluster, else the host's."""
    cluster = facts.get("cluster")
    if not isinstance(cluster, Mapping) or "network" not in cluster or "host" not in cluster:
        return host.link, 1.0
    network = ClusterSpec.model_validate({"hosts": 1, **cluster}).network
    return getattr(network, "link", None) or host.link, float(getattr(network, "oversubscription", 1.0) or 1.0)


def _met(model: Shape | LayerList) -> float:
    """Return the parameters that a token of a model with experts meets, which FLOP are counted by; 0 for others."""
    return float(model.active_params) if isinstance(model, Shape) and model.moe else 0.0


def _active(model: Shape | LayerList) -> int:
    return model.active_params if isinstance(model, Shape) else model.params


def _host(row: PublishedRow, facts: Mapping[str, Any]) -> tuple[HostModel, str]:
    cluster = facts.get("cluster")
    if not cluster:
        return accelerator_of(row)
    given = cluster.get("host", cluster) if isinstance(cluster, Mapping) else cluster
    try:
        return HostSpec.model_validate(host_from_text(given)).resolve(parts()), ""
    except ValidationError as error:
        raise DescriptionError(f"cluster: {first_mistake(error)}") from None


def _machine(row: PublishedRow, facts: Mapping[str, Any], host: HostModel, num_gpus: int) -> tuple[Machine, str]:
    """Return the machine of a row, and how its network was read; raise where that must be asked."""
    link = parts().link(host.link) if host.link else None
    cluster = facts.get("cluster")
    if isinstance(cluster, Mapping) and "network" in cluster and "host" in cluster:
        try:
            spec = ClusterSpec.model_validate({"hosts": max(-(-num_gpus // host.num_gpus), 1), **cluster})
        except ValidationError as error:
            raise DescriptionError(f"cluster: {first_mistake(error)}") from None
        machine = machine_from_spec(spec, num_gpus)
        return replace(machine, nic_Bps=min(machine.nic_Bps, machine.upper_Bps)), ""
    machine = machine_of(host, link, num_gpus, catalog=parts())
    dies = max(machine.gpu.num_dies, 1)
    if network := facts.get("network"):
        return replace(machine, nic_Bps=float(network) * 1e9 / 8 / dies), ""
    said = network_of(row, host)
    if num_gpus <= machine.domain:
        words = said.words or said.question.split(";")[0]
        return machine, f"{words}; not used inside one scale-up domain" if words else ""
    if said.question:
        raise DescriptionError(f"the network is not clear: {said.question}")
    if said.gpu_Bps:
        return replace(machine, nic_Bps=said.gpu_Bps / dies), said.words
    usual = f"no network rate published: {machine.nic_Bps * dies * 8 / 1e9:g} Gb/s a GPU, as {host.name} has"
    return machine, "; ".join(words for words in (said.words, usual) if words)


#: Tokens of a sequence where a row states none.
USUAL_SEQUENCE = 2048
#: Facts of a systems file that have found their place in the job before the rest is laid over it.
_PLACED = ("batch", "parallel", "precision", "recompute", "software")


class _Reader:
    """Reads one row into a job; `remarks` gathers what had to be assumed."""

    def __init__(self, row: PublishedRow, facts: Mapping[str, Any], machine: Machine, num_gpus: int) -> None:
        self.row, self.facts, self.machine, self.num_gpus = row, facts, machine, num_gpus
        self.given: Mapping[str, Any] = facts.get("job", {})
        self.remarks: list[str] = []
        self.model, remark = model_of(row)
        self.remarks.append(remark)
        if facts.get("vocab") and isinstance(self.model, Shape):
            self.model = self.model.model_copy(update={"vocab": int(facts["vocab"])})
        self.counted_vocab = 0
        if (words := guess.small_vocab(row) or facts.get("mock_vocab")) and isinstance(self.model, Shape):
            self.counted_vocab = self.model.vocab
            self.model = self.model.model_copy(update={"vocab": int(words)})
        software = self.given.get("software", {})
        self.framework = str(software.get("framework") or guess.framework_of(row))
        self.torch_like = self.framework in TORCH_LIKE
        # An entry tells what a framework's tables ran; a row with a later date of its own ran what was there then.
        listed = int(software.get("year") or 0)
        self.year = max(listed, guess.dated_year(row) or 0) if listed else guess.year_of(row)
        self.month = guess.month_of(row)
        self.sharded = False  # over all chips, because nothing else is said
        stated = row.whole("seq") or self.given.get("batch", {}).get("sequence")
        self.sequence = int(stated or USUAL_SEQUENCE)
        if not stated:
            self.remarks.append(f"sequence not published: {USUAL_SEQUENCE:,} tokens assumed")
        self.precision, self.precision_words = self._precision()
        if "assumed" in self.precision_words:
            self.remarks.append(self.precision_words)

    def job(self) -> Job:
        """Return the job, its open questions answered."""
        split = stated_split(self.row, self.num_gpus, self.model, self.machine.domain)
        redo = self._recompute()
        if split is not None:
            job = self._lightest(split, (redo,) if redo else self._options())
            return self._staged(job) or job
        total = stated_total(self.row, self.sequence, 1) or 0
        if guess.is_jax(self.row) and (split := sharded_split(self.model, self.num_gpus, total)):
            self.sharded = True
            self.remarks.append(f"layout not published: sharded over all {self.num_gpus}, as MaxText does by default")
            return self._lightest(split, (redo,) if redo else self._options())
        wide = not guess.is_jax(self.row)  # which has no pipelines of uneven stages
        splits = list(possible_splits(self.model, self.num_gpus, self.machine.domain, total, wide=wide))
        if not splits:
            raise DescriptionError("the parallel layout (tp, pp) is not published, and none fits the batch and heads")
        return self._fastest(splits, (redo,) if redo else ("none", *REPEATED))

    def _staged(self, whole: Job) -> Job | None:
        """Return the fastest pipeline of a run that states tp alone and does not fit without stages, else None."""
        row = self.row
        told = any(row.whole(column) for column in ("pp", "dp")) or is_sharded(row) or guess.is_jax(row)
        if told or not row.whole("tp"):
            return None
        if _fullness(self._build(split_of(whole), "none"), self.machine) <= MEMORY_MARGIN:
            return None
        total = stated_total(row, self.sequence, 1) or 0
        every = possible_splits(self.model, self.num_gpus, self.machine.domain, total)
        splits = [split for split in every if split["tp"] == row.whole("tp")]
        return self._fastest(splits, ("none", *REPEATED)) if splits else None

    def _recompute(self) -> str | None:
        said = guess.recompute_of(self.row, self.torch_like) or self.given.get("recompute")
        early = self.year < 2022 or (self.framework == "deepspeed" and self.year < 2023)
        said = said or ("full" if early else None)
        return "full" if said == "selective" and self.year < 2022 else said

    def _options(self) -> tuple[str, ...]:
        """Return what the software can repeat, least first; PyTorch and JAX can repeat single operations."""
        by_operation = self.torch_like and self.year >= 2023
        return ("none", "selective-op", *REPEATED) if by_operation else ("none", *REPEATED)

    def _lightest(self, split: dict[str, int], options: tuple[str, ...]) -> Job:
        """Return the job with the least recomputation that fits; the first where none does or nothing is open."""
        jobs = [self._build(split, redo) for redo in options]
        if len(jobs) == 1 or not isinstance(self.model, Shape):
            return jobs[0]
        fitting = [job for job in jobs if _fullness(job, self.machine) <= MEMORY_MARGIN]
        if jobs[0] not in fitting:
            self.remarks.append("recomputation not published; the run cannot fit without it")
        return fitting[0] if fitting else jobs[-1]

    def _fastest(self, splits: list[dict[str, int]], options: tuple[str, ...]) -> Job:
        """Return the fastest split that fits, priced with the start values so that no fit can move the choice."""
        best: tuple[bool, float, Job] | None = None
        for split in splits:
            for redo in options:
                try:
                    job = self._build(split, redo)
                    found = (_fullness(job, self.machine) > 1.0, _seconds(job, self.machine), job)
                except SynclineError:
                    continue
                best = found if best is None or found[:2] < best[:2] else best
        if best is None:
            raise DescriptionError("the parallel layout (tp, pp) is not published, and none was found that works")
        chosen = best[2].parallel
        self.remarks.append(f"layout not published: tp {chosen.tp}, pp {chosen.pp}, dp {chosen.dp} chosen")
        return best[2]

    def _build(self, split: dict[str, int], recompute: str) -> Job:
        batch, remark = batch_of(self.row, self.facts, split, self.sequence)
        self.remarks.append(remark)
        fields: dict[str, object] = {
            "model": self.model, "parallel": self._parallel(split), "batch": batch | {"sequence": self.sequence},
            "recompute": recompute, "precision": self.precision, "power_w": power_of(self.row),
            "token_drop": "tokendrop" in self.row.text("model").lower().replace("-", ""),
            "frozen": guess.has_adapters(self.row),
            "software": {"framework": self.framework, "year": self.year, "month": self.month or MID_YEAR},
            "recipe": guess.recipe_of(self.row) if self.precision in ("fp8", "fp4") else None,
        }  # fmt: skip
        if kernel := guess.attention_of(self.row):
            fields["attention"] = kernel
        # Megatron overlaps nothing unless told to; publications since 2024 tell it to.
        summed = {"dp": not late_sums(self.row, self.framework, self.year)} if self.framework == "megatron" else {}
        fields["overlap"] = summed | ({"reshard": False} if keeps_gathered(self.row) else {})
        said = {k: v for k, v in self.given.items() if k not in _PLACED}
        try:
            return Job.model_validate(merged(merged(fields, said), self._remarked()))
        except ValidationError as error:
            raise DescriptionError(first_mistake(error)) from None

    def _remarked(self) -> dict[str, object]:
        """Return what a row's remarks say of its kernels and overlap: it wins over what is known of its source."""
        said: dict[str, object] = {"cuda_graphs": True} if guess.has_graphs(self.row) else {}
        if exposed := not_overlapped(self.row):
            said["overlap"] = exposed
        if dispatcher := guess.dispatcher_of(self.row):
            said["dispatcher"] = dispatcher
        compiled = guess.compiled_of(self.row) if self.torch_like else None
        return said if compiled is None else said | {"compiled": compiled}

    def _parallel(self, split: dict[str, int]) -> dict[str, Any]:
        given = dict(self.given.get("parallel", {}))
        out: dict[str, Any] = split | zero_of(self.row, self.year)
        if self.sharded:
            out["zero"] = "fsdp"
        if out["zero"] == "fsdp" and self.machine.gpu.vendor == "google" and self.num_gpus > self.machine.domain:
            out |= {"zero": "hsdp", "shard": self.machine.domain}  # slices are replicas: only gradients cross between
        if out["zero"] == "2" and split["pp"] > 1:
            out["zero"] = "1"  # stages sum whole gradients and scatter them once; DeepSpeed refuses ZeRO-2 there
        if out["zero"] == "hsdp" and "shard" not in out:
            out["shard"] = min(self.machine.gpus_per_host, split["dp"] * split["cp"])
        if "selective + sequence" in self.row.text("recompute"):
            out["sp"] = True
        elif "2205.05198" in self.row.text("source"):
            out["sp"] = False
        out = merged(given, out) if not given.get("zero") or is_sharded(self.row) else merged(out, given)
        out["virtual"] = virtual_of(self.row, self.facts, self.model, split["pp"])
        return out | ({"schedule": "interleaved"} if out["virtual"] > 1 else {})

    def _precision(self) -> tuple[str, str]:
        """Return the precision, and in words where it comes from unless the row says it."""
        written = self.row.text("precision")
        if stated := guess.precision_of(self.row):
            return stated, ""
        if given := self.given.get("precision") or self.facts.get("precision"):
            return str(given), f"precision {given} from the systems file"
        usual = "fp16" if self.year < 2022 else "bf16"
        why = f'precision "{written}" is not understood' if written else "precision not published"
        return usual, f"{why}: {usual} assumed"


def split_of(job: Job) -> dict[str, int]:
    """Return the split of a job as the readers of rows pass it on."""
    split = job.parallel
    return {"tp": split.tp, "pp": split.pp, "cp": split.cp, "dp": split.dp or 1, "ep": split.ep or 1}


def _fullness(job: Job, machine: Machine) -> float:
    """Return the memory that a job needs over what its part has."""
    if not isinstance(job.model, Shape):
        return 0.0
    case = build_case(job, machine)
    return float(memory(case).total / case.memory_bytes)


def _seconds(job: Job, machine: Machine) -> float:
    if not isinstance(job.model, Shape):
        return 1.0
    return float(step_cost(build_case(job, machine), Constants()).total)
