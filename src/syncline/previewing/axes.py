"""How a captured script is split: which of its groups carries gradients, shards, activations or tokens.

A group is known by what crosses it in a step. Gathers before the optimizer that amount to the parameters are FSDP's;
sums of gradients that amount to them are replicas'; all-to-all carries tokens to experts; what is left of a forward
are activations: tensor parallelism.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from syncline.previewing.record import Capture

CLOSE = 0.06  # paddings of shards and what a model has besides its layers
WIDTHS = (1, 2, 4)
SUMS = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True)
class ScriptSplit:
    """The split of a captured script; 1 where it does not."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    shard: int = 1  # ranks of one FSDP group
    zero: str = "none"
    gradient_bytes: int = 4
    parameter_bytes: int = 2
    micro_batches: int = 1
    sp: bool = False  # tensor parallelism gathers and scatters tokens instead of summing
    unknown: tuple[str, ...] = ()  # groups whose traffic fits nothing


STAGES = {1: "1", 2: "2", 3: "3"}
"""What a job file calls the stages of ZeRO: of the first two, gradients may be summed whole, as without it."""
Traffic = dict[tuple[str, str], float]


def traffic(capture: Capture) -> dict[int, Traffic]:
    """Return bytes of the buffers of a step by group, collective and phase."""
    found: dict[int, Traffic] = defaultdict(lambda: defaultdict(float))
    first, last = capture.steady[-1]
    for op in capture.ops[first:last]:
        if op.kind == "collective" and isinstance(op.extra, list):
            what, group, size = op.extra[:3]
            if len(capture.groups[group]) > 1:
                found[group][what, op.phase] += size
    return found


def gradient_groups(capture: Capture) -> set[int]:
    """Return the groups that sum gradients: those that sum activations do so in the forward, too."""
    found = set()
    for group, row in traffic(capture).items():
        ahead, back = (sum(row.get((what, phase), 0.0) for what in SUMS) for phase in ("forward", "backward"))
        if back and ahead < 0.1 * back:
            found.add(group)
    return found


def axes_of(captures: tuple[Capture, ...]) -> ScriptSplit:
    """Return how the captured ranks are split."""
    capture = captures[0]
    whole = float(capture.facts.get("model", {}).get("parameters", 0))
    by_group = traffic(capture)
    size = {group: len(capture.groups[group]) for group in by_group}
    tokens = {group for group, row in by_group.items() if ("all_to_all", "forward") in row}
    kept: dict[str, object] = {"pp": max(1, len(captures))}
    tensor = 1
    for tensor_ranks in sorted({1, *(size[g] for g in by_group if g not in tokens)}):
        found = _data(by_group, size, whole / tensor_ranks, tensor_ranks)
        if found:
            kept |= found
            tensor = tensor_ranks
            break
    left = [g for g in by_group if size[g] not in (kept.get("shard"), kept.get("replicas")) and g not in tokens]
    heavy = [g for g in left if sum(by_group[g].values()) > 1e6]
    if tensor == 1 and len({size[g] for g in heavy}) == 1:
        tensor = size[heavy[0]]  # its parameters are counted as they lie on a rank
    strange = [f"{size[g]} ranks: {dict(by_group[g])}" for g in heavy if size[g] != tensor]
    replicas = int(str(kept.pop("replicas", 1)))
    dp = max(1, capture.world // (tensor * max(1, len(captures))))
    if replicas > 1 and "shard" in kept and kept["shard"] != dp:
        kept["zero"] = "hsdp"
    stage = int(capture.facts.get("zero_stage", 0))
    if stage in STAGES:
        kept["zero"] = STAGES[stage]
    ep = max((size[g] for g in tokens), default=1)
    tied = [by_group[g] for g in heavy if size[g] == tensor]
    summed = sum(row.get(("all_reduce", "forward"), 0.0) for row in tied)
    scattered = sum(row.get(("reduce_scatter", "forward"), 0.0) for row in tied)
    found = {"sp": scattered > summed, "tp": tensor, "dp": dp, "ep": ep, "unknown": tuple(strange), **kept}
    return ScriptSplit(**found)  # type: ignore[arg-type]


def _data(by_group: dict[int, Traffic], size: dict[int, int], params: float, tensor: int) -> dict[str, object]:
    """Return what data parallelism does if a rank holds so many parameters, else nothing."""
    for group, row in by_group.items():
        if tensor > 1 and size[group] == tensor and len(set(size.values())) > 1:
            continue
        gathered, scattered = row.get(("all_gather", "forward"), 0.0), row.get(("reduce_scatter", "backward"), 0.0)
        for micro in (1, 2, 4, 8, 16, 32, 64):
            wide, narrow = _width(scattered / micro, params), _width(gathered / micro, params)
            if wide and narrow:
                again = row.get(("all_gather", "backward"), 0.0)  # all but what the root holds on to
                zero = {"zero": "fsdp" if again > 0.3 * gathered else "2", "shard": size[group]}
                found: dict[str, object] = {
                    **zero,
                    "gradient_bytes": wide,
                    "parameter_bytes": narrow,
                    "micro_batches": micro,
                }
                others = [g for g in by_group if g != group and ("all_reduce", "backward") in by_group[g]]
                between = [g for g in others if _width(by_group[g]["all_reduce", "backward"], params / size[group])]
                return found | ({"replicas": size[between[0]]} if between else {})
        summed = sum(bytes_ for (what, phase), bytes_ in row.items() if what == "all_reduce" and phase != "forward")
        if wide := _width(summed or row.get(("all_reduce", "forward"), 0.0), params):
            return {"zero": "none", "gradient_bytes": wide, "replicas": size[group]}
        back = sum(bytes_ for (what, _), bytes_ in row.items() if what == "all_gather")
        parts = sum(bytes_ for (what, _), bytes_ in row.items() if what == "reduce_scatter")
        if (wide := _width(parts, params)) and (narrow := _width(back, params)):
            return {"zero": "1", "gradient_bytes": wide, "parameter_bytes": narrow, "shard": size[group]}
    return {}


def _width(size: float, params: float) -> int:
    """Return the bytes that each parameter has in a buffer, 0 if it is not one of parameters."""
    return next((w for w in WIDTHS if params and abs(size / (w * params) - 1) < CLOSE), 0)
