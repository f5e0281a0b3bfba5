"""One rank of a small training script that somebody kills, stops or cuts off: it trains until something is raised.

python -m rig.kill_rank KIND STEPS        in a lab, which says who it is
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import syncline.torch

WIDTH = 128
CODECS = {"auto trial": "auto", "fsdp2": "int8", "fsdp2 tp": "int8"}


def train(rank: int, num_ranks: int, port: int, kind: str, pipe: Any, options: dict[str, Any]) -> None:
    """Train, and send through the pipe what was raised, by whom and when."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(num_ranks)}
    train_from_env(kind, pipe, int(options.get("steps", 1_000_000)))
    time.sleep(60)  # a survivor that ends at once would break the connections of the others, and so help them


def train_from_env(kind: str, pipe: Any, steps: int) -> None:
    """Train as the rank that the environment says."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        answer = _train(dist.get_rank(), dist.get_world_size(), kind, pipe, steps)
    except BaseException as error:
        answer = {
            "class": type(error).__name__, "rank": getattr(error, "rank", None), "host": getattr(error, "host", ""),
            "step": getattr(error, "step", -1), "phase": getattr(error, "phase", ""), "text": str(error),
        }  # fmt: skip
    pipe.send({**answer, "at_s": time.monotonic()})
    pipe.close()


def _train(rank: int, num_ranks: int, kind: str, pipe: Any, steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    place = rank
    if kind.startswith("fsdp2"):
        model, place = _sharded(num_ranks, kind)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    handle = syncline.torch.synchronize(model, codec=CODECS.get(kind, kind))
    longest_s = 0.0
    for step in range(steps):
        began_s = time.monotonic()
        x = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(1000 * step + place))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if step == (0 if kind == "auto trial" else 20):
            pipe.send("ready")
        time.sleep(0.01)
        longest_s = max(longest_s, time.monotonic() - began_s)
    handle.close()
    return {"class": "finished", "rank": None, "longest_s": round(longest_s, 2)}


def _sharded(num_ranks: int, kind: str) -> tuple[Any, int]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model: Any = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))
    if kind == "fsdp2":
        mesh = init_device_mesh("cpu", (num_ranks,))
        return fully_shard(model, mesh=mesh), dist.get_rank()
    mesh = init_device_mesh("cpu", (num_ranks // 2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return fully_shard(model, mesh=mesh["dp"]), mesh.get_local_rank("dp")


class Printed:
    """A pipe whose messages are lines of standard output."""

    def send(self, message: object) -> None:
        """Print a message."""
        print(json.dumps(message), flush=True)

    def close(self) -> None:
        """Do nothing."""


if __name__ == "__main__":
    train_from_env(sys.argv[1], Printed(), int(sys.argv[2]))
