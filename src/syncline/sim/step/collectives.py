"""The collectives of a priced step under their one name: how many of them, how large, and how long each takes.

A volume says what a rank sends; here that becomes the buffer of one call (a ring all-reduce sends 2(n-1)/n of its
buffer, an all-gather or reduce-scatter (n-1)/n), and the time on the wire, hidden or not, is shared by the calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncline.timeline.collective import CollectiveName, codec_of, group_of, operation_of
from syncline.workload.volumes import Volume, volumes

if TYPE_CHECKING:
    from syncline.sim.step.step import StepResult


@dataclass(frozen=True)
class PricedCollective:
    """One kind of collective of a step: `count` calls of `size_bytes`, each of `time_s` on the wire."""

    name: str
    count: float
    size_bytes: int
    ranks: int
    time_s: float


def priced_collectives(result: StepResult, bucket_bytes: float | None = None) -> tuple[PricedCollective, ...]:
    """Return every kind of collective of a step; gradients are cut into buckets where their size is given."""
    found: list[PricedCollective] = []
    whole = wire_times(result)
    for volume in volumes(result.job):
        if volume.ranks > 1 and volume.calls > 0:
            wire_s = max(whole.get(volume.axis, 0.0), result.parts_s.get(volume.axis, 0.0))
            found += _of_volume(result, volume, wire_s, bucket_bytes)
    return tuple(found)


def nic_rates(result: StepResult) -> dict[str, float]:
    """Return the mean rate of a NIC's links over a step, by the pattern of their names: the job uses them all alike."""
    sent = sum(tiers.get("network", 0.0) for tiers in result.comm_bytes.values())
    rate_Bps = sent / result.step_time_s if result.step_time_s > 0 else 0.0
    return {"*/nic-* -> *": rate_Bps, "* -> */nic-*": rate_Bps} if rate_Bps > 0 else {}


def _of_volume(result: StepResult, volume: Volume, wire_s: float, bucket_bytes: float | None) -> list[PricedCollective]:
    # Ring attention passes its blocks on: to NCCL, and to whoever watches it, that is a send and a receive.
    operations = [operation_of(word) or "send-receive" for word in volume.collective.split("+")]
    codec = codec_of(result.job.sync.codec) if volume.axis == "dp" else ""
    shrunk = _wire_share(result) if codec else 1.0
    sent = volume.size_bytes / volume.calls / shrunk
    made = []
    for operation in operations:
        n = volume.ranks
        factor = (2 if operation == "all-reduce" else 1) * (n - 1) / n
        calls = volume.calls / len(operations)
        if operation == "all-reduce" and volume.kind in ("data", "data (experts)"):
            sent, calls = 2 * sent, calls / 2  # counted as two calls: a reduction and its way back
        size = sent / factor if operation != "send-receive" else sent
        if operation == "all-reduce" and bucket_bytes and size > bucket_bytes:
            calls, size = calls * size / bucket_bytes, bucket_bytes
        name = CollectiveName(operation, group_of(volume.axis), round(size), codec)
        share = wire_s / len(operations) / calls
        made.append(PricedCollective(str(name), calls, round(size), n, share))
    return made


def _wire_share(result: StepResult) -> float:
    from syncline.workload.software import facts_of
    from syncline.workload.volumes import wire_share

    return wire_share(result.job.sync.codec, facts_of(result.job).gradient_bytes)


def wire_times(result: StepResult) -> dict[str, float]:
    """Return the time a rank spends on each axis' traffic in a step, whether compute hides it or not."""
    case, cost = result.case, result.cost
    if case is None or cost is None:
        return {}
    each, share = case.num_micro * case.layers / case.pp, case.moe_layers / case.layers
    redo, blocks = case.redo_tp, (case.mixing_share + case.ffn_share - share) / 2
    return {
        "tp": float(cost.tp_call * (4 + 2 * redo) * blocks * each),
        "cp": float(cost.cp_call * (3 + redo) * case.attention_share * each),
        "ep": float(cost.ep_call * (4 + 2 * redo) * share * each),
        "pp": float(cost.p2p_wire),
        "dp": float(cost.fsdp_wire) if case.fsdp else float(cost.dp_wire),
    }
