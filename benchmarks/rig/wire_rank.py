"""One rank of benchmarks/wire.py: what the first argument says, one JSON object a line from rank 0."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import resource
import socket
import statistics
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rig.cores import pace_s, settle, training
from rig.gpt import Batches, corpus
from rig.predicted import Method
from rig.wire_costs import costs, made, wrap
from syncline.codec.dense import Cast
from syncline.program.pieces import PIECE_BYTES, piece_cuts
from syncline.runtime.sync.exchange import ExchangePlace
from syncline.runtime.sync.native_exchange import NativeExchange
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.native_wire import NativeWire
from syncline.runtime.wire.team import Team, agreed_name
from syncline.torch import synchronize

HOST = torch.device("cpu")
SLOWER = 1.15
"""A turn is taken again where some rank's processor was so many times slower beside it than it can be."""


def main() -> None:
    """Do the task."""
    task = json.loads(sys.argv[1])
    if task["what"] in ("steps", "gpu"):
        settle()
    torch.set_num_threads(int(task.get("torch_threads", 1)))
    dist.init_process_group("gloo")
    parts = {"dense": dense, "steps": steps, "rails": rails, "cuts": cuts, "gpu": steps}
    parts[task["what"]](task)
    dist.barrier()


class Lanes:
    """A dense all-reduce over the wire: every piece of a buffer as a lane."""

    def __init__(self, wire: NativeWire, buffer: torch.Tensor, piece_bytes: int = PIECE_BYTES) -> None:
        self._pieces = []
        cuts = piece_cuts(buffer.numel(), piece_bytes)
        for number, (low, high) in enumerate(itertools.pairwise(cuts)):
            place = ExchangePlace(number + 1, 1, 1, wire.rank, lambda shard: 0)
            self._pieces.append(NativeExchange(buffer[low:high], None, Cast("fp32"), wire, place))
        self._number = 0

    def run(self) -> None:
        """Average the buffer in place."""
        step = Step(self._number, 0, "fp32", 0.0)
        self._number += 1
        for piece in self._pieces:
            piece.send(step)
        for piece in self._pieces:
            piece.receive()
        for piece in self._pieces:
            piece.collect()


def wire_of(variant: str = "") -> NativeWire:
    """Return the wire of all ranks; a variant begins with "threads/connections"."""
    names = ("SYNCLINE_WIRE_THREADS", "SYNCLINE_WIRE_CONNECTIONS")
    os.environ.update(zip(names, filter(None, variant.split("/")[:2]), strict=False))
    group: Any = dist.group.WORLD
    ranks = range(dist.get_world_size())
    return NativeWire(Team(agreed_name(group, HOST), ranks, dist.get_rank(), HOST, 300.0))


def dense(task: dict[str, Any]) -> None:
    """Time the all-reduce of a buffer over gloo, over the wire and (bytes only) over plain sockets, at each rate."""
    rank, size = dist.get_rank(), dist.get_world_size()
    buffer = torch.zeros(task["size_bytes"] // 4)
    wires = {f"wire {variant}".strip(): wire_of(variant) for variant in task.get("variants", [""])}
    pieces = {name: int(words[2]) << 20 for name in wires if len(words := name.split("/")) > 2}
    start = torch.arange(buffer.numel(), dtype=torch.float32).remainder_(1000.0)
    sockets = Sockets(rank, size, task["size_bytes"] // size)
    ways: dict[str, Any] = {"gloo": lambda: dist.all_reduce(buffer), "sockets": sockets.run}
    ways |= {name: Lanes(wire, buffer, pieces.get(name, PIECE_BYTES)).run for name, wire in wires.items()}
    due = float((start.double() + (size - 1) / 2).sum())
    for rate in task["rates_bps"]:
        shaped(rate)
        rows = _turns(ways, buffer, start, due, task["turns"])
        if rank == 0:
            for row in rows:
                print(json.dumps({**task, "rate_bps": rate, **row}), flush=True)
    for wire in wires.values():
        wire.close()


def _turns(
    ways: dict[str, Any], buffer: torch.Tensor, start: torch.Tensor, due: float, turns: int
) -> list[dict[str, Any]]:
    """Let every way carry the buffer in turns; returns a row of each."""
    rank, size = dist.get_rank(), dist.get_world_size()
    times: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    sums: dict[str, set[float]] = {name: set() for name in ways}
    for turn in range(turns + 2):
        for name, act in ways.items():
            buffer.copy_(start).add_(rank)
            dist.barrier()
            began, spent = time.perf_counter(), _spent()
            act()
            if turn >= 2:
                times[name].append(time.perf_counter() - began)
                cpu[name].append(tuple(after - before for before, after in zip(spent, _spent(), strict=True)))
            sums[name].add(float(buffer.double().sum()))
    right = all(sums[name] == {due} for name in ways if name.startswith("wire")) and len(sums["gloo"]) == 1
    told: list[Any] = [None] * size
    dist.all_gather_object(told, (times, cpu, right))
    rows = []
    for name in ways:
        slowest = [max(each[0][name][k] for each in told) for k in range(turns)]
        user, system, switches = (
            statistics.fmean(taken[k] for each in told for taken in each[1][name]) for k in range(3)
        )
        rows.append({"way": name, "median_s": statistics.median(slowest), "all_s": slowest, "cpu_s": user + system,
                     "user_s": user, "switches": switches,
                     "same_and_right": all(each[2] for each in told)})  # fmt: skip
    return rows


def _spent() -> tuple[float, float, float]:
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime, found.ru_stime, float(found.ru_nvcsw)


class Sockets:
    """The bytes of an all-reduce and nothing else: one TCP connection a pair, a thread each way, two halves."""

    def __init__(self, rank: int, size: int, shard_bytes: int) -> None:
        own = socket.create_server((os.environ["GLOO_ADDRESS"], 0))
        told: list[Any] = [None] * size
        dist.all_gather_object(told, own.getsockname())
        self._sockets = []
        for peer in range(rank):
            self._sockets.append(socket.create_connection(told[peer]))
        for _ in range(rank + 1, size):
            self._sockets.append(own.accept()[0])
        own.close()
        self._out = memoryview(bytearray(shard_bytes))
        self._in = [memoryview(bytearray(shard_bytes)) for _ in self._sockets]

    def run(self) -> None:
        """Send every peer a shard and receive one, twice."""
        for _ in range(2):
            threads = [threading.Thread(target=one.sendall, args=(self._out,)) for one in self._sockets]
            threads += [threading.Thread(target=_fill, args=pair) for pair in zip(self._sockets, self._in, strict=True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


def _fill(one: socket.socket, room: memoryview) -> None:
    at = 0
    while at < len(room):
        at += one.recv_into(room[at:], 0, socket.MSG_WAITALL)


def shaped(rate_bps: float | None) -> None:
    """Ask for cables of this rate, and wait until they are."""
    if dist.get_rank() == 0:
        print(json.dumps({"what": "shape", "rate_bps": rate_bps}), flush=True)
        sys.stdin.readline()
    dist.barrier()


def backend_Bps(device: torch.device) -> float:
    """Return what DDP's backend carries by its own threads' work: a few buckets at once, cables without a limit."""
    buckets = [torch.zeros(25 << 18, device=device) for _ in range(4)]
    times = []
    for _ in range(7):
        dist.barrier()
        began = time.perf_counter()
        for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            work.wait()
        if buckets[0].is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    size = dist.get_world_size()
    told: list[Any] = [None] * size
    dist.all_gather_object(told, statistics.median(times[2:]))
    return float(2 * (size - 1) / size * sum(4 * bucket.numel() for bucket in buckets) / max(told))


def steps(task: dict[str, Any]) -> None:
    """Time training steps of each method, in turns, at one rate after the other; rank 0 asks for each."""
    rank = dist.get_rank()
    device = torch.device(task.get("device", "cpu"))
    text = corpus()
    found = {**costs(task, text, device), "backend_Bps": backend_Bps(device)}
    if rank == 0:
        print(json.dumps(found), flush=True)
    usual = [float("inf")] * dist.get_world_size()
    for rate in task["rates_bps"]:
        shaped(rate)
        for number, method in itertools.product(range(task["rounds"]), task["methods"]):
            for attempt in range(1 + task["again"]):
                everyone: list[Any] = [None] * dist.get_world_size()
                dist.all_gather_object(everyone, train(method, text, {**task, "rate_bps": rate}, device))
                paces = [row["pace_s"] for row in everyone]
                usual = [min(pair) for pair in zip(usual, paces, strict=True)]
                slower = max(now / best for now, best in zip(paces, usual, strict=True))
                if rank == 0:
                    row = {"what": "turn", "rate_bps": rate, "round": number, "method": method, "attempt": attempt,
                           "slower": slower, "ranks": everyone}  # fmt: skip
                    print(json.dumps(row), flush=True)
                if slower < SLOWER:
                    break


def train(method: str, text: torch.Tensor, task: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Train a little with one method, and return what this rank's steps took."""
    model = made(task, device)
    wrapped = wrap(model, task)
    asked = Method.of(method)
    handle = None
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    if method not in ("ddp", "compute"):
        options: dict[str, Any] = {"piece_bytes": asked.piece_bytes} if asked.piece_bytes else {}
        options |= {"optimizer": optimizer} if asked.early else {}
        handle = synchronize(wrapped, codec=asked.codec, warmup=0, check_every=0, **options)
    batches = Batches(text, dist.get_rank(), task["batch"], task["length"])
    rows = []
    spent = 0.0
    with training():
        paces = [pace_s()]
        for number in range(task["warm_up"] + task["steps"]):
            if number == task["warm_up"]:
                dist.barrier()
                spent = time.process_time()
            moments = [time.perf_counter()]
            batch = batches.next().to(device)
            with wrapped.no_sync() if method == "compute" else torch.enable_grad():
                loss = wrapped(batch)
                if device.type == "cuda":
                    torch.cuda.synchronize()
                moments.append(time.perf_counter())
                loss.backward()
            moments.append(time.perf_counter())
            optimizer.step()
            optimizer.zero_grad()
            if device.type == "cuda":
                torch.cuda.synchronize()
            moments.append(time.perf_counter())
            rows.append([moments[-1] - moments[0], *(after - before for before, after in itertools.pairwise(moments))])
        cpu_s = (time.process_time() - spent) / task["steps"]
        paces.append(pace_s())
    checksum = float(sum(p.detach().double().sum() for p in model.parameters()))
    size = dist.get_world_size()
    dense = 8 * (size - 1) * sum(p.numel() for p in model.parameters()) // size
    found: dict[str, Any] = {"wire_bytes": dense if method == "ddp" else 0}
    if handle is not None:
        report = handle.report()
        found = {"wire_bytes": report.wire_bytes, "compute_s": report.compute_s, "exposed_s": report.exposed_s}
        handle.close()
        if dist.get_rank() == 0 and "out" in task:
            keep(handle.timeline(), task, method)
    dist.barrier()
    del wrapped, model, optimizer, handle
    gc.collect()
    parts = (statistics.median(column) for column in zip(*rows[task["warm_up"] :], strict=True))
    names = ("median_s", "forward_s", "backward_s", "optimizer_s")
    return {**dict(zip(names, parts, strict=True)), "all_s": [row[0] for row in rows[task["warm_up"] :]],
            "cpu_s": cpu_s, "pace_s": max(paces), **found,
            "checksum": 0.0 if method == "compute" else checksum}  # fmt: skip


def keep(timeline: Any, task: dict[str, Any], method: str) -> None:
    """Write the last step's spans: where the time goes between a gradient and the socket."""
    from syncline.timeline import save

    rate = f"{task['rate_bps'] / 1e9:g}" if task.get("rate_bps") else "unshaped"
    name = f"spans-{task['what']}-{rate}-{task.get('bucket_mib', 'own')}-{method.replace('/', '_')}.json"
    save(timeline, Path(task["out"], name))


def begun() -> None:
    """Say that all ranks have met and begin now."""
    dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps({"what": "begun"}), flush=True)


def rails(task: dict[str, Any]) -> None:
    """Average again and again while cables are pulled; every result is compared with what is due."""
    rank, size = dist.get_rank(), dist.get_world_size()
    buffer = torch.zeros(task["size_bytes"] // 4)
    wire = wire_of()
    lanes = Lanes(wire, buffer)
    start = torch.arange(buffer.numel(), dtype=torch.float32).remainder_(1000.0)
    wrong, times, number = 0, [], 0
    begun()
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


class News(logging.Handler):
    """What the wire said of its rails in the longest step so far and in the one before it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.longest: dict[str, Any] = {"seconds": 0.0, "before": [], "during": []}
        self._before: list[str] = []
        self._during: list[str] = []
        logging.getLogger("syncline").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self._during.append(record.getMessage())

    def step(self, times: list[float]) -> None:
        """A step is over; the first ones do not count."""
        if len(times) > 3 and times[-1] > self.longest["seconds"]:
            self.longest = {"seconds": times[-1], "before": self._before, "during": self._during}
        self._before, self._during = self._during, []


def cuts(task: dict[str, Any]) -> None:
    """Train a small model while cables are pulled: every step's time, and a checksum of the weights after it."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
    wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=1)
    handle = synchronize(wrapped, codec=task["codec"], warmup=0, check_every=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    times: list[float] = []
    checksums: list[int] = []
    told_of = News()
    begun()
    until, go_on = time.monotonic() + task["seconds"], torch.ones(1)
    while bool(go_on):
        batch = torch.randn(8, 512, generator=torch.Generator().manual_seed(100 * len(times) + rank))
        began = time.perf_counter()
        wrapped(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
        handle.lines()
        told_of.step(times)
        flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        checksums.append(zlib.crc32(flat.numpy().tobytes()))
        if len(times) % 5 == 0:
            goes_on = time.monotonic() < until and len(times) < task["most"]
            go_on = torch.tensor([float(goes_on)]) if rank == 0 else go_on
            dist.broadcast(go_on, 0)
    lines = handle.lines()
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, (times[3:], checksums, told_of.longest))
    handle.close()
    if rank == 0:
        row = {"steps": len(times), "median_s": statistics.median(told[0][0]),
               "longest_s": max(max(taken) for taken, *_ in told), "longest": [news for *_, news in told],
               "resent_frames": sum(line.resent_frames for line in lines),
               "resets": sum(line.num_resets for line in lines),
               "bytes_by_rail": [sum(line.sent_bytes for line in lines if line.rail == r) for r in range(2)],
               "replicas_equal": all(sums == told[0][1] for _, sums, _ in told), "checksums": told[0][1]}  # fmt: skip
        print(json.dumps({**task, **row}), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # threads of a backend that outlives its group must not hold the rank back
