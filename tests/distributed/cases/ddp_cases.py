"""What ranks do in the tests of DDP: each case is one function, run on every rank of one world."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.early_cases import early, fitted
from tests.distributed.cases.training import (
    QUIET,
    SMALL,
    Branches,
    batch,
    carried_by,
    distributed,
    gradients,
    network,
    owed,
    same_everywhere,
    start,
    true_mean,
    weights,
)
from torch.nn.parallel import DistributedDataParallel

import syncline.torch
from syncline.codec.names import scheme
from syncline.errors import SynchronizationError
from syncline.program.overlap import ExchangeCosts, SharedMachine, Work
from syncline.sim.emulate.emulated_step import step_timeline
from syncline.sim.emulate.emulation import HostCosts, HostLinks
from syncline.timeline import SpanKind, Timeline, load, save

CODECS = ("fp32", "bf16", "fp16", "int8", "int8:block=64", "int4", "sign", "powersgd:rank=1", "powersgd:rank=4")
OWING = ("int4", "sign", "powersgd:rank=1", "powersgd:rank=3")


def averages(rank: int) -> dict[str, Any]:
    """Every codec, several buckets, a rebuild: how far from the mean, and whether replicas agree."""
    result = {}
    for codec in CODECS:
        model = distributed(network())
        handle = syncline.torch.synchronize(model, codec=codec, **QUIET)
        errors, same = [], True
        for step in range(3):
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            got, expected = gradients(model), true_mean(network(), step, range(4))
            errors.append(float((got - expected).norm() / expected.norm()))
            same = same and same_everywhere(got)
        buckets = len(handle.steps[-1].ready)
        handle.close()
        result[codec] = {"errors": errors, "same": same, "buckets": buckets, "first": len(handle.steps[0].ready)}
    return result


def conserves(rank: int) -> dict[str, float]:
    """What was received plus what is owed is the sum of the true means: nothing is lost, also over a rebuild."""
    result = {}
    for codec in OWING:
        model = distributed(network(), gradient_as_bucket_view=True)
        handle = syncline.torch.synchronize(model, codec=codec, **QUIET)
        got = torch.zeros_like(weights(model))
        expected = torch.zeros_like(got)
        for step in range(5):
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            got += gradients(model)
            expected += true_mean(network(), step, range(4))
        total = got + owed(handle, model.module)
        handle.close()
        result[codec] = float((total - expected).norm() / expected.norm())
    return result


def unused(rank: int) -> dict[str, Any]:
    """A branch that only some ranks take, and one that nobody takes."""

    def run(turn_on: bool) -> tuple[dict[str, torch.Tensor], Any]:
        model = distributed(Branches(), find_unused_parameters=True)
        handle = syncline.torch.synchronize(model, codec="fp32", **QUIET) if turn_on else None
        for step in range(3):
            model.zero_grad()
            model(batch(rank, step), take=rank % 2 == 0).square().sum().backward()
        found = {n: p.grad.clone() for n, p in model.module.named_parameters() if p.grad is not None}
        if handle:
            handle.close()
        return found, None

    mine, plain = run(True)[0], run(False)[0]
    close = {name: float((mine[name] - plain[name]).abs().max()) for name in plain}
    return {"names": sorted(mine), "plain": sorted(plain), "close": max(close.values())}


def join(rank: int) -> dict[str, Any]:
    """Ranks with unlike numbers of batches: those that end early shadow the others."""

    def run(codec: str | None) -> torch.Tensor:
        model = distributed(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = syncline.torch.synchronize(model, codec=codec, **SMALL) if codec else None
        with model.join():
            for step in range(3 + rank):
                optimizer.zero_grad()
                model(batch(rank, step)).square().mean().backward()
                optimizer.step()
        if handle:
            handle.close()
        return weights(model)

    plain = run(None)
    distance = {codec: float((run(codec) - plain).norm() / plain.norm()) for codec in ("fp32", "int8", "sign")}
    return {"distance": distance}


def accumulation(rank: int) -> float:
    """`no_sync` gives what it gives with plain DDP."""

    def run(plain: bool) -> torch.Tensor:
        model = distributed(network())
        handle = None if plain else syncline.torch.synchronize(model, codec="fp32", **QUIET)
        for step in range(6):
            if step % 3 == 0:
                model.zero_grad()
            with model.no_sync() if step % 3 != 2 else torch.enable_grad():
                model(batch(rank, step)).square().mean().backward()
        if handle:
            assert len(handle.steps) == 2
            handle.close()
        return gradients(model)

    expected = run(plain=True)
    return float((run(plain=False) - expected).norm() / expected.norm())


def half_precision(rank: int) -> dict[str, Any]:
    """Gradients of bfloat16 and float16, beside float32 ones, are averaged in float32 and go back in their type."""
    result = {}
    for dtype in (torch.bfloat16, torch.float16):
        half = network().to(dtype)
        half[4].float()
        model = distributed(half)
        handle = syncline.torch.synchronize(model, codec="int8", **QUIET)
        for step in range(2):
            model.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                model(batch(rank, step).to(dtype)).float().square().mean().backward()
        kinds = {p.grad.dtype for p in model.parameters() if p.grad is not None}
        result[str(dtype)] = {"dtypes": sorted(map(str, kinds)), "same": same_everywhere(gradients(model))}
        handle.close()
    return result


def scaler(rank: int) -> dict[str, Any]:
    """One rank overflows once: every rank skips that step, the scale falls, residuals follow it and stay finite."""
    model = distributed(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    grad_scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10_000)
    handle = syncline.torch.synchronize(model, codec="sign", scaler=grad_scaler, **QUIET)
    changed, scales, owing = [], [], []
    for step in range(4):
        before = weights(model).clone()
        optimizer.zero_grad()
        loss = model(batch(rank, step)).square().mean()
        loss = loss * float("inf") if step == 2 and rank == 1 else loss
        grad_scaler.scale(loss).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()
        changed.append(not torch.equal(before, weights(model)))
        scales.append(grad_scaler.get_scale())
        owing.append(float(owed(handle, model.module).norm()))
    same, skipped = same_everywhere(weights(model)), [step.skipped for step in handle.steps]
    handle.close()
    return {"changed": changed, "scales": scales, "same": same, "skipped": skipped, "owing": owing}


def compiled(rank: int) -> dict[str, Any]:
    """torch.compile around DDP, and DDP around torch.compile."""
    result = {}
    for order in ("outside", "inside"):
        torch._dynamo.reset()
        if order == "outside":
            model: Any = torch.compile(DistributedDataParallel(network()), backend="aot_eager")
        else:
            model = DistributedDataParallel(torch.compile(network(), backend="aot_eager"))
        handle = syncline.torch.synchronize(model, codec="fp32", **QUIET)
        for step in range(3):
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
        expected = true_mean(network(), 2, range(4))
        result[order] = float((gradients(model) - expected).norm() / expected.norm())
        result[f"{order} steps"] = len(handle.steps)
        handle.close()
    return result


def several_models(rank: int) -> dict[str, float]:
    """Two models in one process, their steps interleaved, each with its codec."""
    models = [distributed(network(seed)) for seed in (0, 1)]
    handles = [
        syncline.torch.synchronize(model, codec=codec, **SMALL)
        for model, codec in zip(models, ("fp32", "int8"), strict=True)
    ]
    for step in range(3):
        for model in models:
            model.zero_grad()
        losses = [model(batch(rank, step)).square().sum() for model in models]
        for loss in losses[:: -1 if step % 2 else 1]:
            loss.backward()
    errors = {}
    for seed, model in enumerate(models):
        expected = true_mean(network(seed), 2, range(4))
        errors[str(seed)] = float((gradients(model) - expected).norm() / expected.norm())
    for handle in handles:
        handle.close()
    return errors


def part_of_the_world(rank: int) -> dict[str, Any]:
    """Two halves of the world, each with a model and a group of its own."""
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = halves[rank // 2]
    model = distributed(network(), process_group=group)
    handle = syncline.torch.synchronize(model, codec="fp32", **QUIET)
    for step in range(2):
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
    members = [0, 1] if rank < 2 else [2, 3]
    expected = true_mean(network(), 1, members)
    handle.close()
    return {"error": float((gradients(model) - expected).norm() / expected.norm()), "ranks": handle.num_ranks}


def resume_elsewhere(rank: int) -> dict[str, float]:
    """Four ranks train and save; two take it over: what was owed is still paid."""
    model = distributed(network())
    handle = syncline.torch.synchronize(model, codec="sign", **QUIET)
    got, expected = torch.zeros_like(weights(model)), torch.zeros_like(weights(model))
    for step in range(3):
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
        got += gradients(model)
        expected += true_mean(network(), step, range(4))
    saved = handle.state_dict()
    handle.close()
    pair = dist.new_group([0, 1])
    if rank > 1:
        return {}
    smaller = distributed(network(), process_group=pair)
    second = syncline.torch.synchronize(smaller, codec="sign", **QUIET)
    second.load_state_dict(saved)
    first_number = None
    for step in range(3, 6):
        smaller.zero_grad()
        smaller(batch(rank, step)).square().sum().backward()
        first_number = second.steps[-1].number if first_number is None else first_number
        got += gradients(smaller)
        expected += true_mean(network(), step, range(2))
    total = got + owed(second, smaller.module)
    second.close()
    assert first_number is not None
    return {"error": float((total - expected).norm() / expected.norm()), "step": first_number}


def local_state(rank: int) -> dict[str, Any]:
    """This rank's own state comes back exactly, and is refused by another rank."""
    model = distributed(network())
    handle = syncline.torch.synchronize(model, codec="powersgd:rank=2", **QUIET)
    for step in range(3):
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
    saved = handle.state_dict(local=True)
    handle.close()
    other = distributed(network())
    second = syncline.torch.synchronize(other, codec="powersgd:rank=2", **QUIET)
    second.load_state_dict(saved)
    other.zero_grad()
    again = second.state_dict(local=True)
    same = all(torch.equal(again["residuals"][name], part) for name, part in saved["residuals"].items())
    refused = ""
    try:
        second.load_state_dict({**saved, "local_to": (rank + 1) % 4})
    except SynchronizationError as error:
        refused = str(error)
    second.close()
    return {"same": same, "factors": sorted(again["factors"]), "refused": refused}


def turned_off(rank: int) -> dict[str, float]:
    """After close() the model averages as plain DDP."""
    model = distributed(network())
    handle = syncline.torch.synchronize(model, codec="sign", **QUIET)
    for step in range(4):
        if step == 2:
            handle.close()
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
    expected = true_mean(network(), 3, range(4))
    return {"error": float((gradients(model) - expected).norm() / expected.norm()), "steps": len(handle.steps)}


def measured(rank: int) -> dict[str, Any]:
    """The report, the line and the timeline of a step."""
    model = distributed(network())
    handle = syncline.torch.synchronize(model, codec="int8", **SMALL)
    for step in range(4):
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
    report, timeline = handle.report(), handle.timeline()
    path = Path(tempfile.gettempdir()) / f"step-{rank}-{os.getpid()}.json.gz"
    save(timeline, path)
    same = load(path) == timeline
    path.unlink()
    handle.close()
    return {
        "report": report.to_json(), "line": handle.summary(), "saved": same, "spans": sorted(set(timeline.names)),
        "source": timeline.source.label(), "elements": weights(model).numel(),
    }  # fmt: skip


def work_of(timeline: Timeline, rank: int, keys: list[str]) -> Counter[tuple[str | int, ...]]:
    """Count this rank's spans of one name, kind and `keys`."""
    kinds = (SpanKind.ENCODE, SpanKind.REDUCE, SpanKind.DECODE, SpanKind.RECV)
    spans = timeline.spans
    rows = [row for row in range(len(spans)) if spans.rank[row] == rank and spans.kind[row] in kinds]
    return Counter(
        (timeline.names[spans.name[row]], int(spans.kind[row]), *(int(spans.column(key)[row]) for key in keys))
        for row in rows
    )


def as_programmed(rank: int) -> dict[str, Any]:
    """What ran, beside the predicted Timeline of the same program: which spans have no partner in the other."""
    result = {}
    ways: list[tuple[str, dict[str, Any]]] = [("point-to-point", {}), ("native", {}), ("native", {"levels": (2,)})]
    for name, (carrier, way) in zip(("gloo", "native", "levels"), ways, strict=True):
        model = distributed(network())
        with carried_by(carrier):
            handle = syncline.torch.synchronize(model, codec="int8", **QUIET, **way)
        for step in range(3):
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
        programs, measured = handle.program(), handle.timeline()
        report = handle.report()
        handle.close()
        work = Work(0.1, (0.01,) * len(programs), tuple(program.elements for program in programs), 0.1)
        how = ExchangeCosts("int8", scheme("int8"), 1e-9, 1e-9, QUIET["piece_bytes"],
                        levels=way.get("levels", ()), dense_s=1e-9)  # fmt: skip
        paths = {(a, b): (2 * a, 2 * b + 1) for a in range(4) for b in range(4) if a != b}
        wiring = HostLinks.of([1e9] * 8, paths, range(4))
        predicted = step_timeline(work, how, wiring, SharedMachine(4.0, 0.0, 1e-5), HostCosts())
        keys = [key for key in ("step", "round", "peer")
                if all((timeline.spans.column(key) >= 0).any() for timeline in (predicted, measured))]  # fmt: skip
        first, second = (work_of(timeline, rank, keys) for timeline in (predicted, measured))
        alone = (first - second) + (second - first)
        sent = sum(program.sent_bytes(rank) for program in programs)
        result[name] = {"alone": sorted({key[0] for key in alone}), "pairs": (first & second).total(), "keys": keys,
                        "more_bytes": (report.wire_bytes + report.inside_bytes) / sent - 1}  # fmt: skip
    return result


def collectives(rank: int) -> dict[str, Any]:
    """Through a backend's own collectives the result is the same, bit for bit."""
    results = []
    for carrier in ("point-to-point", "collectives"):
        model = distributed(network())
        with carried_by(carrier):
            handle = syncline.torch.synchronize(model, codec="sign", **QUIET)
        for step in range(3):
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
        results.append(gradients(model).clone())
        handle.close()
    return {"equal": torch.equal(*results)}


def two_levels(rank: int) -> dict[str, Any]:
    """Pairs are hosts: dense inside, compressed across."""
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    result = {}
    for codec in ("fp32", "int8", "sign", "powersgd:rank=2"):
        model = distributed(network())
        handle = syncline.torch.synchronize(model, codec=codec, levels="host", **QUIET)
        got, expected = torch.zeros_like(weights(model)), torch.zeros_like(weights(model))
        for step in range(3):
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            got += gradients(model)
            expected += true_mean(network(), step, range(4))
        last = true_mean(network(), 2, range(4))
        if handle.settings.keeps_error(handle.settings.codec):
            got += owed(handle, model.module)
        report = handle.steps[-1].report(1.0)
        result[codec] = {
            "error": float((gradients(model) - last).norm() / last.norm()), "same": same_everywhere(gradients(model)),
            "conserved": float((got - expected).norm() / expected.norm()),
            "across": report.wire_bytes, "inside": report.inside_bytes,
        }  # fmt: skip
        handle.close()
    return result


def warm_up(rank: int) -> dict[str, Any]:
    """The first steps send int8, whatever the codec."""
    model = distributed(network())
    handle = syncline.torch.synchronize(model, codec="sign", **{**QUIET, "warmup": 2})
    said = []
    for step in range(4):
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
        handle.begin()
        said.append(handle.summary().partition("; warming up: ")[2])
    codecs = [step.codec for step in handle.steps]
    saved = handle.state_dict()
    handle.close()
    resumed = distributed(network())
    again = syncline.torch.synchronize(resumed, codec="sign", **{**QUIET, "warmup": 5})
    again.load_state_dict(saved)
    for step in range(2):
        resumed.zero_grad()
        resumed(batch(rank, step)).square().sum().backward()
    codecs += [step.codec for step in again.steps]
    again.close()
    return {"codecs": codecs, "said": said}


CASES: tuple[Callable[[int], object], ...] = (
    averages, conserves, unused, join, accumulation, half_precision, scaler, compiled, several_models,
    part_of_the_world, resume_elsewhere, local_state, turned_off, measured, as_programmed, early, fitted, collectives,
    two_levels, warm_up,
)  # fmt: skip


def do_all(rank: int, port: int) -> dict[str, Any]:
    """Run every case in one world and return what each found."""
    start(rank, 4, port)
    results = {}
    for case in CASES:
        results[case.__name__] = case(rank)
    dist.destroy_process_group()
    return results
