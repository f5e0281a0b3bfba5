"""What the parts of a training step cost by themselves: a rank's own work, the codecs' stages, copies and messages."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from rig.gpt import Batches, Gpt
from syncline.program.overlap import StageCosts
from syncline.program.pieces import piece_bytes_on, piece_cuts
from syncline.runtime.rehearsal import stage_times
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


def costs(task: dict[str, Any], text: torch.Tensor, device: torch.device) -> None:
    """Print what a step's parts cost by themselves: a rank's own work bucket by bucket, and the codecs' stages."""
    work = own_work(task, text, device)
    size = dist.get_world_size()
    codecs: dict[str, list[list[float]]] = {}
    for method in task["methods"]:
        codec, _, piece = (*method.split("/"), "", "")[:3]
        largest = int(piece) << 20 if piece.isdigit() else piece_bytes_on(device.type)
        cuts = [piece_cuts(n, largest) for n in work["elements"]]
        pieces = sorted({high - low for cut in cuts for low, high in itertools.pairwise(cut)})
        if codec not in ("compute", "ddp") and "powersgd" not in codec and codec not in codecs:
            found: list[StageCosts] = stage_times(codec, pieces, size, 2, device)
            codecs[codec] = [[n, s.send_s, s.reduce_s, s.collect_s] for n, s in zip(pieces, found, strict=True)]
    known: dict[str, Any] = {"what": "costs", "work": work, "codecs": codecs}
    if device.type == "cuda":
        known |= {"copy_s": copy_s(device, max(work["elements"])), "post_s": post_s(device)}
    if dist.get_rank() == 0:
        print(json.dumps(known), flush=True)
    dist.barrier()


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
        handle = synchronize(wrapped, codec=codec, transport="native", check_every=0) if codec else None
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


def own_work(task: dict[str, Any], text: torch.Tensor, device: torch.device) -> dict[str, Any]:
    """Return the seconds of forward, of each bucket's backward and of the optimizer, with nothing on a wire."""
    model = made(task, device)
    wrapped, marks = wrap(model, task), []
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
    found = []
    for _ in range(8):
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
    middle = sorted(found[3:], key=lambda row: row[0] + sum(row[1]))[2]
    return {
        "forward_s": middle[0],
        "backward_s": middle[1],
        "elements": [n for _, n in marks],
        "optimizer_s": middle[2],
    }


def _event() -> Any:
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _between(one: Any, other: Any) -> float:
    if isinstance(one, float):
        return float(other - one)
    other.synchronize()
    return float(one.elapsed_time(other)) / 1e3
