"""Training steps on one GPU, each with a planted fault and without it, traced by torch.profiler.

    python gpu_script.py OUT [NAME...]      # writes OUT/NAME.planted.json.gz, OUT/NAME.fixed.json.gz and OUT/times.json

Nothing but torch is needed; a case takes less than half a minute. The faults of the first six: a stall in Python, a
value read in the middle of the step, a loader that is late, copies on the stream that computes, a section of small
kernels, and copies from pageable memory. Of the others: work of Python between forward and backward, gradients read one
by one, one worker that is too slow, a compute stream that waits for each copy, an optimizer that goes through its
parameters, and a cache that is emptied.
"""

# mypy: disable-error-code="no-untyped-call,arg-type,index,no-any-return"
from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WIDTH, ROWS, LAYERS = (8192, 8192, 6) if DEVICE.type == "cuda" else (256, 64, 3)
STEPS, WARM = 4, 3
Step = Callable[[], None]


def blocks() -> nn.Sequential:
    """Return wide layers on the device."""
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)]
    return nn.Sequential(*layers).to(DEVICE, torch.bfloat16)


class Trained:
    """A model, its optimizer and one batch on the device."""

    def __init__(self) -> None:
        self.model = blocks()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(ROWS, WIDTH, device=DEVICE, dtype=torch.bfloat16)

    def forward_backward(self, batch: torch.Tensor | None = None) -> torch.Tensor:
        loss = self.model(self.batch if batch is None else batch).float().square().mean()
        loss.backward()
        return loss

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def stall(planted: bool) -> Step:
    """Plants 25 ms of Python between backward and optimizer, longer than the device has work for."""
    trained = Trained()

    def one() -> None:
        loss = trained.forward_backward()
        loss.item()
        if planted:
            time.sleep(0.025)
        trained.update()

    return one


def read_value(planted: bool) -> Step:
    """Plants a value that the host reads after every one of 400 small layers."""
    wide = 1024 if DEVICE.type == "cuda" else 64
    small = nn.Sequential(*[nn.Linear(wide, wide) for _ in range(400)]).to(DEVICE, torch.bfloat16)
    batch = torch.randn(4 * wide, wide, device=DEVICE, dtype=torch.bfloat16)

    def one() -> None:
        found = batch
        with torch.no_grad():
            for layer in small:
                found = layer(found)
                if planted and found.flatten()[0].item() > 1e9:
                    break
            found.sum().item()

    return one


class SlowRows(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of a batch that each take a while to prepare."""

    def __init__(self, took_s: float) -> None:
        self.took_s = took_s

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.took_s)
        return torch.full((WIDTH,), float(index % 7))


def loaded(row_s: float, workers: dict[str, Any]) -> Step:
    """Return a step that begins with a batch of 30 rows, each of which takes a loader so long."""
    trained = Trained()
    rows = iter(torch.utils.data.DataLoader(SlowRows(row_s), batch_size=30, **workers))

    def one() -> None:
        fresh = next(rows).to(DEVICE, torch.bfloat16)
        trained.batch[: len(fresh)] = fresh
        trained.forward_backward()
        trained.update()
        torch.cuda.synchronize() if DEVICE.type == "cuda" else None

    return one


def loader(planted: bool) -> Step:
    """Plants a loader without workers that needs 30 ms a batch; mended, four workers prefetch it."""
    return loaded(0.001, {} if planted else {"num_workers": 4, "prefetch_factor": 4, "persistent_workers": True})


def stream_order(planted: bool) -> Step:
    """Plants copies to the host on the stream that computes; mended, they run on a stream of their own."""
    trained = Trained()
    sink = [torch.empty(WIDTH, WIDTH, dtype=torch.bfloat16, pin_memory=DEVICE.type == "cuda") for _ in range(LAYERS)]
    if DEVICE.type != "cuda":
        return lambda: trained.update() if trained.forward_backward() is None else None
    side = torch.cuda.Stream()

    def one() -> None:
        trained.forward_backward()
        for block, kept in zip(trained.model, sink, strict=True):
            weight = block[0].weight
            if planted:
                kept.copy_(weight.detach(), non_blocking=True)
                continue
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                kept.copy_(weight.detach(), non_blocking=True)
        trained.forward_backward()
        torch.cuda.current_stream().wait_stream(side)
        trained.update()

    return one


def small_kernels(planted: bool) -> Step:
    """Plants 2,000 kernels on a tensor of 4 KiB, launched one by one; mended, they are one CUDA graph."""
    trained = Trained()
    state = torch.ones(1024, device=DEVICE)

    def section() -> None:
        for _ in range(1000):
            state.mul_(1.0001)
            state.add_(1e-6)

    graph = None
    if not planted and DEVICE.type == "cuda":
        section()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            section()

    def one() -> None:
        trained.forward_backward()
        graph.replay() if graph is not None else section()
        trained.update()
        torch.cuda.synchronize() if DEVICE.type == "cuda" else None

    return one


def pageable(planted: bool) -> Step:
    """Plants copies of the next batch from pageable memory, which block; mended, it is pinned and copied beside."""
    trained = Trained()
    host = torch.randn(ROWS, WIDTH).to(torch.bfloat16)
    host = host.pin_memory() if not planted and DEVICE.type == "cuda" else host
    if DEVICE.type != "cuda":
        return lambda: trained.update() if trained.forward_backward() is None else None
    side, waiting = torch.cuda.Stream(), torch.empty_like(trained.batch)

    def one() -> None:
        trained.forward_backward()
        if planted:
            waiting.copy_(host)
        else:
            with torch.cuda.stream(side):
                waiting.copy_(host, non_blocking=True)
        trained.forward_backward()
        torch.cuda.current_stream().wait_stream(side)
        trained.update()

    return one


def python_work(planted: bool) -> Step:
    """Plants 20 ms of Python between the forward and the backward pass, which reads the loss first."""
    trained = Trained()

    def one() -> None:
        loss = trained.model(trained.batch).float().square().mean()
        if planted:
            loss.item()
            until = time.perf_counter() + 0.020
            while time.perf_counter() < until:
                sum(range(1000))
        loss.backward()
        trained.update()
        torch.cuda.synchronize() if DEVICE.type == "cuda" else None

    return one


def gradient_norms(planted: bool) -> Step:
    """Plants the norm of each of 300 gradients, read one by one; mended, they stay on the device."""
    wide = 1024 if DEVICE.type == "cuda" else 64
    model = nn.Sequential(*[nn.Linear(wide, wide, bias=False) for _ in range(300)]).to(DEVICE, torch.bfloat16)
    batch = torch.randn(4 * wide, wide, device=DEVICE, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def one() -> None:
        model(batch).float().square().mean().backward()
        norms = [weight.grad.norm() for weight in model.parameters() if weight.grad is not None]
        if planted:
            largest = max(norm.item() for norm in norms)
            if largest > 1e30:
                return
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize() if DEVICE.type == "cuda" else None

    return one


def slow_worker(planted: bool) -> Step:
    """Plants one worker that needs 60 ms a batch; mended, there are eight."""
    return loaded(0.002, {"num_workers": 1 if planted else 8, "prefetch_factor": 2, "persistent_workers": True})


def waits_for_copies(planted: bool) -> Step:
    """Plants a compute stream that waits for each copy to the host at once; mended, it waits before the optimizer."""
    trained = Trained()
    sink = [torch.empty(WIDTH, WIDTH, dtype=torch.bfloat16, pin_memory=DEVICE.type == "cuda") for _ in range(LAYERS)]
    if DEVICE.type != "cuda":
        return lambda: trained.update() if trained.forward_backward() is None else None
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()

    def one() -> None:
        trained.forward_backward()
        for block, kept in zip(trained.model, sink, strict=True):
            side.wait_stream(main)
            with torch.cuda.stream(side):
                kept.copy_(block[0].weight.detach(), non_blocking=True)
            if planted:
                main.wait_stream(side)
        trained.forward_backward()
        main.wait_stream(side)
        trained.update()

    return one


def optimizer_loop(planted: bool) -> Step:
    """Plants AdamW that updates 1,200 small parameters one by one; mended, it is fused."""
    trained = Trained()
    small = [nn.Parameter(torch.randn(64, 64, device=DEVICE)) for _ in range(1200)]
    optimizer = torch.optim.AdamW(small, lr=1e-4, foreach=False, fused=not planted and DEVICE.type == "cuda")
    for weight in small:
        weight.grad = torch.randn_like(weight)

    def one() -> None:
        trained.forward_backward()
        trained.update()
        optimizer.step()
        torch.cuda.synchronize() if DEVICE.type == "cuda" else None

    return one


def emptied_cache(planted: bool) -> Step:
    """Plants `torch.cuda.empty_cache()` before the backward pass and the optimizer."""
    trained = Trained()

    def one() -> None:
        loss = trained.model(trained.batch).float().square().mean()
        torch.cuda.empty_cache() if planted and DEVICE.type == "cuda" else None
        loss.backward()
        torch.cuda.empty_cache() if planted and DEVICE.type == "cuda" else None
        trained.update()
        torch.cuda.synchronize() if DEVICE.type == "cuda" else None

    return one


CASES = {
    "stall": stall,
    "read-value": read_value,
    "loader": loader,
    "stream-order": stream_order,
    "small-kernels": small_kernels,
    "pageable": pageable,
    "python-work": python_work,
    "gradient-norms": gradient_norms,
    "slow-worker": slow_worker,
    "waits-for-copies": waits_for_copies,
    "optimizer-loop": optimizer_loop,
    "emptied-cache": emptied_cache,
}


def timed(step: Step) -> float:
    """Return the median step without the profiler."""
    for _ in range(WARM):
        step()
    found = []
    for _ in range(8):
        torch.cuda.synchronize() if DEVICE.type == "cuda" else None
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize() if DEVICE.type == "cuda" else None
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def traced(step: Step, path: Path) -> None:
    """Write a trace of four steps."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if DEVICE.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    schedule = torch.profiler.schedule(wait=1, warmup=2, active=STEPS)
    options = {"activities": activities, "schedule": schedule, "record_shapes": True, "with_stack": True}
    with torch.profiler.profile(**options) as profiler:
        for _ in range(3 + STEPS):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(path))


def main(folder: str, *names: str) -> None:
    """Trace cases, all of them if none is named, planted and fixed."""
    out, times = Path(folder), {}
    out.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        if names and name not in names:
            continue
        for word, planted in (("planted", True), ("fixed", False)):
            step = case(planted)
            times[f"{name}.{word}"] = timed(step)
            traced(step, out / f"{name}.{word}.json.gz")
            del step
            torch.cuda.empty_cache() if DEVICE.type == "cuda" else None
        (out / "times.json").write_text(json.dumps(times, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
