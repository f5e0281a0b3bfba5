"""One change at a time of a planned job: its network, its software, its numerics; what each costs to buy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from syncline.codec.names import PLAIN
from syncline.errors import SynclineError
from syncline.fabric.build import build
from syncline.fabric.catalog import load_catalog
from syncline.fabric.fabric import Fabric
from syncline.planning.block import PlanQuestion
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.money import Money
from syncline.planning.plan import Plan
from syncline.planning.space import USUAL
from syncline.planning.upgrade import (
    WAN,
    Price,
    domain_price,
    double_price,
    faster_links,
    level_fabric,
    level_price,
    upgrade_price,
    wan_price,
    wide_hosts,
)
from syncline.sim.flow.flow import without
from syncline.sim.slow_port import slow_cables, slow_ports
from syncline.sim.step.machine import machine_from_fabric, reach_of

#: The next generation of a link: name, and how much faster one port is.
NEXT_LINK = {
    "EDR": "HDR", "HDR100": "HDR", "HDR": "NDR", "NDR200": "NDR", "NDR": "XDR", "10GbE": "25GbE", "25GbE": "100GbE",
    "40GbE": "100GbE", "100GbE": "200GbE", "200GbE": "400GbE", "400GbE": "800GbE",
}  # fmt: skip
WIDE_DOMAIN = 64
#: Steps between meetings: DiLoCo was published with 500 inner steps and works with 50 to 500 (arXiv 2311.08105), local
#: SGD with 2 to 16 (arXiv 1805.09767).
PERIODIC_CHANGES = (("diloco", 100), ("local-sgd", 8))
TITLES = {"diloco": "DiLoCo", "local-sgd": "local SGD"}
#: What `overlap` names; and the frameworks that a plan can tell to hide tensor-parallel exchange (empty: any).
EXCHANGES = {"tp": "tensor-parallel exchange", "dp": "gradients"}
OVERLAPS_TP = ("", "megatron", "nemo")
#: A global batch this near to the one that was asked for trains alike: learning rates are not tuned more finely.
NEAR_BATCH = 0.13
ORDERS = {"packed": "ranks ordered by rack", "scattered": "anywhere", "spread": "hosts spread over racks",
          "stages": "pipeline stages on different sites"}  # fmt: skip


@dataclass(frozen=True)
class QuestionChange:
    """A change of the question, and of the fabric; `tokens` is by how much it multiplies the tokens of a step."""

    name: str
    words: str
    kind: str
    apply: Callable[[PlanQuestion], PlanQuestion] = lambda question: question
    rebuilt: Callable[[Fabric], Fabric] = lambda fabric: fabric
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    tokens: float = 1.0
    price: tuple[float | None, str] = (0.0, "")
    """Its price, None where that is not known, and a note."""


def changes(
    question: PlanQuestion, best: Plan, fabric: Fabric, fix: Mapping[str, Any], money: Money | None = None
) -> list[QuestionChange]:
    """Return the changes that mean something for this question."""
    return [
        *_network_changes(question, fabric, money), *_software_changes(question, best, fix),
        *_numeric_changes(question, best, fix),
    ]  # fmt: skip


def faster_network(question: PlanQuestion, factor: float) -> PlanQuestion:
    """Return the question with every network rate multiplied."""
    r, m = question.reach, question.machine
    machine = replace(m, nic_Bps=m.nic_Bps * factor, upper_Bps=m.upper_Bps * factor)
    return replace(question, reach=r.scaled(factor), machine=machine)


def half_latency(question: PlanQuestion) -> PlanQuestion:
    """Return the question with half the latency of every exchange."""
    held = question.constants.held
    held = replace(held, tp_call_s=held.tp_call_s / 2, ring_hop_s=held.ring_hop_s / 2)
    reach = replace(question.reach, hop_s=question.reach.hop_s / 2, site_s=question.reach.site_s / 2)
    machine = replace(question.machine, hop_s=question.machine.hop_s / 2)
    return replace(question, reach=reach, machine=machine, constants=replace(question.constants, held=held))


def wider_domain(question: PlanQuestion, domain: int) -> PlanQuestion:
    """Return the question with more GPUs in one scale-up domain."""
    reach = replace(question.reach, domain=domain)
    return replace(question, machine=replace(question.machine, domain=domain), reach=reach)


def _network_changes(question: PlanQuestion, fabric: Fabric, money: Money | None) -> list[QuestionChange]:
    def bought(
        name: str, words: str, apply: Callable[[PlanQuestion], PlanQuestion], price: Price,
        rebuilt: Callable[[Fabric], Fabric] = lambda fabric: fabric,
    ) -> QuestionChange:  # fmt: skip
        return QuestionChange(name, words, "hardware", apply, rebuilt, price=price)

    def faster(name: str, words: str, factor: float, price: Price) -> QuestionChange:
        return bought(name, words, lambda q: faster_network(q, factor), price, lambda f: faster_links(f, factor))

    found = [
        faster("bandwidth", "10 % more network bandwidth", 1.1, (None, "")),
        bought("latency", "half the latency", half_latency, (None, "")),
    ]
    if question.machine.domain < WIDE_DOMAIN:
        words = f"scale-up domains of {WIDE_DOMAIN} GPUs instead of {question.machine.domain}"
        price = domain_price(question.machine.num_gpus, WIDE_DOMAIN)
        found.append(bought("domain", words, lambda q: wider_domain(q, WIDE_DOMAIN), price,
                            lambda f: wide_hosts(f, WIDE_DOMAIN)))  # fmt: skip
    found.append(faster("ports", "twice the network ports of every host", 2.0, double_price(fabric)))
    link = _link(fabric)
    if link in NEXT_LINK:
        catalog = load_catalog()
        factor = catalog.link(NEXT_LINK[link]).rate_Bps / catalog.link(link).rate_Bps
        words = f"the next links: {NEXT_LINK[link]} instead of {link}, x {factor:g}"
        found.append(faster("link", words, factor, upgrade_price(fabric, NEXT_LINK[link])))
    found += _fault_changes(fabric)
    if question.reach.oversubscribed:
        words = "no oversubscription above the leaf switches"
        found.append(bought("oversubscription", words, level, level_price(fabric), level_fabric))
    if not math.isinf(question.reach.site_gpus):
        price = wan_price(money.account.owned) if money else (None, "not priced")
        words = "twice the lines between the sites"
        found.append(bought("wan", words, lambda q: more_lines(q, 2.0), price, lambda f: faster_links(f, 2.0, WAN)))
    return found


def _fault_changes(fabric: Fabric) -> list[QuestionChange]:
    """Return the cluster without its faults, and without ports and cables that cost more than leaving them out."""
    found = []
    for name, slow, words in (
        ("slow-port", slow_ports(fabric), "{} left out, as it slows the others (NCCL_IB_HCA=^DEVICE)"),
        ("slow-cable", slow_cables(fabric), "{} shut, as it slows the others"),
    ):
        if slow is not None:
            found.append(_other(name, words.format(slow.named), without(fabric, set(slow.links))))
    if fabric.spec.faults:
        first, more = fabric.spec.faults[0], len(fabric.spec.faults) - 1
        named = first.link or first.device or ""
        words = f"{f'{named} and {more:,} more faults' if more else named} repaired"
        healthy = build(fabric.spec.model_copy(update={"faults": ()}))
        found.append(replace(_other("repair", words, healthy), price=(0.0, "parts and work are not counted")))
    return found


def _other(name: str, words: str, fabric: Fabric) -> QuestionChange:
    """Return the change to the same question on another fabric of the same hosts."""

    def apply(question: PlanQuestion) -> PlanQuestion:
        machine = machine_from_fabric(fabric)
        return replace(question, machine=machine, reach=reach_of(fabric, machine, question.reach.placement))

    return QuestionChange(name, words, "free", apply, lambda _: fabric)


def more_lines(question: PlanQuestion, factor: float) -> PlanQuestion:
    """Return the question with more bandwidth between its sites."""
    return replace(question, reach=replace(question.reach, site_Bps=question.reach.site_Bps * factor))


def level(question: PlanQuestion) -> PlanQuestion:
    """Return the question with racks and pods that let out all that their ports send."""
    return replace(question, reach=replace(question.reach, rack_Bps=math.inf, pod_Bps=math.inf))


def _software_changes(question: PlanQuestion, best: Plan, fix: Mapping[str, Any]) -> list[QuestionChange]:
    d = best.decision
    found = [_order(question, name, fix) for name in question.reach.placements(best.num_gpus) if name != d.placement]
    if {"algorithm", "bucket_bytes"} & set(fix):
        words = "the best algorithm and bucket for gradients"
        found.append(QuestionChange("exchange", words, "free", axes={"algorithm": ("",), "bucket_bytes": (0,)}))
    off = ["tp"] * (d.tp > 1 and not d.tp_overlap and question.framework in OVERLAPS_TP) + ["dp"] * (not d.dp_overlap)
    if off:
        keys = ", ".join(f"{axis}: true" for axis in off)
        words = f"{' and '.join(EXCHANGES[axis] for axis in off)} beside compute (`overlap: {{{keys}}}`)"
        found.append(QuestionChange("overlap", words, "free", axes={f"{axis}_overlap": (True,) for axis in off}))
    if d.pp > 1 and d.schedule != "zero-bubble" and "schedule" not in fix:
        axes = {"schedule": ("1f1b", "interleaved", "zero-bubble")}
        found.append(QuestionChange("zero-bubble", "a zero-bubble pipeline schedule", "free", axes=axes))
    return found


def _order(question: PlanQuestion, placement: str, fix: Mapping[str, Any]) -> QuestionChange:
    words = f"{ORDERS[placement]}, instead of {ORDERS[question.reach.placement]}"
    # Another order may ask for another way to shard.
    kinds = named_framework(question.framework).zero if question.framework else USUAL.zero
    axes = {} if "zero" in fix else {"zero": kinds}
    return QuestionChange(
        "order", words, "free", lambda q: replace(q, reach=replace(q.reach, placement=placement)), axes=axes
    )


def _with_job(**update: object) -> Callable[[PlanQuestion], PlanQuestion]:
    """Return the change to the same question about a job with other fields."""
    return lambda question: replace(question, job=question.job.model_copy(update=update))


def _periodic(question: PlanQuestion, method: str, every: int) -> QuestionChange:
    """Return replicas that meet every so many steps, each with its whole state or sharded inside a domain."""
    sync = question.job.sync.model_copy(update={"method": method, "every": every})
    words = f"replicas that meet every {every} steps ({TITLES[method]})"
    note = f"changes what training sees: {TITLES[method]} needs its own learning rates; check convergence"
    axes = {"zero": ("none", "hsdp")}
    return QuestionChange(method, words, "numerics", _with_job(sync=sync), axes=axes, price=(0.0, note))


def _numeric_changes(question: PlanQuestion, best: Plan, fix: Mapping[str, Any]) -> list[QuestionChange]:
    job, batch, num_gpus = question.job, question.job.batch, best.num_gpus

    def seen(name: str, words: str, apply: Callable[[PlanQuestion], PlanQuestion], **more: Any) -> QuestionChange:
        free = (0.0, "changes what training sees: check convergence")
        return QuestionChange(name, words, "numerics", apply, price=free, **more)

    def batch_of(total: int) -> Callable[[PlanQuestion], PlanQuestion]:
        return _with_job(batch=batch.model_copy(update={"global_": total}))

    found = []
    even = _nearest_multiple(batch.global_, num_gpus)  # where this batch forces a split for its own sake
    if "dp" not in fix and even != batch.global_ and abs(even / batch.global_ - 1) <= NEAR_BATCH:
        words = f"a global batch of {even:,} instead of {batch.global_:,} ({num_gpus:,} GPUs share it evenly)"
        axes = {"zero": job.sync.shardings}
        found.append(seen("even-batch", words, batch_of(even), axes=axes, tokens=even / batch.global_))
    twice = "twice the micro-batches (global batch x 2)"
    found.append(seen("accumulation", twice, batch_of(2 * batch.global_), tokens=2.0))
    if job.sync.codec == PLAIN:
        found.append(seen("int8", "gradients sent as int8", _with_job(), axes={"codec": ("int8",)}))
    if job.sync.method == "allreduce" and "zero" not in fix:
        found += [_periodic(question, name, every) for name, every in PERIODIC_CHANGES]
    if job.precision in ("bf16", "fp16") and "fp8" in question.machine.sustained:
        found.append(seen("fp8", "matrix products in fp8", _with_job(precision="fp8")))
    return found


def _nearest_multiple(batch: int, num_gpus: int) -> int:
    """Return the batch nearest to this one that the GPUs divide, or half of them where that is far, and so on."""
    share = num_gpus
    while True:
        nearest = max(1, round(batch / share)) * share
        if abs(nearest / batch - 1) <= NEAR_BATCH or share % 2:
            return nearest
        share //= 2  # tensor or pipeline parallelism takes the factor two


def _link(fabric: Fabric) -> str:
    network = fabric.spec.network if fabric.spec.hosts else fabric.spec.sites[0].network
    name = getattr(network, "link", "") or ""
    try:
        return load_catalog().link(name).name if name else ""
    except SynclineError:
        return ""
