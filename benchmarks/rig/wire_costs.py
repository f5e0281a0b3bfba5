"""What the parts of a training step cost by themselves: a rank's own work, the codecs' stages, copies and messages."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from rig.cores import training
from rig.gpt import Batches, Gpt
from rig.predicted import Method
from syncline.program.overlap import StageCosts
from syncline.program.pieces import piece_bytes_on, piece_cuts
from syncline.runtime.rehearsal import stage_times
from syncline.runtime.sync.ddp import fit_buckets
from syncline.torch import synchronize


def made(task: dict[str, Any], device: torch.device) -> Gpt:
    """Return the model, made where it is used; the same on every rank."""
    torch.manual_seed(0)
    with device:
        return Gpt(**task.get("model", {}))


def wrap(model: torch.nn.Module, task: dict[str, Any]) -> Any:
    """Return the model in DDP; its ranks have made equal weights themselves."""
    return torch.nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=True, init_sync=False, bucket_cap_mb=task.get("bucket_mib")
    )


def costs(task: dict[str, Any], text: torch.Tensor, device: torch.device) -> dict[str, Any]:
    """Return what a step's parts cost by themselves: the work of all ranks bucket by bucket, and the codecs' stages.

    Work is told for DDP's own buckets and, where they differ, for those that the synchronised model has.
    """
    size = dist.get_world_size()
    known: dict[str, Any] = {"what": "costs", "codecs": {}}
    for name, fits in (("work", False), ("fitted_work", True)):
        rounds: list[Any] = [None] * size
        elements, own = own_work(task, text, device, fits=fits)
        dist.all_gather_object(rounds, own)
        known[name] = {**slowest(rounds), "elements": elements}
        known[f"{name}_alone_s"] = [alone_s(own) for own in rounds]
    for method in map(Method.of, task["methods"]):
        codec = method.codec
        largest = method.piece_bytes or piece_bytes_on(device.type)
        cuts = [piece_cuts(n, largest) for n in known["fitted_work"]["elements"]]
        known_sizes = {row[0] for row in known["codecs"].get(codec, ())}
        pieces = sorted({high - low for cut in cuts for low, high in itertools.pairwise(cut)} - known_sizes)
        if codec not in ("compute", "ddp") and "powersgd" not in codec:
            found: list[StageCosts] = stage_times(codec, pieces, size, 2, device)
            known["codecs"].setdefault(codec, []).extend(
                [n, s.send_s, s.reduce_s, s.collect_s] for n, s in zip(pieces, found, strict=True)
            )
    if device.type == "cuda":
        known |= {"copy_s": copy_s(device, max(known["work"]["elements"])), "post_s": post_s(device)}
    dist.barrier()
    return known


Round = tuple[float, list[float], float]
"""Seconds of forward, of each bucket's backward, of the optimizer."""


def slowest(rounds: list[list[Round]]) -> dict[str, Any]:
    """Return the work that steps wait for: at every bucket for the rank that comes last to it, then for the optimizer.

    In a step another rank may be last than in the one before, so it is looked for in each.
    """
    parts = []
    for ranks in zip(*rounds, strict=True):
        marks = [list(itertools.accumulate([forward, *backward])) for forward, backward, _ in ranks]
        last = [max(column) for column in zip(*marks, strict=True)]
        between = [after - before for before, after in itertools.pairwise(last)]
        parts.append([last[0], *between, max(optimizer for _, _, optimizer in ranks)])
    forward_s, *backward_s, optimizer_s = (statistics.median(column) for column in zip(*parts, strict=True))
    return {"forward_s": forward_s, "backward_s": backward_s, "optimizer_s": optimizer_s}


def alone_s(rounds: list[Round]) -> float:
    """Return what one rank's steps take it, where it waits for nobody."""
    return statistics.median(forward + sum(backward) + optimizer for forward, backward, optimizer in rounds)


class Crumbs(torch.nn.Module):
    """Many small parameters, each a bucket of its own."""

    NUM, SIZE = 40, 1 << 15

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ParameterList([torch.zeros(self.SIZE) for _ in range(self.NUM)])

    def forward(self) -> torch.Tensor:
        """Use every one."""
        return torch.stack([part.sum() for part in self.parts]).sum()


def post_s(device: torch.device) -> float:
    """Return what a message costs a rank beside its stages: a step of small buckets, less the stages they have."""
    times = []
    for codec in ("", "int8"):
        with device:
            model = Crumbs()
        cap = 4 * Crumbs.SIZE / 2**20
        wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=cap, gradient_as_bucket_view=True)
        handle = synchronize(wrapped, codec=codec, check_every=0) if codec else None
        if handle is None:
            wrapped.register_comm_hook(None, leave)
        found = []
        for _ in range(12):
            dist.barrier()
            began = time.perf_counter()
            wrapped().backward()
            if device.type == "cuda":
                torch.cuda.synchronize()
            found.append(time.perf_counter() - began)
        times.append(statistics.median(found[4:]))
        if handle is not None:
            handle.close()
    (stages,) = stage_times("int8", [Crumbs.SIZE], dist.get_world_size(), 2, device)
    each = (times[1] - times[0]) / Crumbs.NUM - stages.send_s - stages.reduce_s - stages.collect_s
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, each)
    return max(0.0, statistics.fmean(told)) / (2 * (dist.get_world_size() - 1))


def leave(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Leave a bucket as it is."""
    buffer = bucket.buffer()
    future: Any = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else [])
    future.set_result(buffer)
    return future


leave.__annotations__.clear()  # torch compares them with its own


def copy_s(device: torch.device, num_elements: int) -> float:
    """Return the seconds an element takes from the device to pinned memory and back, while all ranks copy."""
    there = torch.zeros(num_elements, device=device)
    here = torch.zeros(num_elements, pin_memory=True)
    times = []
    for _ in range(6):
        dist.barrier()
        began = time.perf_counter()
        here.copy_(there, non_blocking=True)
        torch.cuda.synchronize()
        there.copy_(here, non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:]) / num_elements


def own_work(
    task: dict[str, Any], text: torch.Tensor, device: torch.device, *, fits: bool
) -> tuple[list[int], list[Round]]:
    """Return the elements of each bucket and what some steps took, with nothing on a wire."""
    model = made(task, device)
    wrapped, marks = wrap(model, task), []
    if fits:
        fit_buckets(wrapped, piece_bytes_on(device.type))
    mark = _event if device.type == "cuda" else time.perf_counter

    def hook(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        marks.append((mark(), bucket.buffer().numel()))
        future: Any = torch.futures.Future(devices=[device] if device.type == "cuda" else [])
        future.set_result(bucket.buffer())
        return future

    hook.__annotations__.clear()
    wrapped.register_comm_hook(None, hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batches = Batches(text, dist.get_rank(), task["batch"], task["length"])
    found: list[Round] = []
    with training():
        for _ in range(10):
            dist.barrier()
            marks.clear()
            batch, times = batches.next().to(device), [mark()]
            loss = wrapped(batch)
            times.append(mark())
            loss.backward()
            times.append(mark())
            optimizer.step()
            optimizer.zero_grad()
            times.append(mark())
            cuts = [times[1], *(at for at, _ in marks)]
            parts = [_between(one, other) for one, other in itertools.pairwise(cuts)]
            parts[-1] += _between(cuts[-1], times[2])
            found.append((_between(*times[:2]), parts, _between(*times[2:])))
    return [n for _, n in marks], found[3:]


def _event() -> Any:
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _between(one: Any, other: Any) -> float:
    if isinstance(one, float):
        return float(other - one)
    other.synchronize()
    return float(one.elapsed_time(other)) / 1e3
