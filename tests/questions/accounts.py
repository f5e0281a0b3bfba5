"""Random asks of `step`, `plan` and `preview`, and what must hold of the account in each answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.sim.collective.clusters import described

from syncline.errors import BelowBoundError, SynclineError
from syncline.fabric import build
from syncline.fabric.spec import ClusterSpec
from syncline.planning.sensitivity import NETWORK
from syncline.questions.plan import plan
from syncline.questions.preview import preview
from syncline.questions.step import StepPrediction, step
from syncline.timeline.account import Account, StepCause
from syncline.workload.read_job import load_job

CAPTURED = Path(__file__).parents[2] / "examples" / "preview"
DENSE = ("llama3-8b", "llama3-70b", "gpt3-13b", "qwen3-32b", "resnet50", "bert-large")
EXPERTS = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3")
EXACT, WITHIN = 1e-9, 0.01


def job(draw: random.Random, gpus: int) -> dict[str, Any]:
    """Return a random job; many are refused."""
    experts = draw.random() < 0.35
    parallel: dict[str, Any] = {
        "tp": draw.choice((1, 1, 2, 4, 8)), "pp": draw.choice((1, 1, 2, 4)), "cp": draw.choice((1, 1, 1, 2)),
        "zero": draw.choice(("none", "1", "2", "fsdp")), "context": draw.choice(("ring", "ulysses")),
    }  # fmt: skip
    if experts:
        parallel["ep"] = draw.choice((1, 2, 4, 8))
    if parallel["pp"] > 1 and draw.random() < 0.4:
        parallel |= {"schedule": "interleaved", "virtual": 2}
    found: dict[str, Any] = {
        "model": draw.choice(EXPERTS if experts else DENSE), "parallel": parallel,
        "batch": {"global": gpus * draw.choice((1, 2, 4, 8)), "micro": draw.choice((1, 2)),
                  "sequence": draw.choice((2048, 4096, 8192))},
        "recompute": draw.choice(("none", "selective", "full")), "precision": draw.choice(("bf16", "bf16", "fp8")),
    }  # fmt: skip
    more: dict[str, Any] = {
        "overlap": {"tp": draw.random() < 0.5, "dp": draw.random() < 0.5},
        "sync": draw.choice(({"method": "local-sgd", "every": 8}, {"method": "one-bit-adam"}, {"codec": "int8"},
                             {"method": "parameter-server", "servers": 1}, {"bucket": "4MiB"}, {"algorithm": "tree"})),
        "checkpoint": {"every_steps": 50, "storage_rate": "5GB/s", "asynchronous": draw.random() < 0.5},
        "data": {"storage_rate": "1GB/s", "sample_bytes": 200_000},
        "offload": draw.choice(("optimizer", "activations")),
        "optimizer": draw.choice(("sgd", "muon", "adam-unfused")),
    }  # fmt: skip
    return found | {name: value for name, value in more.items() if draw.random() < 0.25}


def broken(account: Account, step_s: float, exposed_s: float | None = None) -> list[str]:
    """Return which rules an account breaks.

    Nothing is below 0; the parts add up; a step without the network is not longer, and not shorter than its work: what
    its device computes and copies. What is called exposed is the network's part.
    """
    wrong = []
    total = sum(line.seconds for line in account.lines)
    if abs(total - step_s) > EXACT * step_s or account.step_s != step_s:
        wrong.append(f"parts {total}, account {account.step_s}, step {step_s}")
    if min((min(line.seconds, line.hidden_s) for line in account.lines), default=0.0) < 0:
        wrong.append("a part below 0")
    network, free = account.seconds(StepCause.NETWORK), account.removal(StepCause.NETWORK)
    if exposed_s is not None and abs(network - exposed_s) > EXACT * step_s:
        wrong.append(f"network {network}, called exposed {exposed_s}")
    if free is None:
        return wrong if network == 0 else [*wrong, "no price without the network"]
    work = account.seconds(StepCause.KERNELS, StepCause.COPIES)
    if not work * (1 - WITHIN) <= free.step_s <= step_s * (1 + EXACT):
        wrong.append(f"{free.step_s} without the network, {work} of work, {step_s} with it")
    if abs(free.saves_s + free.behind_s - network) > EXACT * step_s:
        wrong.append("the saving and what hid behind it miss the part")
    waits = account.seconds(StepCause.STAGE, StepCause.LATE)
    if free.behind_s < -waits - account.hidden_s(StepCause.NETWORK, StepCause.STAGE) - WITHIN * step_s:
        wrong.append(f"removing it saves {-free.behind_s} s beyond its part, {waits} s wait in all")
    return wrong


def asked_step(draw: random.Random, seed: int) -> list[str]:
    """Return what is wrong with one step."""
    fabric = build(ClusterSpec.model_validate(described(seed)))
    found = step(fabric, load_job(job(draw, fabric.num_gpus)), level=draw.choice(("flow", "analytic")))
    assert isinstance(found, StepPrediction)
    wrong = broken(found.account, found.step_time_s, found.exposed_comm_s)
    if abs(sum(found.parts_s.values()) - found.step_time_s) > EXACT * found.step_time_s:
        wrong.append(f"parts_s {sum(found.parts_s.values())}")
    free, limit = found.account.removal(StepCause.NETWORK), found.limit
    if free is not None and found.level == "analytic" and free.behind_s > 1e-6 * found.step_time_s:
        wrong.append(f"{free.behind_s} s hid behind exchanges of closed forms, behind which nothing hides")
    if (
        not (0 <= limit.then_share <= limit.share or limit.what == "memory")
        or limit.share + limit.then_share > 1 + EXACT
    ):
        wrong.append(f"shares of limits {limit.share}, {limit.then_share}")
    if limit.what != "memory" and abs(limit.share - found.parts_s[limit.what] / found.step_time_s) > EXACT:
        wrong.append(f"limit {limit.what} {limit.share}")
    return wrong


def asked_plan(draw: random.Random, seed: int) -> list[str]:
    """Return what is wrong with one plan, and with the changes that it weighs against a network without limits."""
    fabric = build(ClusterSpec.model_validate(described(seed)))
    wanted = {"model": draw.choice(("llama3-8b", "gpt3-13b", "mixtral-8x7b")),
                 "batch": {"global": 4 * fabric.num_gpus, "sequence": 4096}}  # fmt: skip
    found = plan(fabric, load_job(wanted), workers=1).report
    best = found.best
    wrong = broken(best.account, best.step_time_s, best.exposed_comm_s)
    for action in found.actions:
        bound = found.network_bound if action.name in NETWORK else None
        if bound is not None and action.saving > bound + EXACT:
            wrong.append(f"{action.name} saves {action.saving:.2%}, networks between hosts without limits {bound:.2%}")
    return wrong


def asked_preview(draw: random.Random, seed: int) -> list[str]:
    """Return what is wrong with a preview of the captured script."""
    nodes = draw.choice((2, 4, 8))
    command = ["torchrun", "--nnodes", str(nodes), "--nproc-per-node", "8", str(CAPTURED / "ddp.py")]
    found = preview(
        draw.choice(("h100-64-rail", "old-10gbe", "dgx-h100-superpod")), command, captured=CAPTURED / "captured",
        what_if=["network=free"], world=nodes * 8 if seed % 2 else 0,
    )  # fmt: skip
    account, free = found.account, found.alternatives[0]
    wrong = broken(account, found.executed.step_time_s)
    waits = account.seconds(StepCause.NETWORK, StepCause.LATE, StepCause.STAGE)
    if abs(waits - found.exposed_s) > WITHIN * account.step_s:
        wrong.append(f"waits {waits}, exposed {found.exposed_s}")
    if free.exposed_s > 1e-6 * account.step_s:
        wrong.append(f"{free.exposed_s} s exposed on a free network")
    return wrong


ASKS: dict[str, Callable[[random.Random, int], list[str]]] = {
    "step": asked_step, "plan": asked_plan, "preview": asked_preview,
}  # fmt: skip


def broken_asks(kind: str, wanted: int, first_seed: int) -> tuple[int, dict[int, list[str]]]:
    """Return how many of the wanted answers came, and by seed which rules they break."""
    answered, rules, seed = 0, {}, first_seed
    while answered < wanted and seed < first_seed + 30 * wanted:
        seed += 1
        try:
            wrong = ASKS[kind](random.Random(seed), seed)
        except SynclineError as error:
            if isinstance(error, BelowBoundError) or "bug of" in str(error):
                raise
            continue
        answered += 1
        if wrong:
            rules[seed] = wrong
    return answered, rules
