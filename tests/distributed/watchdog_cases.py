"""What ranks do in the tests of the watchdog."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

from tests.distributed.ddp_cases import SMALL, batch, distributed, network, start
from tests.distributed.failure_cases import attempt

import syncline.torch

WATCH_S = 4.0
HANGS_S = 9.0


def stop_then_hang(rank: int, port: int) -> dict[str, Any]:
    """Rank 1 is stopped for a second in step 4, which nobody may mind; rank 2 stands still in step 6."""
    start(rank, 3, port)
    model = distributed(network())
    handle = syncline.torch.synchronize(model, codec="int8", watch_s=WATCH_S, **SMALL)
    reached = []

    def train() -> None:
        for step in range(10):
            reached.append(time.monotonic())
            if (step, rank) == (4, 1):
                subprocess.Popen(["/bin/sh", "-c", f"sleep 1; kill -CONT {os.getpid()}"])
                os.kill(os.getpid(), signal.SIGSTOP)
            if (step, rank) == (6, 2):
                stand_still()
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()

    result: dict[str, Any] = attempt(train)
    took_s = time.monotonic() - reached[-1]
    handle.close()
    return {**result, "step": len(reached) - 1, "took_s": took_s}


def stand_still() -> None:
    time.sleep(HANGS_S)
