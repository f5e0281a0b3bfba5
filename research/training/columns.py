"""Columns of a table of runs however their writer called them, and metrics that have a column each.

    column_names(["# GPUs", "Seq len", "MFU (%)"], "ours.csv")     # ["gpus", "seq", "metric:MFU (%)"]

What no column is called like stays under its own name and is kept with the row's notes, where software, year and
container are looked for. A batch that may be a GPU's or everybody's is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from syncline.errors import DescriptionError
from syncline.validation.metrics import SPEEDS, plain_metric

NEEDED = ("model", "gpu", "gpus", "metric", "value")
COLUMNS = (
    "source", "model", "params_b", "layers", "hidden", "heads", "seq", "vocab", "gpu", "gpus", "tp", "pp", "dp",
    "cp", "ep",
    "micro_batch", "global_batch", "precision", "recompute", "zero_or_fsdp", "interconnect", "metric", "value", "notes",
)  # fmt: skip
#: Other names of a column; "number of", "size" and the like are dropped before.
_OTHER = {
    "source": ("reference", "paper", "url", "publication", "origin"),
    "model": ("model_name", "network_model", "llm"),
    "params_b": ("params", "parameters", "param", "billion_params", "parameters_b", "params_billion"),
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
    "micro_batch": ("mbs", "microbatch", "local_batch", "batch_per_gpu", "per_gpu_batch", "per_device_batch", "lbs"),
    "global_batch": ("gbs", "globalbatch", "total_batch"),
    "precision": ("dtype", "data_type", "datatype", "numerics", "compute_dtype"),
    "recompute": ("activation_checkpointing", "checkpointing", "ac", "remat", "recomputation", "activation_recompute"),
    "zero_or_fsdp": ("sharding", "zero", "fsdp", "zero_stage", "dp_sharding", "optimizer_sharding"),
    "interconnect": ("network", "fabric", "nic", "nics", "networking", "internode", "inter_node"),
    "metric": ("metric_name", "measure", "unit"),
    "value": ("result", "measured", "metric_value"),
    "notes": ("note", "comment", "comments", "remarks", "remark"),
}  # fmt: skip
_NAMES = {name: column for column, others in _OTHER.items() for name in (column, *others)}
_METRIC = "metric:"


def column_names(given: Sequence[str], where: str) -> list[str]:
    """Return the names of a table's columns in our words; raise where one is needed, or may mean two things."""
    plain = [_plain(name) for name in given]
    taken = {name for name in plain if name in COLUMNS}
    names: list[str] = []
    for name, own in zip(given, plain, strict=True):
        column = own if own in COLUMNS else _NAMES.get(own, "")
        if column and (own == column or column not in (*taken, *names)):
            names.append(column)
        elif "metric" not in taken and plain_metric(name) in SPEEDS:
            names.append(f"{_METRIC}{name.strip()}")
        else:
            names.append(own)
    _check(names, where)
    return names


def _plain(name: str) -> str:
    text = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    return text if text in COLUMNS else re.sub(r"^(?:num|number_of|n|no|of)_|_(?:size|degree|count)$", "", text)


def _check(names: Sequence[str], where: str) -> None:
    if "batch" in names and not {"global_batch", "micro_batch"} & set(names):
        raise DescriptionError(
            'column "batch" may be the batch of a step or that of a GPU.',
            where=where,
            hint="Call it global_batch (sequences a step, all GPUs) or micro_batch (sequences a GPU takes at once).",
        )
    wide = any(name.startswith(_METRIC) for name in names)
    missing = [column for column in NEEDED if column not in names and not (wide and column in ("metric", "value"))]
    if missing:
        hint = (
            f"Columns: {', '.join(COLUMNS)}; or one column a metric, such as tokens/s/GPU, instead of metric and value."
        )
        raise DescriptionError(f'the file has no column "{missing[0]}".', where=where, hint=hint)


def long_rows(cells: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield a row of our columns for each of its metrics; what is in other columns joins the notes."""
    own = {name: cell for name, cell in cells.items() if name in COLUMNS}
    other = {n: c.strip() for n, c in cells.items() if n not in COLUMNS and not n.startswith(_METRIC) and c.strip()}
    if other:
        said = "; ".join(f"{name.replace('_', ' ')}: {cell}" for name, cell in other.items())
        own["notes"] = "; ".join(text for text in (own.get("notes", ""), said) if text)
    if "metric" in own:
        yield own
        return
    wide = [name for name in cells if name.startswith(_METRIC)]
    for name in [name for name in wide if cells[name].strip()] or wide[:1]:
        yield own | {"metric": name.removeprefix(_METRIC), "value": cells[name]}
