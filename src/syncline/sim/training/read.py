"""From a row to a job on a machine: what the row says, then what a systems file says of its source, then defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from syncline.errors import DescriptionError
from syncline.fabric.catalog import load_catalog
from syncline.fabric.document import read_document, read_text
from syncline.fabric.spec import HostSpec, host_from_text
from syncline.sim.step.build import build_case
from syncline.sim.step.machine import Machine, machine_of
from syncline.sim.step.memory import memory
from syncline.sim.training import guess
from syncline.sim.training.rows import Row
from syncline.workload.job import Job
from syncline.workload.parallel import divisors
from syncline.workload.shape import Shape

_KEYS = {
    "source",
    "notes",
    "model",
    "gpu",
    "job",
    "cluster",
    "network",
    "convention",
    "precision",
    "micro",
    "virtual",
    "skip",
    "remark",
    "peak_tflops",
}


#: A run is taken to fit if its memory is estimated below this share: the estimate itself is off by a tenth.
MEMORY_MARGIN = 1.1


@dataclass(frozen=True)
class Entry:
    """One entry of a systems file."""

    patterns: Mapping[str, re.Pattern[str]]
    fields: Mapping[str, Any]

    def matches(self, row: Row) -> bool:
        """Say whether this entry speaks of a row."""
        return all(pattern.search(row.text(column)) for column, pattern in self.patterns.items())


@dataclass(frozen=True)
class Described:
    """A row as a job on a machine, with the convention of its metric and what was assumed."""

    job: Job
    machine: Machine
    num_gpus: int
    convention: str
    peak_flops: float
    params: float
    remarks: tuple[str, ...] = field(default=())


def read_systems(text: str, where: str) -> tuple[Entry, ...]:
    """Read a systems file; errors name file and line."""
    document = read_document(text, where)
    entries = document.data.get("systems") if isinstance(document.data, dict) else document.data
    if not isinstance(entries, list):
        raise DescriptionError("a systems file is a list of entries under `systems:`.", where=where)
    return tuple(_entry(entry, document.where(("systems", number))) for number, entry in enumerate(entries))


def _entry(entry: Any, where: str) -> Entry:
    if not isinstance(entry, dict) or not set(entry) & {"source", "notes", "model", "gpu", "system"}:
        raise DescriptionError("an entry needs a pattern: `source`, `notes`, `model` or `gpu`.", where=where)
    entry = {("source" if key == "system" else key): value for key, value in entry.items()}
    if unknown := set(entry) - _KEYS:
        raise DescriptionError(
            f'unknown key "{min(unknown)}".', where=where, hint=f"Known: {', '.join(sorted(_KEYS))}."
        )
    try:
        patterns = {c: re.compile(str(entry[c])) for c in ("source", "notes", "model", "gpu") if c in entry}
    except re.error as error:
        raise DescriptionError(f"not a pattern: {error}.", where=where) from None
    return Entry(patterns, {k: v for k, v in entry.items() if k not in patterns})


def load_systems(path: str | Path | None) -> tuple[Entry, ...]:
    """Return the entries that ship, with those of a file laid over them."""
    text = (files("syncline.sim") / "data" / "training-systems.yaml").read_text(encoding="utf-8")
    shipped = read_systems(text, "training-systems.yaml")
    return shipped if path is None else (*shipped, *read_systems(read_text(Path(path)), str(path)))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `over` laid on it, mapping by mapping."""
    out = dict(base)
    for key, value in over.items():
        out[key] = (
            merged(out[key], value) if isinstance(value, Mapping) and isinstance(out.get(key), Mapping) else value
        )
    return out


def describe(row: Row, entries: Sequence[Entry]) -> Described:
    """Return the job and machine of a row, or raise a DescriptionError that says why it cannot be modelled."""
    facts: dict[str, Any] = {}
    for entry in entries:
        if entry.matches(row):
            facts = merged(facts, entry.fields)
    if facts.get("skip"):
        raise DescriptionError(str(facts["skip"]))
    host = _host(row, facts)
    num_gpus = row.whole("gpus")
    if not num_gpus:
        raise DescriptionError("the number of GPUs is not published")
    job = _job(row, facts, num_gpus)
    machine = _machine(row, facts, host, num_gpus)
    if not row.text("recompute") and "recompute" not in facts.get("job", {}) and job.recompute == "none":
        job = _fitting(job, machine)
    shape = job.model
    assert isinstance(shape, Shape)
    peak = facts.get("peak_tflops")
    precision: Any = job.precision
    flops = (
        float(peak) * 1e12
        if peak
        else (machine.gpu.flops_at(precision) or machine.gpu.flops_at("bf16") or machine.gpu.flops_at("fp16") or 0.0)
    )
    params = (row.number("params_b") or 0.0) * 1e9 or float(shape.active_params)
    convention = str(facts.get("convention") or _convention(row, job))
    remarks = (str(facts["remark"]),) if facts.get("remark") else ()
    return Described(job, machine, num_gpus, convention, flops, params, remarks)


def _fitting(job: Job, machine: Machine) -> Job:
    """Return a job of which nobody says what it repeats with the least that fits in memory, by estimate."""
    for kind in ("none", "full"):
        trial = job.model_copy(update={"recompute": kind})
        if float(memory(build_case(trial, machine)).total) < MEMORY_MARGIN * machine.gpu.memory_bytes:
            return trial
    return job


def _host(row: Row, facts: Mapping[str, Any]) -> Any:
    cluster = facts.get("cluster")
    if not cluster:
        return guess.host_of(row)
    given = cluster.get("host", cluster) if isinstance(cluster, Mapping) else cluster
    try:
        return HostSpec.model_validate(host_from_text(given)).resolve(load_catalog())
    except ValidationError as error:
        raise DescriptionError(f"cluster: {error.errors()[0]['msg']}") from None


def _machine(row: Row, facts: Mapping[str, Any], host: Any, num_gpus: int) -> Machine:
    catalog = load_catalog()
    machine = machine_of(host, catalog.link(host.link) if host.link else None, num_gpus)
    network = facts.get("network")
    rate = float(network) * 1e9 / 8 if network else guess.network_of(row, host)
    return replace(machine, nic_Bps=rate) if rate else machine


def _job(row: Row, facts: Mapping[str, Any], num_gpus: int) -> Job:
    shape = guess.shape_of(row)
    given = facts.get("job", {})
    framework = given.get("software", {}).get("framework") or guess.framework_of(row)
    year = given.get("software", {}).get("year") or guess.year_of(row)
    torch_like = framework == "pytorch"
    split = _split(row, facts, shape, num_gpus, year)
    sequence = row.whole("seq") or given.get("batch", {}).get("sequence") or 2048
    batch = _batch(row, facts, split)
    recompute = guess.recompute_of(row, torch_like) or given.get("recompute") or _usual_recompute(framework, year)
    if recompute == "selective" and year < 2022:
        recompute = "full"
    fields: dict[str, Any] = {
        "model": shape, "parallel": split, "batch": batch | {"sequence": sequence}, "recompute": recompute,
        "precision": _precision(row, facts, year),
        "token_drop": "tokendrop" in row.text("model").lower().replace("-", ""), "power_w": guess.power_of(row),
        "software": {"framework": framework, "year": year},
    }  # fmt: skip
    said = {k: v for k, v in given.items() if k not in _PLACED}
    try:
        return Job.model_validate(merged(fields, said))
    except ValidationError as error:
        raise DescriptionError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None


#: Facts of a systems file that have found their place in the job before the rest is laid over it.
_PLACED = ("batch", "parallel", "precision", "recompute", "software")


def _split(row: Row, facts: Mapping[str, Any], shape: Shape, num_gpus: int, year: int) -> dict[str, Any]:
    text = row.text("zero_or_fsdp").lower()
    given = dict(facts.get("job", {}).get("parallel", {}))
    sharded = "fsdp" in text or "zero-3" in text or "zero3" in text or "stage 3" in text
    tp, pp, cp = row.whole("tp"), row.whole("pp"), row.whole("cp", 1) or 1
    if tp is None and pp is None and not sharded:
        raise DescriptionError("the parallel layout (tp, pp) is not published")
    tp, pp = tp or 1, pp or 1
    dp = row.whole("dp") or max(num_gpus // (tp * pp * cp), 1)
    if tp * pp * cp * dp != num_gpus:
        raise DescriptionError(f"tp {tp} x pp {pp} x cp {cp} x dp {dp} is not {num_gpus} GPUs")
    split: dict[str, Any] = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "ep": row.whole("ep", 1) or 1}
    if sharded:
        split["zero"] = "hsdp" if "hsdp" in text or "hybrid" in text else "fsdp"
    elif "zero" in text or "distributed opt" in text:
        found = re.search(r"(?:zero|stage)[\s-]*([12])", text)
        split["zero"] = found.group(1) if found else "1"
    else:
        split["zero"] = "none" if text in ("none", "no", "ddp") or year < 2022 else "1"
    if "selective + sequence" in row.text("recompute"):
        split["sp"] = True
    elif "2205.05198" in row.text("source"):
        split["sp"] = False
    split = merged(given, split) if not given.get("zero") or sharded else merged(split, given)
    split["virtual"] = _virtual(row, facts, shape, pp)
    if split["virtual"] > 1:
        split["schedule"] = "interleaved"
    return split


def _virtual(row: Row, facts: Mapping[str, Any], shape: Shape, pp: int) -> int:
    """Return the chunks per rank: from the notes, or the deepest interleaving that divides the layers."""
    notes = row.text("notes")
    if pp == 1:
        return 1
    for pattern in (r"\bVP\s*=\s*(\d+)", r"interleave\s*=\s*(\d+)", r"virtual\s*=\s*(\d+)"):
        if found := re.search(pattern, notes):
            return max(1, min(int(found.group(1)), (shape.layers + 2) // pp))
    if found := re.search(r"(\d+) layers? per virtual stage", notes):
        return max(1, shape.layers // pp // int(found.group(1)))
    wanted = facts.get("virtual")
    if isinstance(wanted, int):
        return max(1, min(wanted, shape.layers // pp))
    interleaved = re.search(r"interleav", notes, re.IGNORECASE) and not re.search(r"no interleav", notes, re.IGNORECASE)
    if wanted == "deepest":
        return _deepest(shape.layers, pp)
    return 2 if interleaved else 1


def _deepest(layers: int, pp: int) -> int:
    for count in (layers, layers + 2):
        if count % pp == 0:
            return count // pp
    return 1


def _batch(row: Row, facts: Mapping[str, Any], split: Mapping[str, Any]) -> dict[str, int]:
    dp, pp = int(split["dp"]), int(split["pp"])
    micro, total = row.whole("micro_batch"), row.whole("global_batch")
    rule = facts.get("micro")
    if rule == "local" and micro:
        total = total or micro * dp
        return {"global": total, "micro": 1 if pp > 1 else micro}
    if total is None:
        if micro is None:
            raise DescriptionError("neither global nor micro batch is published")
        total = micro * dp * (4 * pp if pp > 1 else 1)
    share = max(total // dp, 1)
    if micro is None:
        wanted = share if rule == "whole" else _usual_micro(rule, pp)
        micro = max(d for d in divisors(share) if d <= wanted)
    return {"global": total, "micro": micro}


def _usual_micro(rule: Any, pp: int) -> int:
    if isinstance(rule, Mapping):
        return int(rule["pipeline"] if pp > 1 else rule["otherwise"])
    return int(rule) if isinstance(rule, int) else (1 if pp > 1 else 4)


def _usual_recompute(framework: str, year: int) -> str:
    return "full" if year < 2022 or (framework == "deepspeed" and year < 2023) else "none"


def _precision(row: Row, facts: Mapping[str, Any], year: int) -> str:
    said = guess.precision_of(row) or facts.get("job", {}).get("precision") or facts.get("precision")
    return str(said or ("fp16" if year < 2022 else "bf16"))


def _convention(row: Row, job: Job) -> str:
    metric = row.text("metric")
    if metric.startswith(("hw", "hfu")):
        return "megatron-hw" if job.recompute == "full" else "megatron-model"
    if metric.startswith("mfu"):
        return "palm"
    return "causal" if job.software.year >= 2024 else "megatron-model"
