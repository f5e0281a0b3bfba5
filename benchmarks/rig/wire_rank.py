"""One rank of benchmarks/wire.py: what the first argument says, one JSON object a line from rank 0."""

from __future__ import annotations

import gc
import itertools
import json
import os
import statistics
import sys
import time
import zlib
from typing import Any

import torch
import torch.distributed as dist

from rig.gpt import Batches, Gpt, corpus
from syncline.codec.names import scheme
from syncline.program.pieces import piece_cuts
from syncline.runtime.sync.exchange import Place
from syncline.runtime.sync.native_exchange import NativeExchange
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.native_wire import NativeWire
from syncline.runtime.wire.team import Team, agreed_name
from syncline.torch import synchronize

HOST = torch.device("cpu")


def main() -> None:
    """Do the task."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(int(task.get("torch_threads", 1)))
    dist.init_process_group("gloo")
    {"dense": dense, "steps": steps, "rails": rails, "cuts": cuts, "gpu": steps}[task["what"]](task)
    dist.barrier()


class Lanes:
    """A dense all-reduce over the wire: every piece of a buffer as a lane."""

    def __init__(self, wire: NativeWire, buffer: torch.Tensor, codec: str = "fp32") -> None:
        self._pieces = []
        cuts = piece_cuts(buffer.numel())
        for number, (low, high) in enumerate(itertools.pairwise(cuts)):
            place = Place(number + 1, 1, 1, wire.rank, lambda shard: 0)
            self._pieces.append(NativeExchange(buffer[low:high], None, scheme(codec), wire, place))
        self._number = 0

    def run(self) -> None:
        """Average the buffer in place."""
        step = Step(self._number, 0, "fp32", 0.0)
        self._number += 1
        for piece in self._pieces:
            piece.send(step)
        for piece in self._pieces:
            piece.reduce()
        for piece in self._pieces:
            piece.collect()


def wire_of() -> NativeWire:
    """Return the wire of all ranks."""
    group: Any = dist.group.WORLD
    ranks = range(dist.get_world_size())
    return NativeWire(Team(agreed_name(group, HOST), ranks, dist.get_rank(), HOST, 300.0))


def dense(task: dict[str, Any]) -> None:
    """Time the all-reduce of a buffer over gloo and over the wire, in turns."""
    rank, size = dist.get_rank(), dist.get_world_size()
    buffer = torch.zeros(task["size_bytes"] // 4)
    wire = wire_of()
    lanes = Lanes(wire, buffer)
    start = torch.arange(buffer.numel(), dtype=torch.float32).remainder_(1000.0)
    ways = {"gloo": lambda: dist.all_reduce(buffer), "wire": lanes.run}
    times: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    sums: dict[str, set[float]] = {name: set() for name in ways}
    for turn in range(task["turns"] + 2):
        for name, act in ways.items():
            buffer.copy_(start).add_(rank)
            dist.barrier()
            began, spent = time.perf_counter(), time.process_time()
            act()
            if turn >= 2:
                times[name].append(time.perf_counter() - began)
                cpu[name].append(time.process_time() - spent)
            sums[name].add(float(buffer.double().sum()))
    due = float((start.double() + (size - 1) / 2).sum())
    right = sums["wire"] == {due} and len(sums["gloo"]) == 1
    told: list[Any] = [None] * size
    dist.all_gather_object(told, (times, cpu, right))
    wire.close()
    if rank == 0:
        for name in ways:
            slowest = [max(each[0][name][k] for each in told) for k in range(task["turns"])]
            row = {"way": name, "median_s": statistics.median(slowest), "all_s": slowest,
                   "cpu_s": statistics.fmean(statistics.median(each[1][name]) for each in told),
                   "same_and_right": all(each[2] for each in told)}  # fmt: skip
            print(json.dumps({**task, **row}), flush=True)


def steps(task: dict[str, Any]) -> None:
    """Time training steps of each method, in turns."""
    rank = dist.get_rank()
    device = torch.device(task.get("device", "cpu"))
    text = corpus()
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(task["rounds"]):
        for method in task["methods"]:
            found.setdefault(method, []).append(train(method, text, task, device))
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, found)
    if rank == 0:
        for method in task["methods"]:
            rows = [[each[method][k] for each in told] for k in range(task["rounds"])]
            medians = [max(row["median_s"] for row in turn) for turn in rows]
            first = rows[0][0]
            same = all(len({row["checksum"] for row in turn}) == 1 for turn in rows)
            print(json.dumps({**task, "method": method, "median_s": statistics.median(medians), "all_s": medians,
                              "forward_s": first["forward_s"], "wire_bytes": first["wire_bytes"],
                              "cpu_s": first["cpu_s"], "same_bits": same}), flush=True)  # fmt: skip


def train(method: str, text: torch.Tensor, task: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Train a little with one method: "ddp", "compute", or "codec" or "codec/transport" of syncline."""
    torch.manual_seed(0)
    model = Gpt(**task.get("model", {})).to(device)
    wrapped: Any = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    codec, _, transport = method.partition("/")
    handle = None
    if method not in ("ddp", "compute"):
        handle = synchronize(wrapped, codec=codec, transport=transport or "auto", warmup=0, check_every=0)
    batches = Batches(text, dist.get_rank(), task["batch"], task["length"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    times, forwards = [], []
    spent = 0.0
    for number in range(task["warm_up"] + task["steps"]):
        if number == task["warm_up"]:
            dist.barrier()
            spent = time.process_time()
        began = time.perf_counter()
        batch = batches.next().to(device)
        with wrapped.no_sync() if method == "compute" else torch.enable_grad():
            loss = wrapped(batch)
            if device.type == "cuda":
                torch.cuda.synchronize()
            forwards.append(time.perf_counter() - began)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    cpu_s = (time.process_time() - spent) / task["steps"]
    checksum = float(sum(p.detach().double().sum() for p in model.parameters()))
    wire_bytes = 0
    if handle is not None:
        wire_bytes = handle.report().wire_bytes
        handle.close()
    dist.barrier()
    del wrapped, model, optimizer, handle
    gc.collect()
    kept = times[task["warm_up"] :]
    return {"median_s": statistics.median(kept), "forward_s": statistics.median(forwards[task["warm_up"] :]),
            "cpu_s": cpu_s, "wire_bytes": wire_bytes, "checksum": 0.0 if method == "compute" else checksum}  # fmt: skip


def rails(task: dict[str, Any]) -> None:
    """Average again and again while cables are pulled; every result is compared with what is due."""
    rank, size = dist.get_rank(), dist.get_world_size()
    buffer = torch.zeros(task["size_bytes"] // 4)
    wire = wire_of()
    lanes = Lanes(wire, buffer)
    start = torch.arange(buffer.numel(), dtype=torch.float32).remainder_(1000.0)
    wrong, times, number = 0, [], 0
    until = time.monotonic() + task["seconds"]
    go_on = torch.ones(1)
    while bool(go_on):
        buffer.copy_(start).add_(rank + number % 7)
        began = time.perf_counter()
        lanes.run()
        times.append(time.perf_counter() - began)
        wrong += int((buffer != start + ((size - 1) / 2 + number % 7)).sum())
        number += 1
        if number % 10 == 0:
            go_on = torch.tensor([float(time.monotonic() < until)]) if rank == 0 else go_on
            dist.broadcast(go_on, 0)
    lines = wire.lines()
    row = {"rank": rank, "rounds": number, "wrong_elements": wrong, "median_s": statistics.median(times),
           "longest_s": max(times), "resent_frames": sum(line.resent_frames for line in lines),
           "resets": sum(line.num_resets for line in lines),
           "bytes_by_rail": [sum(line.sent_bytes for line in lines if line.rail == r) for r in range(2)]}  # fmt: skip
    told: list[Any] = [None] * size
    dist.all_gather_object(told, row)
    wire.close()
    if rank == 0:
        print(json.dumps({**task, "ranks": told}), flush=True)


def cuts(task: dict[str, Any]) -> None:
    """Train a small model while cables are pulled: every step's time, and a checksum of the weights after it."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
    wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=1)
    handle = synchronize(wrapped, codec=task["codec"], transport="native", warmup=0, check_every=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    times: list[float] = []
    checksums: list[int] = []
    until, go_on = time.monotonic() + task["seconds"], torch.ones(1)
    while bool(go_on):
        batch = torch.randn(8, 512, generator=torch.Generator().manual_seed(100 * len(times) + rank))
        began = time.perf_counter()
        wrapped(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
        flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        checksums.append(zlib.crc32(flat.numpy().tobytes()))
        if len(times) % 5 == 0:
            goes_on = time.monotonic() < until and len(times) < task["most"]
            go_on = torch.tensor([float(goes_on)]) if rank == 0 else go_on
            dist.broadcast(go_on, 0)
    lines = handle.lines()
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, (times[3:], checksums))
    handle.close()
    if rank == 0:
        row = {"steps": len(times), "median_s": statistics.median(told[0][0]),
               "longest_s": max(max(taken) for taken, _ in told),
               "resent_frames": sum(line.resent_frames for line in lines),
               "resets": sum(line.num_resets for line in lines),
               "bytes_by_rail": [sum(line.sent_bytes for line in lines if line.rail == r) for r in range(2)],
               "replicas_equal": all(sums == told[0][1] for _, sums in told), "checksums": told[0][1]}  # fmt: skip
        print(json.dumps({**task, **row}), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # threads of a backend that outlives its group must not hold the rank back
