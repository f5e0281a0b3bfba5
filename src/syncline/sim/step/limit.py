"""What limits a step: the largest part of its time, in words, and what would move it."""

from __future__ import annotations

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.sim.step.case import Case
from syncline.sim.step.machine import Machine

_WORDS = {
    "compute": ("arithmetic", "a faster GPU, lower precision or less recomputation"),
    "tp": ("tensor-parallel exchange", "a smaller tp, or overlap of tensor-parallel communication"),
    "cp": ("context-parallel exchange", "a smaller cp"),
    "ep": ("expert all-to-all", "experts inside one scale-up domain, or fewer ranks per expert group"),
    "host": ("the host (routing tokens, offloaded activations)", "CUDA graphs, larger micro-batches or token dropping"),
    "fsdp": ("gathering parameters", "a larger micro-batch, HSDP inside a domain, or a faster network"),
    "dp": ("the gradient exchange", "gradient accumulation, overlap, compression or a faster network"),
    "p2p": ("activations between stages", "fewer chunks per rank"),
    "bubble": ("the pipeline bubble", "more micro-batches, interleaving or fewer stages"),
    "optimizer": ("the optimizer", "sharding its state"),
    "fixed": ("fixed time per step", "a larger batch"),
    "codec": ("encoding gradients", "a cheaper codec"),
    "storage": ("storage", "a faster storage network, or asynchronous checkpoints"),
}
_UP = {"tp": "tp", "cp": "cp", "ep": "ep"}


def limit_of(parts: dict[str, float], total: float, machine: Machine, case: Case | None, fits: bool) -> JsonObject:
    """Return what limits a step: memory if it does not fit, or else the largest part beside useful arithmetic."""
    name, beside = sorted(parts, key=lambda part: parts[part], reverse=True)[:2]
    # Advice is about what can be moved: the largest part that is not arithmetic.
    moved = beside if name == "compute" else name
    limit: JsonObject = {
        "what": name,
        "words": _WORDS[name][0],
        "share": parts[name] / total,
        "link": _link(name, machine, case),
        "then": beside,
        "then_words": _WORDS[beside][0],
        "then_share": parts[beside] / total,
        "then_link": _link(beside, machine, case),
        "advice": _WORDS[moved][1],
    }
    if not fits:
        limit |= {
            "what": "memory",
            "words": "memory: the job does not fit",
            "advice": "shard more (zero, tp, pp) or recompute",
        }
    return limit


def _link(part: str, machine: Machine, case: Case | None) -> str | None:
    """Return which link a part of the time is spent on."""
    if part not in ("tp", "cp", "ep", "fsdp", "dp", "p2p"):
        return None
    nic = f"network, {units.show_rate(machine.nic_Bps)} a GPU"
    up = f"scale-up, {units.show_bandwidth(machine.nvlink_Bps)} a GPU"
    if case is None:
        return nic
    sizes = {"tp": case.tp, "cp": case.tp * case.cp, "ep": case.ep, "fsdp": case.tp * case.shard_ranks,
             "dp": case.tp * case.cp * case.dp, "p2p": case.tp * case.cp * case.dp * case.pp}  # fmt: skip
    return up if float(sizes[part]) <= machine.domain else nic
