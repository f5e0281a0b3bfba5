"""Fixed choices: `tp=8,pp=8,recompute=none` narrows a space, or raises with the nearest that works."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np

from syncline.codec.names import canonical
from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import PlanError, SynclineError
from syncline.planning.space import NUMBERS, WORDS, Axes, Rows
from syncline.workload.job import TREE_RULE, Algorithm, Job, Offload, Recompute, Sync
from syncline.workload.parallel import PLACEMENTS, SHARDED, Schedule, Zero

_SWITCH = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
#: Choices in words: what may be written, and the value that it stands for.
_CHOICES: dict[str, dict[str, Any]] = {
    "zero": {word: word for word in get_args(Zero)} | {"0": "none"},
    "schedule": {word: word for word in get_args(Schedule)},
    "recompute": {word: word for word in get_args(Recompute) if word != "auto"},
    "placement": {word: word for word in PLACEMENTS},
    "algorithm": {word: word for word in get_args(Algorithm)},
    "offload": {word: word for word in get_args(Offload)},
    "gradient_bytes": {"1": 1, "2": 2, "4": 4},
    **dict.fromkeys(("sp", "tp_overlap", "dp_overlap", "reshard"), _SWITCH),
}
_ALIASES = {"mbs": "micro", "micro_batch": "micro", "vp": "virtual", "interleaving": "virtual", "zero_stage": "zero",
            "bucket": "bucket_bytes"}  # fmt: skip
KNOWN = (*NUMBERS, *WORDS, "placement", "bucket")


def read_fix(text: str | None) -> JsonObject:
    """Read `tp=8,pp=8,sp=on` as names and values."""
    chosen: JsonObject = {}
    for item in (part.strip() for part in (text or "").split(",")):
        if not item:
            continue
        name, _, value = (word.strip() for word in item.partition("="))
        name = _ALIASES.get(name, name)
        if name not in KNOWN:
            close = difflib.get_close_matches(name, KNOWN, n=3, cutoff=0.3)
            raise PlanError(
                f'there is no choice "{name}" to fix.',
                detail=f"Close: {', '.join(close)}." if close else "",
                hint=f"Choices: {', '.join(KNOWN)}.",
            )
        if not value:
            raise PlanError(f'"{item}" gives no value for {name}.', hint="Write `fix` as tp=8,pp=4.")
        chosen[name] = _value(name, value)
    return chosen


def _value(name: str, text: str) -> Any:
    if name in NUMBERS:
        if not text.isdecimal() or int(text) < 1:
            raise PlanError(f'{name} is "{text}"; it must be a whole number from 1.', hint=f"Write {name}=8.")
        return int(text)
    try:
        if name == "codec":
            return canonical(text)
        size = units.size(text) if name == "bucket_bytes" else 1
    except SynclineError as error:
        raise PlanError(f'{name} is "{text}": {error.message}', detail=error.detail, hint=error.hint) from None
    if size < 1:
        raise PlanError(f'bucket is "{text}"; it must be at least 1 byte.', hint="Write bucket=25MiB.")
    if name == "bucket_bytes":
        return size
    allowed = _CHOICES[name]
    word = text.lower() if allowed is _SWITCH else text
    if word not in allowed:
        listed = "on or off" if allowed is _SWITCH else "one of " + ", ".join(w for w in allowed if w != "0")
        raise PlanError(f'{name} is "{text}"; it is {listed}.', hint="Pick one of those.")
    return allowed[word]


def fixed_axes(axes: Axes, fix: Mapping[str, Any], sync: Sync) -> Axes:
    """Return the words to try: a fixed one is the only one."""
    if (zero := fix.get("zero")) is not None and zero not in sync.shardings:
        raise PlanError(
            f"zero = {zero} is not possible: sync.method {sync.method} needs whole parameters on every rank.",
            hint=f"Write zero={' or zero='.join(sync.shardings)}.",
        )
    words: dict[str, tuple[Any, ...]] = {f.name: (fix[f.name],) for f in fields(Axes) if f.name in fix}
    if fix.get("algorithm") == "tree":
        if fix.get("zero", "none") != "none":
            raise PlanError(f"algorithm {TREE_RULE}.", hint="Write algorithm=tree,zero=none.")
        words["zero"] = ("none",)
    elif fix.get("algorithm") == "hierarchical" and "zero" not in fix:
        # FSDP's exchange is a ring for each layer; another is not modelled.
        words["zero"] = tuple(z for z in axes.zero if z not in SHARDED) or axes.zero
    if "virtual" in fix and "schedule" not in fix:
        words["schedule"] = (
            ("interleaved",) if fix["virtual"] > 1 else tuple(s for s in axes.schedule if s != "interleaved")
        )
    if "schedule" in fix and fix["schedule"] != "1f1b" and fix.get("pp", 2) > 1:
        words["schedule"] = (fix["schedule"],)
    return replace(axes, **words)


def fixed_rows(rows: Rows, fix: Mapping[str, Any], job: Job, num_gpus: int) -> Rows:
    """Return the rows with the fixed numbers, or raise where there is none."""
    if not len(rows):
        raise PlanError(
            f"{job.model.name} with a global batch of {job.batch.global_:,} cannot be split over {num_gpus:,} GPUs.",
            detail="No number of replicas divides both.",
            hint=f"The nearest batch that works is {_nearest_batch(job.batch.global_, num_gpus):,}, or use fewer GPUs.",
        )
    numbers = {name: value for name, value in fix.items() if name in NUMBERS}
    mask = np.ones(len(rows), dtype=bool)
    for name, value in numbers.items():
        column = getattr(rows, name)
        if not (mask & (column == value)).any():
            raise _impossible(name, value, np.unique(column[mask]), numbers, job, num_gpus)
        mask &= column == value
    return rows.take(mask)


def _impossible(name: str, value: int, options: Any, numbers: Mapping[str, int], job: Job, num_gpus: int) -> PlanError:
    others = ", ".join(f"{n} = {v}" for n, v in numbers.items() if n != name)
    near = int(options[np.argmin(np.abs(options - value))])
    listed = ", ".join(str(int(v)) for v in options[:12]) + (" ..." if len(options) > 12 else "")
    return PlanError(
        f"{name} = {value} is not possible for {job.model.name} on {num_gpus:,} GPUs"
        f"{' with ' + others if others else ''}.",
        detail=f"Possible: {name} = {listed}. Heads divide by tp, GPUs by tp x pp x cp, the batch of "
        f"{job.batch.global_:,} by dp x micro, layers by pp x virtual.",
        hint=f"The nearest that works is {name}={near}.",
    )


def _nearest_batch(total: int, num_gpus: int) -> int:
    return max(1, round(total / num_gpus)) * num_gpus
