"""Fixed choices: `tp=8,pp=8,recompute=none` narrows a space, or says why it cannot be."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np

from syncline.codec.names import canonical
from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.errors import CodecError, PlanError, SynclineError
from syncline.plan.space import NUMBERS, WORDS, Axes, Rows
from syncline.workload.job import TREE_RULE, Algorithm, Job, Offload, Recompute, Sync
from syncline.workload.parallel import PLACEMENTS, SHARDED, Schedule, Zero

_CHOICES: dict[str, tuple[str, ...]] = {
    "zero": get_args(Zero), "schedule": get_args(Schedule),
    "recompute": tuple(name for name in get_args(Recompute) if name != "auto"), "placement": PLACEMENTS,
    "algorithm": get_args(Algorithm), "offload": get_args(Offload),
}  # fmt: skip
_SWITCHES = ("sp", "tp_overlap", "dp_overlap", "reshard")
_ALIASES = {"mbs": "micro", "micro_batch": "micro", "vp": "virtual", "interleaving": "virtual", "zero_stage": "zero",
            "bucket": "bucket_bytes"}  # fmt: skip
_WIDTHS = ("1", "2", "4")
KNOWN = (*NUMBERS, *WORDS, "placement", "bucket")


def read_fix(text: str | None) -> JsonObject:
    """Read `tp=8,pp=8,sp=on` as names and values."""
    found: JsonObject = {}
    for item in (part.strip() for part in (text or "").split(",")):
        if not item:
            continue
        name, equals, value = (word.strip() for word in item.partition("="))
        name = _ALIASES.get(name, name)
        if name not in KNOWN:
            close = difflib.get_close_matches(name, KNOWN, n=3, cutoff=0.3)
            raise PlanError(
                f'there is no choice "{name}" to fix.',
                detail=f"Close: {', '.join(close)}." if close else "",
                hint=f"Choices: {', '.join(KNOWN)}.",
            )
        if not equals or not value:
            raise PlanError(f'"{item}" gives no value for {name}.', hint="Write --fix tp=8,pp=4.")
        found[name] = _value(name, value)
    return found


def _value(name: str, text: str) -> Any:
    if name in NUMBERS:
        if not text.isdecimal() or int(text) < 1:
            raise PlanError(f'{name} is "{text}"; it must be a whole number from 1.', hint=f"Write --fix {name}=8.")
        return int(text)
    if name in _SWITCHES:
        words = {
            "on": True,
            "true": True,
            "yes": True,
            "1": True,
            "off": False,
            "false": False,
            "no": False,
            "0": False,
        }
        if text.lower() not in words:
            raise PlanError(f'{name} is "{text}"; it is on or off.', hint=f"Write --fix {name}=on.")
        return words[text.lower()]
    if name == "zero" and text == "0":
        return "none"
    if name == "codec":
        return _codec(text)
    if name == "bucket_bytes":
        return _bucket(text)
    if name == "gradient_bytes":
        if text not in _WIDTHS:
            raise PlanError(
                f'gradient_bytes is "{text}"; it is one of {", ".join(_WIDTHS)}.', hint="Pick one of those."
            )
        return int(text)
    if text not in _CHOICES[name]:
        raise PlanError(f'{name} is "{text}"; it is one of {", ".join(_CHOICES[name])}.', hint="Pick one of those.")
    return text


def _codec(text: str) -> str:
    try:
        return canonical(text)
    except CodecError as error:
        raise PlanError(error.message, detail=error.detail, hint=error.hint) from None


def _bucket(text: str) -> int:
    try:
        size = units.size(text)
    except SynclineError as error:
        raise PlanError(f'bucket is "{text}": {error.message}', hint="Write --fix bucket=25MiB.") from None
    if size < 1:
        raise PlanError(f'bucket is "{text}"; it must be at least 1 byte.', hint="Write --fix bucket=25MiB.")
    return size


def fixed_axes(axes: Axes, fix: Mapping[str, Any], sync: Sync) -> Axes:
    """Return the words to try: a fixed one is the only one."""
    if (zero := fix.get("zero")) is not None and zero not in sync.shardings:
        raise PlanError(
            f"zero = {zero} is not possible: sync.method {sync.method} needs whole parameters on every rank.",
            hint=f"Write --fix zero={' or zero='.join(sync.shardings)}.",
        )
    words: dict[str, tuple[Any, ...]] = {f.name: (fix[f.name],) for f in fields(Axes) if f.name in fix}
    if fix.get("algorithm") == "tree":
        if fix.get("zero", "none") != "none":
            raise PlanError(f"algorithm {TREE_RULE}.", hint="Write --fix algorithm=tree,zero=none.")
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
