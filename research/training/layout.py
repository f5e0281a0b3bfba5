"""How a run was split and fed: what its row says, what follows from it, and what is left to choose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from research.training.number import counts_tokens, number_in
from research.training.rows import PublishedRow

from syncline.describe.plain import JsonObject
from syncline.errors import DescriptionError
from syncline.workload.layer_list import LayerList
from syncline.workload.parallel import divisors
from syncline.workload.shape import Shape

#: Tokens of a step where a throughput is published without its batch: what most models since GPT-3 used.
USUAL_TOKENS = 4 * 2**20
_SHARDED = re.compile(r"fsdp|zero[\s-]*(?:stage[\s-]*)?3|stage[\s-]*3|full[_\s]shard|fully sharded|hsdp|hybrid")


def is_sharded(row: PublishedRow) -> bool:
    """Say whether a row states that parameters are sharded and gathered layer by layer."""
    return bool(_SHARDED.search(_sharding(row)))


def _sharding(row: PublishedRow) -> str:
    """Return how a row says state is sharded; a number alone is a stage of ZeRO."""
    return re.sub(r"^(?:stage\s*)?([0-3])$", r"zero-\1", row.text("zero_or_fsdp").lower())


def zero_of(row: PublishedRow, year: int) -> JsonObject:
    """Return how the state of replicas is sharded, as fields of `parallel`."""
    text = _sharding(row)
    if is_sharded(row):
        hybrid = "hsdp" in text or "hybrid" in text
        size = re.search(r"(?:hsdp|hybrid|shard)[^\d]{0,12}(\d+)", text) if hybrid else None
        return {"zero": "hsdp" if hybrid else "fsdp"} | ({"shard": int(size.group(1))} if size else {})
    if "zero" in text or re.search(r"distributed ?(?:opt|adam)", text):
        found = re.search(r"(?:zero|stage)[\s-]*(?:stage[\s-]*)?([12])", text)
        return {"zero": found.group(1) if found else "1"}
    return {"zero": "none" if text in ("none", "no", "ddp", "dp", "zero-0") or year < 2022 else "1"}


def keeps_gathered(row: PublishedRow) -> bool:
    """Say whether sharded parameters that were gathered for the forward are kept for the backward."""
    return is_sharded(row) and bool(re.search(r"no reshard|reshard\w*\W+(?:never|false|no)\b", _sharding(row)))


#: "communication not overlapped", "without overlap", "tp_comm_overlap off".
_NOT_OVERLAPPED = re.compile(
    r"\b(?:no|not|without)\W+((?:\w+\W+){0,2})overlap|((?:\w+[\s_-]){0,3})overlap\w*\W+(?:off|disabled|false)\b"
)


def not_overlapped(row: PublishedRow) -> dict[str, bool]:
    """Return what a row says is not hidden behind products: exchanges of tensors, or else of gradients."""
    if found := _NOT_OVERLAPPED.search(_of_overlap(row)):
        return {"tp" if re.search(r"\btp|tensor", found.group()) else "dp": False}
    return {}


def late_sums(row: PublishedRow, framework: str, year: int) -> bool:
    """Say whether gradients are summed after the last product, as Megatron did before 2024.

    `--overlap-grad-reduce` came with Megatron-Core 0.5; a run that overlapped earlier had its own and says so.
    """
    return framework == "megatron" and year < 2024 and "overlap" not in _of_overlap(row)


def _of_overlap(row: PublishedRow) -> str:
    return f"{_sharding(row)} {row.text('notes').lower()}"


def stated_split(row: PublishedRow, num_gpus: int, shape: Shape | LayerList, domain: int) -> dict[str, int] | None:
    """Return tensor, pipeline, context, expert and data parallelism of a row, or None where it does not say."""
    tp, pp, cp = row.whole("tp"), row.whole("pp"), row.whole("cp", 1) or 1
    stated_dp = row.whole("dp")
    if tp is None and pp is None and not is_sharded(row) and stated_dp != num_gpus:
        return None
    tp, pp = max(tp or 1, 1), max(pp or 1, 1)
    dp = stated_dp or max(num_gpus // (tp * pp * cp), 1)
    if tp * pp * cp * dp != num_gpus:
        raise DescriptionError(f"tp {tp} x pp {pp} x cp {cp} x dp {dp} is not {num_gpus} GPUs")
    ep = row.whole("ep") or _unstated_experts(row, shape, tp * dp * cp, domain)
    return {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "ep": max(ep, 1)}


def _unstated_experts(row: PublishedRow, shape: Shape | LayerList, ranks: int, domain: int) -> int:
    """Return the expert parallelism of a row without its number.

    One that names a dispatcher has its experts apart as far as they go; sharded replicas gather all of them; others
    keep them apart inside a scale-up domain, because a copy of all experts on every GPU is what nobody runs.
    """
    if not isinstance(shape, Shape) or not shape.moe:
        return 1
    if re.search(r"(?i)deep-?ep|hybrid-?ep", row.text("notes")):
        return max(d for d in divisors(shape.moe.experts) if ranks % d == 0)
    return 1 if is_sharded(row) else _usual_experts(shape, ranks, domain)


def possible_splits(
    shape: Shape | LayerList, num_gpus: int, domain: int, total: int, *, wide: bool = True
) -> Iterator[dict[str, int]]:
    """Yield the splits that a tuned run of unknown layout could have had: TP inside a host, whole layers a stage.

    `wide`: models with experts may have uneven stages and experts over several hosts too.
    """
    if isinstance(shape, LayerList):
        yield {"tp": 1, "pp": 1, "cp": 1, "dp": num_gpus, "ep": 1}
        return
    for tp in (1, 2, 4, 8):
        for pp in _stages(shape, wide):
            dp, rest = divmod(num_gpus, tp * pp)
            if rest == 0 and dp and tp <= domain and shape.heads % tp == 0 and total % dp == 0:
                for ep in _expert_ranks(shape, dp * tp, domain, wide):
                    yield {"tp": tp, "pp": pp, "cp": 1, "dp": dp, "ep": ep}


def _stages(shape: Shape, wide: bool) -> list[int]:
    """Return the depths of a pipeline: whole layers a stage; models with experts (61 layers) have uneven stages."""
    uneven = [2, 4, 8, 16] if shape.moe and wide else []
    return sorted({p for p in (*divisors(shape.layers), *uneven) if p <= min(64, shape.layers)})


def _expert_ranks(shape: Shape, ranks: int, domain: int, wide: bool) -> list[int]:
    """Return the usual expert parallelism, and wider ones of models with as many experts as several hosts have GPUs."""
    usual = _usual_experts(shape, ranks, domain)
    if not wide or not shape.moe or shape.moe.experts < 8 * domain:
        return [usual]
    return [usual, *(d for d in (16, 32, 64) if usual < d and shape.moe.experts % d == 0 and ranks % d == 0)]


def sharded_split(shape: Shape | LayerList, num_gpus: int, total: int) -> dict[str, int] | None:
    """Return MaxText's own layout where none is stated: all chips shard, and share a sequence where there are fewer."""
    if isinstance(shape, LayerList) or shape.moe or not total:
        return None
    dp = max(d for d in divisors(num_gpus) if d <= total)
    return {"tp": 1, "pp": 1, "cp": num_gpus // dp, "dp": dp, "ep": 1}


def _usual_experts(shape: Shape, ranks: int, domain: int) -> int:
    """Return the usual expert parallelism: as many experts apart as a host has GPUs."""
    if not shape.moe:
        return 1
    return max(d for d in divisors(shape.moe.experts) if d <= domain and ranks % d == 0)


def virtual_of(row: PublishedRow, facts: Mapping[str, Any], shape: Shape | LayerList, pp: int) -> int:
    """Return the chunks per rank: from the notes, or the deepest interleaving that divides the layers."""
    if pp == 1 or not isinstance(shape, Shape):
        return 1
    notes = row.text("notes")
    for pattern in (r"\bVP\s*=?\s*(\d+)", r"interleave\s*=\s*(\d+)", r"virtual\w*\s*=\s*(\d+)", r"interleaved (\d+)\b"):
        if found := re.search(pattern, notes):
            return max(1, min(int(found.group(1)), (shape.layers + 2) // pp))
    if (found := re.search(r"(\d+) layers? per virtual stage", notes)) and int(found.group(1)):
        return max(1, shape.layers // pp // int(found.group(1)))
    wanted = facts.get("virtual")
    if isinstance(wanted, int):
        return max(1, min(wanted, shape.layers // pp))
    if wanted == "deepest":
        return _deepest(shape.layers, pp)
    interleaved = re.search(r"interleav", notes, re.IGNORECASE) and not re.search(r"no interleav", notes, re.IGNORECASE)
    return 2 if interleaved and shape.layers // pp >= 2 else 1


def _deepest(layers: int, pp: int) -> int:
    for count in (layers, layers + 2):
        if count % pp == 0:
            return count // pp
    return 1


def batch_of(
    row: PublishedRow, facts: Mapping[str, Any], split: Mapping[str, int], sequence: int
) -> tuple[dict[str, int], str]:
    """Return global and micro batch, and a remark where the global one was assumed."""
    dp, pp = split["dp"], split["pp"]
    micro, total = row.whole("micro_batch"), stated_total(row, sequence, dp)
    rule, remark = facts.get("micro"), ""
    if rule == "local" and micro:
        # torchtitan of 2024: a pipeline cuts the local batch into as many micro-batches as it has stages.
        return {"global": total or micro * dp, "micro": max(1, micro // pp)}, ""
    if total is None and not micro and isinstance(rule, int):
        micro = rule  # the source's own script states what a rank takes at once
    if total is None and micro:
        total = micro * dp * (4 * pp if pp > 1 else 1)
    if total is None:
        if not re.match(r"tokens|mfu|hfu|model_|hw_|tflops|samples|seq|images", row.text("metric").lower()):
            raise DescriptionError("neither global nor micro batch is published")
        total = max(round(USUAL_TOKENS / sequence / dp), 4 if pp == 1 and sequence <= 4096 else 1) * dp
        remark = f"batch not published: {total} sequences of {sequence} assumed"
    share = max(total // dp, 1)
    if not micro or (micro > share and share >= 1):
        wanted = share if rule == "whole" or (micro and micro > share) else _usual_micro(rule, pp)
        micro = max(d for d in divisors(share) if d <= max(wanted, 1))
    return {"global": total, "micro": micro}, remark


def stated_total(row: PublishedRow, sequence: int, dp: int) -> int | None:
    """Return the global batch in sequences; a batch in tokens is divided by the sequence and fitted to the replicas."""
    text = row.text("global_batch")
    total = row.whole("global_batch")
    if not total or total < 1:
        return None
    if not counts_tokens(text) and total < 2**20:
        return total
    tokens = number_in(text, binary=True) or float(total)
    return max(round(tokens / sequence / dp), 1) * dp


def _usual_micro(rule: Any, pp: int) -> int:
    if isinstance(rule, Mapping):
        return int(rule.get("pipeline", 1) if pp > 1 else rule.get("otherwise", 4))
    return int(rule) if isinstance(rule, int) else (1 if pp > 1 else 4)
