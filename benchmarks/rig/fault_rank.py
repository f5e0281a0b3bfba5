"""One rank of a training that faults will strike: says every step, and how it ends, with the time of the machine.

fault_rank.py STEPS PAUSE_S
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import syncline.torch
from syncline.errors import SynchronizationError


def main() -> None:
    """Train a small model on data that depends on step and rank alone."""
    steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = syncline.torch.synchronize(model, codec="int4", wait_s=0.0)
    rank = dist.get_rank()
    try:
        for step in range(steps):
            x = torch.randn(16, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
            loss: torch.Tensor = (model(x) - x[:, :4].sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            say(step=step, loss=loss.item())
            time.sleep(pause_s)
    except SynchronizationError as error:
        say(error=type(error).__name__, text=error.message)
        os._exit(3)
    handle.close()
    say(end=True)
    os._exit(0)


def say(**what: Any) -> None:
    """Print a line for whoever watches."""
    print(json.dumps({"rank": dist.get_rank(), "at_s": time.monotonic(), **what}), flush=True)


if __name__ == "__main__":
    main()
