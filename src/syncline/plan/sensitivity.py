"""Sensitivity: one change at a time, what it saves in time and money, best first.

Each change is planned anew, so a faster network may also lead to another split. What is compared is time per token:
a change of the batch changes the tokens of a step too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from syncline.codec.names import PLAIN
from syncline.describe.plain import JsonObject
from syncline.errors import SynclineError
from syncline.fabric.build import build
from syncline.fabric.catalog import load_catalog
from syncline.fabric.fabric import Fabric
from syncline.plan.block import PlanQuestion
from syncline.plan.cost.recovery import faster_recoveries
from syncline.plan.evaluate import evaluate
from syncline.plan.frameworks.framework import named_framework
from syncline.plan.money import Money
from syncline.plan.plan import Plan
from syncline.plan.search import SearchResult, search
from syncline.plan.space import USUAL, Axes
from syncline.plan.upgrade import domain_price, double_price, level_price, upgrade_price, wan_price
from syncline.sim.flow.flow import without
from syncline.sim.slow_port import slow_cables, slower_than_none
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
#: Chances that a change brings what is predicted; all assumed. Settings and hardware rarely disappoint; numerics may
#: not converge: fp8 products are used at scale (DeepSeek-V3), low-bit gradients and rare meetings less often.
LIKELY = {"free": 0.9, "hardware": 0.9, "numerics": 0.5, "zero-bubble": 0.7, "fp8": 0.7, "codec": 0.6, "int8": 0.6,
          "restart": 0.8, "even-batch": 0.8}  # fmt: skip
#: A global batch this near to the one that was asked for trains alike: learning rates are not tuned more finely.
NEAR_BATCH = 0.13
ORDERS = {"packed": "ranks ordered by rack", "scattered": "anywhere", "spread": "hosts spread over racks",
          "stages": "pipeline stages on different sites"}  # fmt: skip


@dataclass(frozen=True)
class Improvement:
    """One change and its worth. `saving` is the part of the time of a token that it saves; money is per year."""

    name: str
    words: str
    step_time_s: float
    saving: float
    usd_per_year: float | None
    price_usd: float | None  # what it costs; None: not known
    plan: str
    kind: str  # free (a setting), numerics (changes what training sees), hardware
    note: str
    chance: float = 1.0  # that it brings what is predicted

    def net_usd_per_year(self, years: float) -> float | None:
        """Return dollars a year after risk and after its price over so many years; None where either is not known."""
        if self.usd_per_year is None or self.price_usd is None:
            return None
        return self.chance * self.usd_per_year - self.price_usd / years

    @property
    def payback_years(self) -> float | None:
        """Years until it has earned its price; None where either is not known or it never does."""
        if self.price_usd is None or not self.usd_per_year or self.usd_per_year <= 0:
            return None
        return self.price_usd / self.usd_per_year

    def to_json(self) -> JsonObject:
        """Return the action as plain data."""
        return dict(vars(self)) | {"payback_years": self.payback_years}


@dataclass(frozen=True)
class QuestionChange:
    """A change of the question; `tokens` is by how much it multiplies the tokens of a step."""

    name: str
    words: str
    kind: str
    apply: Callable[[PlanQuestion], PlanQuestion]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    tokens: float = 1.0
    price_usd: float | None = None
    note: str = ""


def actions_of(
    question: PlanQuestion, best: Plan, fabric: Fabric, money: Money | None, axes: Axes, fix: Mapping[str, Any]
) -> tuple[Improvement, ...]:
    """Return every change that applies, largest saving first."""
    # Near the best plan: the way its state is sharded stays, and what never wins is not tried again.
    schedule = tuple(s for s in axes.schedule if s != "gpipe")
    near = replace(axes.near(), zero=(best.decision.zero,), schedule=schedule)
    found = []
    for change in changes(question, best, fabric, fix, money):
        action = _worth(change, question, best, money, near, fix)
        if action is not None:
            found.append(action)
    if money is not None:
        found += recovery_actions(best, money)
    return tuple(sorted(found, key=lambda action: -action.saving))


def _worth(
    change: QuestionChange, question: PlanQuestion, best: Plan, money: Money | None, axes: Axes, fix: Mapping[str, Any]
) -> Improvement | None:
    changed = change.apply(question)
    fixed = {name: value for name, value in fix.items() if name not in change.axes}
    if change.tokens != 1.0:
        fixed = {name: value for name, value in fixed.items() if name != "num_micro"}
    looked = SearchResult()
    # A plan that leaves GPUs idle because of a thin line may use them all once that is changed.
    for count in {best.decision.num_gpus, question.job.gpus or best.num_gpus}:
        try:
            looked = looked.joined(search(changed, count, axes=replace(axes, **dict(change.axes)), fix=fixed, keep=1))
        except SynclineError:
            continue
    if not looked.best:
        return None
    top = looked.best[0]
    p = best.predicted
    # Closed form against closed form: what executing the best plan adds is taken to stay the same part of a step.
    beyond = p.step_time_s / (p.closed_form_s or p.step_time_s)
    step_s = beyond * evaluate(changed, top.decision).step_time_s  # with what encoding gradients costs
    per_token = step_s / change.tokens
    saving = 1 - per_token / p.step_time_s
    worth = saving * money.usd_per_year(best.num_gpus) if money else None
    return Improvement(
        change.name, change.words, step_s, saving, worth, change.price_usd, top.decision.label, change.kind,
        change.note, LIKELY.get(change.name, LIKELY[change.kind]),
    )  # fmt: skip


def network_bound(question: PlanQuestion, best: Plan, axes: Axes, fix: Mapping[str, Any]) -> float | None:
    """Return the part of the time that a network without limits would save: no purchase of network saves more."""
    unlimited = more_lines(half_latency(faster_network(question, 1e4)), 1e4)
    unlimited = _level(replace(unlimited, reach=replace(unlimited.reach, site_s=0.0)))
    looked = SearchResult()
    for count in {best.decision.num_gpus, question.job.gpus or best.num_gpus}:
        try:
            looked = looked.joined(search(unlimited, count, axes=axes.near(), fix=fix, keep=1))
        except SynclineError:
            continue
    if not looked.best:
        return None
    return max(0.0, 1 - evaluate(unlimited, looked.best[0].decision).step_time_s / best.predicted.step_time_s)


def recovery_actions(best: Plan, money: Money) -> list[Improvement]:
    """Return changes of checkpoints and restarts: they leave the step alone and the time of a token shorter."""
    step_s = best.predicted.step_time_s
    found = money.recovery(step_s, best.num_gpus)
    actions = []
    for name, words, then in faster_recoveries(found):
        saving = 1 - found.goodput / then.goodput
        kind, price = ("hardware", None) if name == "storage" else ("free", 0.0)
        note = f"goodput {then.goodput:.1%} instead of {found.goodput:.1%}"
        worth = saving * money.usd_per_year(best.num_gpus)
        chance = LIKELY.get(name, LIKELY[kind])
        actions.append(Improvement(name, words, step_s, saving, worth, price, best.decision.label, kind, note, chance))
    return actions


def changes(
    question: PlanQuestion, best: Plan, fabric: Fabric, fix: Mapping[str, Any], money: Money | None = None
) -> list[QuestionChange]:
    """Return the changes that mean something for this question."""
    return [
        *_network_changes(question, fabric),
        *_site_changes(question, money),
        *_software_changes(question, best, fix),
        *_numeric_changes(question, best, fix),
    ]


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


def _network_changes(question: PlanQuestion, fabric: Fabric) -> list[QuestionChange]:
    found = [
        QuestionChange("bandwidth", "10 % more network bandwidth", "hardware", lambda q: faster_network(q, 1.1)),
        QuestionChange("latency", "half the latency", "hardware", half_latency),
    ]
    if question.machine.domain < WIDE_DOMAIN:
        words = f"scale-up domains of {WIDE_DOMAIN} GPUs instead of {question.machine.domain}"
        price, note = domain_price(question.machine.num_gpus, WIDE_DOMAIN)
        found.append(
            QuestionChange(
                "domain", words, "hardware", lambda q: wider_domain(q, WIDE_DOMAIN), price_usd=price, note=note
            )
        )
    price, note = double_price(fabric)
    twice = "twice the network ports of every host"
    found.append(
        QuestionChange("ports", twice, "hardware", lambda q: faster_network(q, 2.0), price_usd=price, note=note)
    )
    link = _link(fabric)
    if link in NEXT_LINK:
        catalog = load_catalog()
        factor = catalog.link(NEXT_LINK[link]).rate_Bps / catalog.link(link).rate_Bps
        price, note = upgrade_price(fabric, NEXT_LINK[link])
        words = f"the next links: {NEXT_LINK[link]} instead of {link}, x {factor:g}"
        found.append(
            QuestionChange("link", words, "hardware", lambda q: faster_network(q, factor), price_usd=price, note=note)
        )
    found += _fault_changes(fabric)
    if question.reach.oversubscribed:
        words = "no oversubscription above the leaf switches"
        price, note = level_price(fabric)
        found.append(QuestionChange("oversubscription", words, "hardware", _level, price_usd=price, note=note))
    return found


def _fault_changes(fabric: Fabric) -> list[QuestionChange]:
    """Return the cluster without its faults, and without ports and cables that are slower than none."""
    found = []
    slow = slower_than_none(fabric)
    if slow is not None:
        words = f"{slow.named} left out, as slower than none (NCCL_IB_HCA=^DEVICE)"
        found.append(QuestionChange("slow-port", words, "free", _on(without(fabric, set(slow.links))), price_usd=0.0))
    cables = slow_cables(fabric)
    if cables is not None:
        words = f"{cables.named} shut, as slower than none"
        change = _on(without(fabric, set(cables.links)))
        found.append(QuestionChange("slow-cable", words, "free", change, price_usd=0.0))
    if fabric.spec.faults:
        first, more = fabric.spec.faults[0], len(fabric.spec.faults) - 1
        named = first.link or first.device or ""
        words = f"{f'{named} and {more:,} more faults' if more else named} repaired"
        healthy = build(fabric.spec.model_copy(update={"faults": ()}))
        note = "parts and work are not counted"
        found.append(QuestionChange("repair", words, "free", _on(healthy), price_usd=0.0, note=note))
    return found


def _on(fabric: Fabric) -> Callable[[PlanQuestion], PlanQuestion]:
    """Return the change to the same question on another fabric of the same hosts."""

    def apply(question: PlanQuestion) -> PlanQuestion:
        machine = machine_from_fabric(fabric)
        return replace(question, machine=machine, reach=reach_of(fabric, machine, question.reach.placement))

    return apply


def _site_changes(question: PlanQuestion, money: Money | None) -> list[QuestionChange]:
    if math.isinf(question.reach.site_gpus):
        return []
    price, note = wan_price(money.account.owned) if money else (None, "not priced")
    words = "twice the lines between the sites"
    return [QuestionChange("wan", words, "hardware", lambda q: more_lines(q, 2.0), price_usd=price, note=note)]


def more_lines(question: PlanQuestion, factor: float) -> PlanQuestion:
    """Return the question with more bandwidth between its sites."""
    return replace(question, reach=replace(question.reach, site_Bps=question.reach.site_Bps * factor))


def _level(question: PlanQuestion) -> PlanQuestion:
    return replace(question, reach=replace(question.reach, rack_Bps=math.inf, pod_Bps=math.inf))


def _software_changes(question: PlanQuestion, best: Plan, fix: Mapping[str, Any]) -> list[QuestionChange]:
    d = best.decision
    found = []
    found += [_order(question, name, fix) for name in question.reach.placements(best.num_gpus) if name != d.placement]
    if {"algorithm", "bucket_bytes"} & set(fix):
        free: dict[str, tuple[Any, ...]] = {"algorithm": ("",), "bucket_bytes": (0,)}
        words = "the best algorithm and bucket for gradients"
        found.append(QuestionChange("exchange", words, "free", lambda q: q, free, price_usd=0.0))
    off = ["tp"] * (d.tp > 1 and not d.tp_overlap and question.framework in OVERLAPS_TP) + ["dp"] * (not d.dp_overlap)
    if off:
        overlap: dict[str, tuple[Any, ...]] = {f"{axis}_overlap": (True,) for axis in off}
        keys = ", ".join(f"{axis}: true" for axis in off)
        words = f"{' and '.join(EXCHANGES[axis] for axis in off)} beside compute (`overlap: {{{keys}}}`)"
        found.append(QuestionChange("overlap", words, "free", lambda q: q, overlap, price_usd=0.0))
    if d.pp > 1 and d.schedule != "zero-bubble" and "schedule" not in fix:
        zero: dict[str, tuple[Any, ...]] = {"schedule": ("1f1b", "interleaved", "zero-bubble")}
        found.append(
            QuestionChange("zero-bubble", "a zero-bubble pipeline schedule", "free", lambda q: q, zero, price_usd=0.0)
        )
    return found


def _order(question: PlanQuestion, placement: str, fix: Mapping[str, Any]) -> QuestionChange:
    words = f"{ORDERS[placement]}, instead of {ORDERS[question.reach.placement]}"
    # Another order may ask for another way to shard.
    kinds = named_framework(question.framework).zero if question.framework else USUAL.zero
    zero = {} if "zero" in fix else {"zero": kinds}
    return QuestionChange(
        "order", words, "free", lambda q: replace(q, reach=replace(q.reach, placement=placement)), zero,
        price_usd=0.0,
    )  # fmt: skip


def _periodic(method: str, every: int) -> QuestionChange:
    """Return replicas that meet every so many steps, each with its whole state or sharded inside a domain."""

    def apply(question: PlanQuestion) -> PlanQuestion:
        sync = question.job.sync.model_copy(update={"method": method, "every": every})
        return replace(question, job=question.job.model_copy(update={"sync": sync}))

    words = f"replicas that meet every {every} steps ({TITLES[method]})"
    note = f"changes what training sees: {TITLES[method]} needs its own learning rates; check convergence"
    return QuestionChange(method, words, "numerics", apply, {"zero": ("none", "hsdp")}, price_usd=0.0, note=note)


def _even_batch(question: PlanQuestion, num_gpus: int) -> list[QuestionChange]:
    """Return the nearest global batch that the GPUs divide, where this one forces a split for its own sake."""
    batch = question.job.batch.global_
    nearest = _nearest_multiple(batch, num_gpus)
    if nearest == batch or abs(nearest / batch - 1) > NEAR_BATCH:
        return []

    def apply(question: PlanQuestion) -> PlanQuestion:
        return replace(question, job=question.job.model_copy(update={"batch": even}))

    even = question.job.batch.model_copy(update={"global_": nearest})
    shardings: dict[str, tuple[Any, ...]] = {"zero": question.job.sync.shardings}
    words = f"a global batch of {nearest:,} instead of {batch:,} ({num_gpus:,} GPUs share it evenly)"
    note = "changes what training sees: check convergence"
    ratio = nearest / batch
    return [QuestionChange("even-batch", words, "numerics", apply, shardings, tokens=ratio, price_usd=0.0, note=note)]


def _nearest_multiple(batch: int, num_gpus: int) -> int:
    """Return the batch nearest to this one that the GPUs divide, or half of them where that is far, and so on."""
    share = num_gpus
    while True:
        nearest = max(1, round(batch / share)) * share
        if abs(nearest / batch - 1) <= NEAR_BATCH or share % 2:
            return nearest
        share //= 2  # tensor or pipeline parallelism takes the factor two


def _numeric_changes(question: PlanQuestion, best: Plan, fix: Mapping[str, Any]) -> list[QuestionChange]:
    job = question.job
    sees = "changes what training sees: check convergence"
    found = [
        *([] if "dp" in fix else _even_batch(question, best.num_gpus)),
        QuestionChange(
            "accumulation",
            "twice the micro-batches (global batch x 2)",
            "numerics",
            _twice,
            tokens=2.0,
            price_usd=0.0,
            note=sees,
        ),
    ]
    if job.sync.codec == PLAIN:
        found.append(
            QuestionChange(
                "codec", "gradients sent as fp8", "numerics", lambda q: q, {"codec": ("fp8",)}, price_usd=0.0, note=sees
            )
        )
        found.append(
            QuestionChange("int8", "gradients sent as int8", "numerics", lambda q: q, {"codec": ("int8",)},
                           price_usd=0.0, note=sees)
        )  # fmt: skip
    if job.sync.method == "allreduce" and "zero" not in fix:
        found += [_periodic(name, every) for name, every in PERIODIC_CHANGES]
    if job.precision in ("bf16", "fp16") and "fp8" in question.machine.sustained:
        words = "matrix products in fp8"
        found.append(
            QuestionChange(
                "fp8",
                words,
                "numerics",
                lambda q: replace(q, job=q.job.model_copy(update={"precision": "fp8"})),
                price_usd=0.0,
                note=sees,
            )
        )
    return found


def _twice(question: PlanQuestion) -> PlanQuestion:
    batch = question.job.batch
    return replace(
        question, job=question.job.model_copy(update={"batch": batch.model_copy(update={"global_": 2 * batch.global_})})
    )


def _link(fabric: Fabric) -> str:
    network = fabric.spec.network if fabric.spec.hosts else fabric.spec.sites[0].network
    name = getattr(network, "link", "") or ""
    try:
        return load_catalog().link(name).name if name else ""
    except SynclineError:
        return ""
