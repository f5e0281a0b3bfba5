"""Identical runs of codec="auto" beside plain DDP, two ranks on loopback, each on a core of its own.

alike_rank.train(rank, port, order)      what one rank decided, and its seconds of wall and processor a step
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import syncline.torch
from rig.gpt import Batches, Gpt, corpus

MODEL = {"width": 192, "depth": 4, "num_heads": 4, "context": 128}
TURN = 10
"""Steps of one before it is the next one's turn."""


def train(rank: int, port: int, order: dict[str, Any]) -> dict[str, Any]:
    """Settle under auto, then take turns with plain DDP, which stands twice: what its two rows differ by is noise."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    text = corpus()
    models = {name: _Model(text, rank, auto=name == "auto") for name in ("ddp", "auto", "ddp again")}
    handle = models["auto"].handle
    models["auto"].steps(order["settle"])
    found: dict[str, dict[str, list[float]]] = {name: {"wall_s": [], "cpu_s": []} for name in models}
    for _ in range(order["rounds"]):
        for name, model in models.items():
            dist.barrier()
            model.steps(1)
            wall, cpu = time.perf_counter(), time.process_time()
            model.steps(TURN)
            found[name]["wall_s"].append((time.perf_counter() - wall) / TURN)
            found[name]["cpu_s"].append((time.process_time() - cpu) / TURN)
    row = {
        "codec": handle.pilot.codec,
        "phase": handle.pilot.phase,
        "why": handle.why(),
        **{name: {key: statistics.median(times) for key, times in rows.items()} for name, rows in found.items()},
    }
    handle.close()
    dist.destroy_process_group()
    return row


class _Model:
    def __init__(self, text: torch.Tensor, rank: int, *, auto: bool) -> None:
        torch.manual_seed(0)
        self._model = DistributedDataParallel(Gpt(**MODEL), gradient_as_bucket_view=True)
        self._batches = Batches(text, rank, 1, 128)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=3e-4)
        self.handle: Any = syncline.torch.synchronize(self._model, check_every=0) if auto else None

    def steps(self, count: int) -> None:
        for _ in range(count):
            self._model(self._batches.next()).backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
