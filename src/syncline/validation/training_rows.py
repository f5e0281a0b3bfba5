"""One's own training runs: a CSV file with a run a line, read into jobs on machines.

    runs, skipped, num_rows = read_runs(Path("ours.csv"), "ours.yaml")

Columns may be called as tables call them ("# GPUs", "Seq len", "GBS", "MFU (%)"), cells may be written as people write
them ("4,096", "1.2k", "52 %", "4M tokens"), and a metric may have a column of its own. A systems file adds what a
source's rows leave out: `cluster`, `software`, `convention` and any key of a job file under `job`. A row that states
too little is listed with the reason; nothing of a layout or batch is guessed.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from syncline.describe.document import read_text
from syncline.describe.mistakes import first_mistake
from syncline.errors import CatalogError, DescriptionError, SynclineError
from syncline.fabric.catalog import HostModel, load_catalog
from syncline.fabric.spec import HostSpec, host_from_text
from syncline.sim.step.machine import Machine, machine_from_spec, machine_of
from syncline.validation.metrics import SPEEDS, convention_of, plain_metric, step_seconds, usual_convention
from syncline.validation.systems import SystemEntry, own_systems
from syncline.validation.training_run import PublishedTraining, SkippedRow
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.zoo import model as zoo_model

NEEDED = ("model", "gpu", "gpus")
#: Every column with its other names; "number of", "size" and the like are dropped before they are looked up.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "source": ("reference", "paper", "url", "publication", "origin", "system"),
    "model": ("model_name", "network_model", "llm"),
    "layers": ("layer", "depth"),
    "hidden": ("d_model", "hidden_dim", "embedding", "width"),
    "heads": ("head", "attention_heads", "attn_heads"),
    "seq": ("seq_len", "seqlen", "sequence", "sequence_length", "seq_length", "context", "context_length"),
    "vocab": ("vocabulary",),
    "gpu": ("gpu_type", "gpu_model", "gpu_name", "accelerator", "accelerator_type", "chip", "hardware", "device"),
    "gpus": ("gpu_count", "world", "ranks", "chips", "devices", "accelerators", "n_gpu"),
    "tp": ("tensor_parallel", "tensor_parallelism", "tensor_model_parallel", "tmp"),
    "pp": ("pipeline_parallel", "pipeline_parallelism", "pipeline_model_parallel", "pmp"),
    "dp": ("data_parallel", "data_parallelism"),
    "cp": ("context_parallel", "context_parallelism"),
    "ep": ("expert_parallel", "expert_parallelism"),
    "virtual": ("vp", "virtual_stages", "virtual_pipeline", "interleave"),
    "micro_batch": ("mbs", "microbatch", "local_batch", "batch_per_gpu", "per_gpu_batch", "per_device_batch", "lbs"),
    "global_batch": ("gbs", "globalbatch", "total_batch"),
    "precision": ("dtype", "data_type", "datatype", "numerics", "compute_dtype"),
    "recompute": ("activation_checkpointing", "checkpointing", "ac", "remat", "recomputation", "activation_recompute"),
    "zero_or_fsdp": ("sharding", "zero", "fsdp", "zero_stage", "dp_sharding", "optimizer_sharding"),
    "interconnect": ("network", "fabric", "nic", "nics", "networking", "internode", "inter_node"),
    "framework": ("software", "trainer"),
    "year": ("software_year",),
    "metric": ("metric_name", "measure", "unit"),
    "value": ("result", "measured", "metric_value"),
    "notes": ("note", "comment", "comments", "remarks", "remark", "params_b", "params", "parameters"),
}  # fmt: skip
_NAMES = {name: column for column, others in COLUMNS.items() for name in (column, *others)}
PRECISIONS = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16", "tf32": "tf32",
              "float32": "fp32", "fp32": "fp32", "float8": "fp8", "fp8": "fp8", "fp4": "fp4"}  # fmt: skip
_SCALE = {"k": 1e3, "m": 1e6, "b": 1e9, "": 1.0}
_NUMBER = re.compile(r"[~<>=]*\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([kmb]?)\s*(?:%|tokens?|seq\w*|gpus?)?")
#: Of a source that no systems file lists.
UNLISTED = SystemEntry.model_construct(system="")

_NETWORK = re.compile(
    r"(?:(?P<count>\d+)\s*x\s*(?:[a-z][\w.-]*\s+){0,5})?(?P<rate>\d+(?:\.\d+)?)\s*(?P<scale>[GTgt])(?P<unit>[Bb])(?:it)?(?:/s|ps)"
    r"(?:\s*(?:per|a|/)\s*(?P<whose>gpu|accelerator|chip|host|node|server))?",
    re.IGNORECASE,
)

Cells = Mapping[str, str]


def read_runs(path: Path, systems: str | Path | None) -> tuple[list[PublishedTraining], list[SkippedRow], int]:
    """Return the runs of a CSV file, the rows that cannot be modelled with the reason, and how many rows there are."""
    entries = own_systems(systems)
    runs, skipped = [], []
    rows = _rows(read_text(path), str(path))
    for line, cells in rows:
        metric, value = _metric(cells)
        source = cells.get("source") or path.stem
        try:
            runs.append(_run(line, cells, source, metric, value, entries))
        except (SynclineError, ValueError, ArithmeticError) as error:
            text = error.message if isinstance(error, SynclineError) else f"its numbers cannot be used: {error}"
            skipped.append(SkippedRow(line, source, cells.get("model", ""), metric, text.rstrip(".")))
    return runs, skipped, len(rows)


def _rows(text: str, where: str) -> list[tuple[int, Cells]]:
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    rows: list[tuple[int, Cells]] = []
    try:
        reader.fieldnames = _columns(list(reader.fieldnames or ()), where)
        for cells in reader:
            kept = {name: cell.strip() for name, cell in cells.items() if isinstance(name, str) and cell}
            rows.append((reader.line_num, kept))
    except csv.Error as error:
        raise DescriptionError(f"not a CSV file: {error}.", where=f"{where} line {reader.line_num or 1}") from None
    if not rows:
        raise DescriptionError("the file has no rows.", where=where)
    return rows


def _columns(given: list[str], where: str) -> list[str]:
    """Return the columns in our words; a speed that has a column of its own keeps its name."""
    plain = [re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_") for name in given]
    short = [re.sub(r"^(?:num|number_of|n|no|of)_|_(?:size|degree|count)$", "", name) for name in plain]
    names = [_NAMES.get(a) or _NAMES.get(b) or own for a, b, own in zip(plain, short, given, strict=True)]
    if "batch" in short and not {"global_batch", "micro_batch"} & set(names):
        raise DescriptionError(
            'column "batch" may be the batch of a step or that of a GPU.',
            where=where,
            hint="Call it global_batch (sequences a step, all GPUs) or micro_batch (sequences a GPU takes at once).",
        )
    speeds = {"metric", "value"} <= set(names) or any(plain_metric(name) in SPEEDS for name in names)
    missing = [*(name for name in NEEDED if name not in names), *([] if speeds else ["metric"])]
    if missing:
        hint = f"Columns: {', '.join(COLUMNS)}; or a column a metric, such as tokens/s/GPU, not metric and value."
        raise DescriptionError(f'the file has no column "{missing[0]}".', where=where, hint=hint)
    return names


def _metric(cells: Cells) -> tuple[str, str]:
    """Return the metric of a row and its cell: the columns metric and value, or the first column that is a metric."""
    if "metric" in cells:
        return cells["metric"], cells.get("value", "")
    return next(((name, cell) for name, cell in cells.items() if plain_metric(name) in SPEEDS), ("", ""))


def number(cells: Cells, column: str) -> float | None:
    """Return a cell as a number, None where it is empty: "4,096", "1.2k", "52 %", "~4M tokens"; a range is refused."""
    text = re.sub(r"(?<=\d)[,_](?=\d{3})", "", cells.get(column, ""))
    if not text:
        return None
    match = _NUMBER.fullmatch(text.lower())
    if match is None:
        raise DescriptionError(f'{column} "{cells[column]}" is not a number')
    binary = 1024.0 if column in ("seq", "global_batch") else 1e3
    scale = {"k": binary, "m": binary**2}.get(match[2], _SCALE[match[2]])
    value = float(match[1]) * scale
    if not 0 <= value < 1e18 or not math.isfinite(value):
        raise DescriptionError(f'{column} "{cells[column]}" is out of range')
    return value


def _whole(cells: Cells, column: str) -> int | None:
    value = number(cells, column)
    return None if value is None else round(value)


def _run(
    line: int, cells: Cells, source: str, metric: str, value: str, entries: tuple[SystemEntry, ...]
) -> PublishedTraining:
    entry = next((entry for entry in entries if entry.names(source, f"{cells.get('notes', '')} {source}")), UNLISTED)
    if entry.skip:
        raise DescriptionError(entry.skip)
    num_gpus = _whole(cells, "gpus")
    if not num_gpus:
        raise DescriptionError("the number of GPUs is not given")
    machine, network = _machine(cells, entry, num_gpus)
    job = _job(cells, entry, num_gpus)
    speed = number({metric: value}, metric)
    if not speed:
        raise DescriptionError("no positive speed is given")
    convention = convention_of(metric, entry.convention or usual_convention(metric, job), job)
    peak_flops = machine.gpu.flops_at(job.precision) or machine.gpu.flops_at("bf16") or 0.0
    params = float(job.model.active_params if isinstance(job.model, Shape) else job.model.params)
    dies = max(machine.gpu.num_dies, 1)
    seconds = step_seconds(metric, speed, job, num_gpus, convention, peak_flops / dies, params)
    if not 1e-9 < seconds < 1e9:
        raise DescriptionError(f"a step of {seconds:.3g} s is not one that was measured")
    run = PublishedTraining(
        line, source, cells["model"], metric, convention, seconds, job, machine, num_gpus,
        (entry.remark,) if entry.remark else (), (network,) if network else (),
    )  # fmt: skip
    _ = run.case  # raises where the job cannot be split or priced
    return run


def _machine(cells: Cells, entry: SystemEntry, num_gpus: int) -> tuple[Machine, str]:
    """Return the machine of a row, and how its network was read."""
    if entry.cluster:
        machine = machine_from_spec(entry.spec, num_gpus)
        return replace(machine, nic_Bps=min(machine.nic_Bps, machine.upper_Bps)), ""
    host = _host(cells.get("gpu", ""), num_gpus)
    link = load_catalog().link(host.link) if host.link else None
    machine = machine_of(host, link, num_gpus)
    if num_gpus <= machine.domain:
        return machine, ""
    dies, stated_Bps = max(machine.gpu.num_dies, 1), _network_Bps(cells.get("interconnect", ""), host)
    if stated_Bps:
        return replace(machine, nic_Bps=stated_Bps / dies), f"{stated_Bps * 8 / 1e9:g} Gb/s a GPU"
    return machine, f"no network rate given: {machine.nic_Bps * dies * 8 / 1e9:g} Gb/s a GPU, as {host.name} has"


def _network_Bps(text: str, host: HostModel) -> float:
    """Return the network rate of one GPU that a text states: "400 Gb/s per GPU", "8x400Gb/s" (a host); 0 for none."""
    stated = list(_NETWORK.finditer(text.partition("Compute:")[2] or text))
    if not stated:
        return 0.0
    rate = next((one for one in stated if one["count"] or one["whose"]), None)
    if rate is None:
        raise DescriptionError(f'the network "{text}" does not say whose rate it is: add "per GPU" or "per host"')
    per_host = not rate["whose"] or rate["whose"].lower() not in ("gpu", "accelerator", "chip")
    bits = float(rate["rate"]) * int(rate["count"] or 1) * {"G": 1e9, "T": 1e12}[rate["scale"].upper()]
    return bits * (1 if rate["unit"] == "B" else 1 / 8) / (host.num_gpus if per_host else 1)


def _host(text: str, num_gpus: int) -> HostModel:
    """Return the host that a row names: one of the catalogue, "8 x H100", or a GPU, of which a host has eight."""
    catalog, bare = load_catalog(), re.sub(r"(?i)\b(?:nvidia|amd|intel)\b|_", " ", text).strip()
    # "DGX-GB200", "A100 DGX", "V100-32GB DGX-2", "H100-80GB-700W": the part in it.
    part = re.sub(r"(?i)\b[dh]gx(?:-\d+\b)?|-\d+W\b", " ", bare).strip(" -")
    for described in (text, f"{min(num_gpus, 8)} x {bare}", part, f"{min(num_gpus, 8)} x {part}"):
        try:
            return HostSpec.model_validate(host_from_text(described)).resolve(catalog)
        except (CatalogError, ValidationError):
            continue
    raise DescriptionError(f'accelerator "{text}" is neither a host nor a GPU of the catalogue')


def _job(cells: Cells, entry: SystemEntry, num_gpus: int) -> Job:
    """Return the job of a row, with what the systems file adds to it."""
    split = {name: _whole(cells, name) for name in ("tp", "pp", "cp", "dp", "ep", "virtual")}
    sharding = _sharding(cells.get("zero_or_fsdp", ""))
    if not any(split[name] for name in ("tp", "pp", "dp")) and sharding in ("none", "1", "2"):
        raise DescriptionError("the parallel layout is not given: fill tp, pp or dp")
    inner = math.prod(split[name] or 1 for name in ("tp", "pp", "cp"))
    replicas = split["dp"] or max(num_gpus // inner, 1)
    if inner * replicas != num_gpus:
        raise DescriptionError(f"tp x pp x cp x dp is {inner * replicas}, not {num_gpus} GPUs")
    parallel: dict[str, Any] = {name: count for name, count in split.items() if count} | {"dp": replicas}
    if (split["virtual"] or 1) > 1:
        parallel["schedule"] = "interleaved"
    sequence, total, micro = (_whole(cells, name) for name in ("seq", "global_batch", "micro_batch"))
    if total and re.search("tok", cells["global_batch"].lower()):
        total = max(round(total / (sequence or 2048) / replicas), 1) * replicas
    if not total:
        raise DescriptionError("global_batch is not given: sequences a step, over all GPUs")
    batch: dict[str, Any] = {"global": total, "micro": micro or 1} | ({"sequence": sequence} if sequence else {})
    fields: dict[str, Any] = {"model": _model(cells), "parallel": parallel | {"zero": sharding}, "batch": batch}
    if precision := cells.get("precision", "").lower():
        named = re.search("|".join(PRECISIONS), precision)
        fields["precision"] = PRECISIONS.get(named[0], named[0]) if named else precision
    if recompute := cells.get("recompute", "").lower():
        fields["recompute"] = recompute.split()[0].rstrip(",;")
    software = {key: entry.software[key] for key in ("framework", "year") if key in entry.software}
    software |= {key: cells[key].lower() for key in ("framework", "year") if cells.get(key)}
    fields["software"] = software
    try:
        return Job.model_validate(_merged(fields, entry.job))
    except ValidationError as error:
        raise DescriptionError(first_mistake(error)) from None


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `over` laid on it, mapping by mapping."""
    out = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = _merged(out[key], value) if both else value
    return out


def _sharding(text: str) -> str:
    """Return how the state of replicas is sharded: "FSDP", "HSDP", "ZeRO-1", "3", "DDP" or nothing."""
    plain = text.lower()
    if match := re.search(r"hsdp|fsdp", plain):
        return match[0]
    stage = re.search(r"[0-3]", plain)
    return {"0": "none"}.get(stage[0], stage[0]) if stage else "none"


def _model(cells: Cells) -> Any:
    """Return a model that ships where its name is known and its columns do not contradict it, else their shape."""
    layers, hidden = _whole(cells, "layers"), _whole(cells, "hidden")
    try:
        known = zoo_model(re.sub(r"\s*\([^)]*\)", "", cells.get("model", "")))
    except SynclineError:
        known = None
    if known is not None and (not isinstance(known, Shape) or layers in (None, known.layers)):
        return known
    if not layers or not hidden:
        raise DescriptionError(f'model "{cells.get("model", "")}" is not known: fill layers, hidden, heads and vocab')
    shape = {"layers": layers, "hidden": hidden, "heads": _whole(cells, "heads") or max(hidden // 128, 1)}
    return {"name": cells["model"], **shape} | ({"vocab": vocab} if (vocab := _whole(cells, "vocab")) else {})
