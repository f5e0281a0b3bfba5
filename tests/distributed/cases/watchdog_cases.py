"""What ranks do in the tests of the watchdog."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

import torch.distributed as dist
from tests.distributed.cases.failure_cases import attempt
from tests.distributed.cases.training import SMALL, batch, distributed, network, start

import syncline.torch

WATCH_S = 4.0
STOPS_S = 0.4


def stop_then_hang(rank: int, port: int) -> dict[str, Any]:
    """Rank 1 is stopped for a moment in step 4, which nobody may mind; rank 2 stands still in step 6."""
    start(rank, 3, port)
    store: Any = dist.distributed_c10d._get_default_store()
    model = distributed(network())
    handle = syncline.torch.synchronize(model, codec="int8", watch_s=WATCH_S, wait_s=0.0, **SMALL)
    reached = []

    def train() -> None:
        for step in range(10):
            reached.append(step)
            if (step, rank) == (4, 1):
                subprocess.Popen(["/bin/sh", "-c", f"sleep {STOPS_S}; kill -CONT {os.getpid()}"])
                os.kill(os.getpid(), signal.SIGSTOP)
            if (step, rank) == (6, 2):
                stand_still(store)
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()

    result: dict[str, Any] = attempt(train)
    store.set(f"found by {rank}", "")
    if rank == 0:  # the store lives here
        store.wait([f"found by {other}" for other in range(3)])
    handle.close()
    return {**result, "step": reached[-1]}


def stand_still(store: Any) -> None:
    """Hang until the others have found out: were they not to, the test would end at its own limit."""
    while not store.check(["found by 0", "found by 1"]):
        time.sleep(0.05)
