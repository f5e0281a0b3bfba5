"""One rank of the rig: trains under each method in turn and prints what it measured, one JSON object a line.

worker.py '{"methods": ["ddp", "int8"], "rates_bps": [1e9], "steps": 8, "batch": 1, "length": 128, "device": "cuda"}'
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

from rig import network
from rig.gpt import Batches, Gpt, corpus
from rig.methods import BUCKET_MB, Method


def main() -> None:
    """Run the methods that the first argument names."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    text = corpus()
    BUCKET_MB.update(task.get("bucket_mb", {}))
    for rate_bps in task["rates_bps"]:
        network.shape(rank, rate_bps)
        dist.barrier()
        for name in task["methods"]:
            figures = train(name, text, task)
            gathered: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(gathered, figures)
            if rank == 0:
                print(json.dumps({"rate_bps": rate_bps or 0.0, **joined(gathered)}), flush=True)
    dist.destroy_process_group()


def train(name: str, text: torch.Tensor, task: dict[str, Any]) -> dict[str, Any]:
    """Train from the same start with one method and return this rank's figures."""
    torch.manual_seed(0)
    device = task.get("device", "cpu")
    method = Method(name, Gpt(**task.get("model", {})).to(device))
    batches = Batches(text, dist.get_rank(), task["batch"], task["length"])
    optimizer = torch.optim.AdamW(method.model.parameters(), lr=task.get("lr", 3e-4))
    losses, times = [], []
    warm_up = task.get("warm_up_of", {}).get(name, task.get("warm_up", 3))
    sent, cpu_s = 0, 0.0
    began = time.perf_counter()
    for step in range(warm_up + task["steps"]):
        if step == warm_up:
            dist.barrier()
            sent, cpu_s, began = network.counters()[0], time.process_time(), time.perf_counter()
        before = time.perf_counter()
        with method.synchronising():
            loss = method.model(batches.next().to(device))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step >= warm_up:
            times.append(time.perf_counter() - before)
    elapsed, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    wire_bytes = (network.counters()[0] - sent) / task["steps"]
    dist.barrier()
    held = None
    if task.get("held_out"):
        with torch.no_grad():
            held = float(method.model.module(batches.held_out(task["held_out"]).to(device)))
    report = method.handle.report().to_json() if method.handle is not None and method.handle.steps else None
    method.close()
    del method, optimizer
    gc.collect()
    return {
        "method": name,
        "step_s": elapsed / task["steps"],
        "median_s": statistics.median(times),
        "cpu_s": cpu_s / task["steps"],
        "wire_bytes": wire_bytes,
        "losses": losses,
        "held_out": held,
        "report": report,
    }


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row for all ranks: the slowest rank's times, mean bytes and losses."""
    losses = [statistics.fmean(step) for step in zip(*(part["losses"] for part in parts), strict=True)]
    return {
        "method": parts[0]["method"],
        "step_s": max(part["step_s"] for part in parts),
        "median_s": max(part["median_s"] for part in parts),
        "cpu_s": statistics.fmean(part["cpu_s"] for part in parts),
        "wire_bytes": statistics.fmean(part["wire_bytes"] for part in parts),
        "losses": [round(loss, 5) for loss in losses],
        "held_out": parts[0]["held_out"],
        "report": parts[0]["report"],
    }


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of a backend that outlives its group must not hold the rank back
