"""One rank of `benchmarks/auto_overhead.py`: blocks of plain DDP and of auto in turns, wall and CPU time of each step.

A second model in plain DDP takes its turn too: what it is over the first says how much is noise.

overhead_rank.py CASES: JSON of {name: {"width", "depth", "batch", "steps"}}; rank and world as torchrun says.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import syncline.torch

ROUNDS, SETTLING = 12, 140
NAMES = ("ddp", "again", "auto")


def block(model: Any, optimizer: Any, x: torch.Tensor, steps: int) -> dict[str, float]:
    """Return what a step took: the median of wall times, and the CPU time of all threads per step."""
    dist.barrier()
    cpu, times = time.process_time(), []
    for _ in range(steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
    return {"wall_s": statistics.median(times), "least_s": min(times), "cpu_s": (time.process_time() - cpu) / steps}


def case(width: int, depth: int, batch: int, steps: int) -> dict[str, Any]:
    """Return all in turns."""
    made = {}
    for name in NAMES:
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)]))
        made[name] = model, torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(batch, width)
    first = {"ddp": block(*made["ddp"], x, min(100, SETTLING))}
    handle = syncline.torch.synchronize(made["auto"][0])
    first["auto"] = block(*made["auto"], x, min(100, SETTLING))
    block(*made["auto"], x, SETTLING - 100)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
    for number in range(ROUNDS):
        for k in range(len(NAMES)):
            name = NAMES[(number + k) % len(NAMES)]
            rows[name].append(block(*made[name], x, steps))
    why = handle.why()
    handle.close()
    figures: dict[str, Any] = {"why": why, "first_100_steps": first}
    for what in ("wall_s", "least_s", "cpu_s"):
        taken = {name: [row[what] for row in rows[name]] for name in NAMES}
        figures[what] = {name: statistics.median(taken[name]) for name in NAMES}
        for name in NAMES[1:]:
            pairs = zip(taken["ddp"], taken[name], strict=True)
            figures[what][f"{name}_over_ddp"] = round(statistics.median(b / a for a, b in pairs), 4)
    return figures


def main() -> None:
    """Print a line a case."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    # Far apart: neighbours may be threads of one core, and the first serves the devices.
    own = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {own[(2 * rank + 1) * len(own) // (2 * int(os.environ["WORLD_SIZE"]))]})
    dist.init_process_group("gloo")
    for name, sizes in json.loads(sys.argv[1]).items():
        found = case(**sizes)
        if rank == 0:
            print(json.dumps({"case": name, **found}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
