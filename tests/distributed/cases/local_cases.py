"""What ranks do in the tests of local SGD under codec="auto": real processes, and prices made up."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.training import Branches, batch, distributed, network, same_everywhere, weights
from torch import nn

import syncline.torch
from syncline.errors import SynchronizationError
from syncline.program import choice
from syncline.program.choice import Local
from syncline.runtime.auto import auto, basis, guard

# Cases take its parts apart, which types would not let them.
AUTO: Any = auto
BASIS: Any = basis
CHOICE: Any = choice
OPTIONS: dict[str, Any] = {"piece_bytes": 16384, "check_every": 1, "timeout_s": 240.0}
LR = 0.05
EXACT, SPARSE = Local(4, "int8"), Local(2, "topk:keep=0.01+int8")


def tuned(model: Any, plan: Local, **options: Any) -> Any:
    """Return a handle that steps alone from the first step on, as a file of `syncline tune` says."""
    text = f'codec: "{plan.name}"\naccuracy: aggressive\n'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuned.yaml"
        path.write_text(text, "utf-8")
        return syncline.torch.synchronize(model, settings=path, **{**OPTIONS, **options})


def train(model: nn.Module, optimizer: Any, rank: int, steps: range, scale: float = 1.0) -> None:
    for step in steps:
        optimizer.zero_grad()
        (scale * model(batch(rank, step)).square().mean()).backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)


def textbook(num_steps: int, every: int, num_ranks: int) -> list[torch.Tensor]:
    """Return each rank's weights after local SGD in one process, exactly."""
    models = [network() for _ in range(num_ranks)]
    optimizers = [sgd(model) for model in models]
    for step in range(num_steps):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            train(model, optimizer, rank, range(step, step + 1))
        if (step + 1) % every == 0:
            mean = torch.stack([weights(model) for model in models]).mean(0)
            for model in models:
                nn.utils.vector_to_parameters(mean.clone(), model.parameters())
    return [weights(model) for model in models]


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return how far weights are from others, over how far those have moved."""
    return float((one - other).norm() / (other - weights(network())).norm())


def arithmetic(rank: int) -> dict[str, Any]:
    """Ranks step alone, meet before the forward after every fourth step, and the last meeting is exact."""
    model = distributed(network())
    optimizer = sgd(model)
    handle = tuned(model, Local(4, "fp32"))
    sent, apart = [], []
    for step in range(11):
        train(model, optimizer, rank, range(step, step + 1))
        apart.append(not same_everywhere(weights(model)))
        sent.append(handle.steps[-2].wire_bytes if step else 0)
    alone = distance(weights(model), textbook(11, 4, 2)[rank])
    handle.synchronize()
    mean = torch.stack(textbook(11, 4, 2)).mean(0)
    found = {
        "alone": alone, "together": distance(weights(model), mean), "same": same_everywhere(weights(model)),
        "apart": all(apart), "sent_after": [step for step, size in enumerate(sent) if size], "why": handle.why(),
        "summary": handle.summary(),
    }  # fmt: skip
    handle.close()
    train(model, optimizer, rank, range(1))
    return {**found, "ddp_again": same_everywhere(torch.cat([p.grad.flatten() for p in model.parameters()]))}  # type: ignore[union-attr]


def conserves(rank: int) -> dict[str, Any]:
    """A codec that sends one change in a hundred owes the others; where ranks go on together all of it is paid."""
    model = distributed(network())
    own = network()
    handle = tuned(model, SPARSE)
    torch.manual_seed(rank)
    total = torch.zeros_like(weights(model))
    for step in range(5):
        # Moves that do not depend on where a rank is: their mean must arrive.
        model(batch(rank, step)).square().mean().backward()
        move = torch.randn_like(total)
        total += move
        parts = torch.split(move, [p.numel() for p in model.parameters()])
        with torch.no_grad():
            for parameter, part in zip(model.parameters(), parts, strict=True):
                parameter.add_(part.view_as(parameter))
    before = weights(model).clone()
    state = handle.state_dict()
    saved = weights(model).clone()
    dist.all_reduce(total)
    expected = weights(own) + total / 2
    handle.close()
    nn.utils.vector_to_parameters(saved.clone(), own.parameters())
    second = distributed(own)
    again = syncline.torch.synchronize(second, codec="plain", **OPTIONS)
    again.load_state_dict(state)
    second(batch(rank, 0))
    again.close()
    return {
        "apart": not same_everywhere(before), "saved": distance(saved, expected), "saved_same": same_everywhere(saved),
        "closed": distance(weights(model), expected), "resumed": distance(weights(second), expected),
        "same": same_everywhere(weights(model)) and same_everywhere(weights(second)), "step": state["step"],
    }  # fmt: skip


@contextlib.contextmanager
def very_slow(plan: Local) -> Iterator[None]:
    """Let a link look very slow, steps take what the model says, and only one way of stepping alone be there."""
    kept = BASIS.probe_link, AUTO.AutoSynchronizer._report_to

    def report(self: Any, pilot: Any) -> None:
        if pilot.measured is None:
            return kept[1](self, pilot)
        took = pilot.measured.predict(pilot.codecs)
        if pilot.phase == "try":
            pilot.tried(took)
        else:
            pilot.checked(took)
        return None

    link = {"rate_Bps": 1e3, "latency_s": 1e-3, "byte_s": 0.0, "message_s": 0.0}
    every, codecs = CHOICE.LOCAL_EVERY, CHOICE.LOCAL_CODECS
    CHOICE.LOCAL_EVERY, CHOICE.LOCAL_CODECS = (plan.every,), (plan.codec,)
    BASIS.probe_link, AUTO.AutoSynchronizer._report_to = (lambda team: link), report
    try:
        yield
    finally:
        BASIS.probe_link, AUTO.AutoSynchronizer._report_to = kept
        CHOICE.LOCAL_EVERY, CHOICE.LOCAL_CODECS = every, codecs


def takes(rank: int) -> dict[str, Any]:
    """On a very slow link it is tried after the best of the others, held, guarded, and left with equal replicas."""
    with very_slow(SPARSE):
        model = distributed(network())
        optimizer = sgd(model)
        handle: Any = syncline.torch.synchronize(model, accuracy="aggressive", **OPTIONS)
        used = []
        for step in range(24):
            train(model, optimizer, rank, range(step, step + 1))
            used.append(handle.steps[-1].codec)
        found = {"used": used, "phase": handle.pilot.phase, "why": handle.why(), "tried": list(handle.pilot.trials)}
        kept, guard.GUARD_STEPS = guard.GUARD_STEPS, 10
        handle._guard.rest()
        try:
            for step in range(24, 46):  # judged twice
                # Gradients of the first step of a period, at weights that all have, are ten times the others.
                first = handle._alone.steps is not None and (step - 6) % SPARSE.every == 0
                train(model, optimizer, rank, range(step, step + 1), scale=10.0 if first else 1.0)
        finally:
            guard.GUARD_STEPS = kept
        found |= {"notes": handle.pilot.notes[-1], "left": handle.steps[-1].codec, "alone": handle.pilot.alone}
        found["same"] = same_everywhere(weights(model))
        state = handle.state_dict()
        again: Any = syncline.torch.synchronize(distributed(network()), accuracy="aggressive", **OPTIONS)
        again.load_state_dict(state)
        found["resumed_alone"] = again.pilot.alone
        handle.close()
        again.close()
        scaled = syncline.torch.synchronize(
            distributed(network()), accuracy="aggressive", scaler=torch.amp.GradScaler("cpu"), **OPTIONS
        )
        found["with_scaler"] = scaled.pilot.alone  # type: ignore[attr-defined]
        scaled.close()
    return found


def safe_stays_together(rank: int) -> list[str]:
    """In the class that does not allow it no step is made alone, however slow the link is."""
    with very_slow(SPARSE):
        model = distributed(network())
        handle: Any = syncline.torch.synchronize(model, accuracy="safe", **OPTIONS)
        optimizer, used = sgd(model), set()
        for step in range(12):
            train(model, optimizer, rank, range(step, step + 1))
            used.add(handle.steps[-1].codec)
        handle.close()
    return sorted(used)


def accumulates(rank: int) -> dict[str, Any]:
    """With no_sync, or accumulate=2, a step is every second backward, and ranks meet after every fourth step."""
    found: dict[str, Any] = {}
    for how in ("no_sync", "accumulate"):
        model = distributed(network())
        optimizer = sgd(model)
        handle = tuned(model, EXACT, accumulate=2 if how == "accumulate" else 1)
        for step in range(9):
            optimizer.zero_grad()
            with model.no_sync() if how == "no_sync" else contextlib.nullcontext():
                model(batch(rank, 2 * step)).square().mean().backward()
            model(batch(rank, 2 * step + 1)).square().mean().backward()
            optimizer.step()
        found[how] = [step.number for step in handle.steps if step.wire_bytes]
        handle.close()
        found[f"{how}_same"] = same_everywhere(weights(model))
    return found


def unused(rank: int) -> dict[str, Any]:
    """Parameters that a rank does not use move where another rank moved them."""
    model = distributed(Branches(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    handle = tuned(model, EXACT)
    for step in range(4):
        optimizer.zero_grad()
        model(batch(rank, step), take=rank == 0).square().mean().backward()
        optimizer.step()
    handle.close()
    start = Branches()
    moved = {name: not torch.equal(p, q) for (name, p), (_, q) in zip(
        model.module.named_parameters(), start.named_parameters(), strict=True)}  # fmt: skip
    return {"moved": sorted(name for name, is_moved in moved.items() if is_moved),
            "same": same_everywhere(weights(model))}  # fmt: skip


def checkpoints(rank: int, folder: str) -> dict[str, Any]:
    """Saved in the middle of a period: what is written is the mean of all ranks, and a new run goes on from it."""
    model = distributed(network())
    optimizer = sgd(model)
    handle = tuned(model, EXACT)
    train(model, optimizer, rank, range(6))
    before = weights(model).clone()
    mean = before.clone()
    dist.all_reduce(mean)
    syncline.torch.Checkpoints(folder).save(6, model, optimizer, handle)
    same = same_everywhere(weights(model))
    train(model, optimizer, rank, range(6, 12))
    second = distributed(network(seed=1))
    other = sgd(second)
    again = tuned(second, EXACT)
    step, _ = syncline.torch.Checkpoints(folder).restore(second, other, again)
    resumed = weights(second).clone()
    train(second, other, rank, range(step, step + 4))
    result = {
        "apart": not same_everywhere(before), "same": same, "mean": float((resumed - mean / 2).norm()),
        "step": step, "met": [one.number for one in handle.steps if one.wire_bytes],
    }  # fmt: skip
    again.close()
    handle.close()
    return {**result, "resumed_same": same_everywhere(weights(second)), "went_on": same_everywhere(weights(model))}


def troubles(rank: int) -> dict[str, Any]:
    """A weight that is no number raises everywhere; skipped steps are a rank's own; FSDP2 and scalers are refused."""
    found: dict[str, Any] = {}
    model = distributed(network())
    optimizer = sgd(model)
    handle = tuned(model, Local(2, "int8"), nan="skip")
    start = weights(model).clone()
    if rank == 1:
        model.module[0].weight.register_hook(lambda gradient: gradient * float("nan"))
    train(model, optimizer, rank, range(1))
    found["skipped"] = bool(torch.equal(weights(model), start))
    if rank == 1:
        model.module[2].bias.data[3] = float("nan")
    train(model, optimizer, rank, range(1, 2))
    found["raised"] = _raised(lambda: train(model, optimizer, rank, range(2, 3)))
    handle.close()
    scaler = torch.amp.GradScaler("cpu")
    found["scaler"] = _raised(lambda: tuned(distributed(network()), EXACT, scaler=scaler, nan="skip"))
    found["levels"] = _raised(lambda: tuned(distributed(network()), EXACT, levels=(2,)))
    return found


def joins(rank: int) -> dict[str, Any]:
    """Inside model.join() no step is made alone: ranks meet as they enter it, and those with more batches go on."""
    model = distributed(network())
    optimizer = sgd(model)
    handle = tuned(model, EXACT)
    train(model, optimizer, rank, range(2))
    apart = not same_everywhere(weights(model))
    with model.join():
        train(model, optimizer, rank, range(2, 4 + rank))
    handle.close()
    return {"apart": apart, "same": same_everywhere(weights(model))}


def _raised(call: Any) -> str:
    try:
        call()
    except SynchronizationError as error:
        return f"{type(error).__name__}: {error.message}"
    return ""


def do_all(rank: int, port: int, folder: str) -> dict[str, Any]:
    """Run every case on one world."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=240))
    cases = (arithmetic, conserves, takes, safe_stays_together, accumulates, unused, joins)
    found = {case.__name__: case(rank) for case in cases}
    found["checkpoints"] = checkpoints(rank, folder)
    found["troubles"] = troubles(rank)
    dist.destroy_process_group()
    return found
