"""One rank of the rig under periodic methods: whole periods are timed, not single steps, for most steps send nothing.

periodic_worker.py '{"methods": ["compute", "local-sgd"], "rate_bps": 1e8, "every": 8, "steps": 16, ...}'
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

import syncline.torch
from rig import network
from rig.gpt import Batches, Gpt, corpus


def main() -> None:
    """Run the methods that the first argument names."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if task.get("rate_bps"):
        network.shape(dist.get_rank(), task["rate_bps"])
    text = corpus()
    for name in task["methods"]:
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, train(name, text, task))
        if dist.get_rank() == 0:
            print(json.dumps(joined(gathered)), flush=True)
    dist.destroy_process_group()


def train(name: str, text: torch.Tensor, task: dict[str, Any]) -> dict[str, Any]:
    """Train from the same start with one method and return this rank's figures."""
    torch.manual_seed(0)
    rank = dist.get_rank()
    bare = Gpt(**task.get("model", {}))
    dense = task.get("dense", 0) if name.startswith("diloco") else 0
    inner = torch.optim.AdamW(bare.parameters(), lr=task.get("lr", 3e-4))
    model, optimizer = method("ddp" if dense else name, bare, inner, task)
    batches = Batches(text, rank, task["batch"], task["length"])
    warm_up, steps, losses = task["warm_up"], task["steps"], []
    if name == "compute" and "compute_steps" in task:
        warm_up, steps = 2, task["compute_steps"]
    sent, began = 0, time.perf_counter()
    waited = 0.0
    for step in range(warm_up + steps):
        if step == warm_up:
            dist.barrier()
            sent, began, waited = network.counters()[0], time.perf_counter(), getattr(optimizer, "waited_s", 0.0)
        if dense and step == dense:
            model, optimizer = method(name, bare, inner, task)
        loss = model(batches.next())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    elapsed = time.perf_counter() - began
    sent_bytes = network.counters()[0] - sent
    waited = getattr(optimizer, "waited_s", 0.0) - waited
    across_bytes = optimizer.wire_bytes if name.startswith("diloco") else sent_bytes
    held = evaluate(model, optimizer, batches, task.get("held_out", 0))
    if hasattr(optimizer, "waited_s"):
        optimizer.close()
    del model, optimizer
    gc.collect()
    dist.barrier()
    return {
        "method": name, "step_s": elapsed / steps, "wire_bytes": sent_bytes / steps,
        "across_bytes": across_bytes / steps, "waited_s": waited / steps, "losses": losses, "held_out": held,
    }  # fmt: skip


def method(name: str, model: nn.Module, inner: torch.optim.AdamW, task: dict[str, Any]) -> tuple[nn.Module, Any]:
    """Return the model and the optimizer of a method."""
    kind, _, codec = name.partition(" ")
    every = task.get("every", 8)
    if kind == "compute":
        return model, inner
    if kind == "local-sgd":
        return model, syncline.torch.DiLoCo(inner, model, every, codec or "fp32", outer_lr=1.0, momentum=0.0)
    if kind == "torch-local-sgd":
        averager = PeriodicModelAverager(period=every, warmup_steps=0)
        return model, PostLocalSGDOptimizer(optim=inner, averager=averager)
    if kind == "ddp":
        return DistributedDataParallel(model), inner
    if kind == "site":
        return DistributedDataParallel(model, process_group=syncline.torch.site_group(2)), inner
    if kind == "diloco":
        inside = DistributedDataParallel(model, process_group=syncline.torch.site_group(2))
        return inside, syncline.torch.DiLoCo(inner, inside, every, codec or "int8")
    raise ValueError(f"no method {name!r}")


def evaluate(model: nn.Module, optimizer: Any, batches: Batches, count: int) -> float | None:
    """Return the loss on text that nobody trains on, with the weights that all ranks agree on."""
    if not count:
        return None
    if hasattr(optimizer, "synchronize"):
        optimizer.synchronize()
    with torch.no_grad():
        return float(getattr(model, "module", model)(batches.held_out(count)))


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row for all ranks: the slowest rank's time, the largest rank's bytes, mean losses."""
    losses = [statistics.fmean(step) for step in zip(*(part["losses"] for part in parts), strict=True)]
    return {
        "method": parts[0]["method"],
        "step_s": max(part["step_s"] for part in parts),
        "waited_s": max(part["waited_s"] for part in parts),
        "wire_bytes": max(part["wire_bytes"] for part in parts),
        "across_bytes": max(part["across_bytes"] for part in parts),
        "last_loss": round(losses[-1], 4),
        "held_out": parts[0]["held_out"],
    }


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of a backend that outlives its group must not hold the rank back
