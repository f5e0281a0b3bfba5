"""What ranks do in the grid of resumption: train, save, go on or be killed; resume with as many ranks, or fewer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from tests.distributed.cases.fsdp2 import HAS_FSDP2, fully_shard
from tests.distributed.cases.training import batch, distributed, network, start
from torch.distributed.device_mesh import init_device_mesh

import syncline.torch

MODES = ("ddp", "1-D", "2-D") if HAS_FSDP2 else ("ddp",)
CODECS = ("int8", "sign", "int4", "powersgd:rank=2", "auto")
SAVED, STEPS = 4, 7
OPTIONS: dict[str, Any] = {"check_every": 0, "timeout_s": 60.0, "warmup": 0}


def made(mode: str, num_ranks: int) -> Any:
    """Return the model of a mode; with two ranks a 2-D mesh has two replicas of one shard."""
    if mode == "ddp":
        return distributed(network())
    shape = (num_ranks,) if mode == "1-D" else (2, num_ranks // 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("shard",) if mode == "1-D" else ("across", "inside"))
    model: Any = network()
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole(model: Any) -> torch.Tensor:
    parts = [p.detach() for p in model.parameters()]
    return torch.cat([(p.full_tensor() if hasattr(p, "full_tensor") else p).flatten() for p in parts]).clone()


def train(model: Any, optimizer: Any, rank: int, num_ranks: int, steps: range) -> list[float]:
    """Return the loss of each step; the same four parts of the data whatever the number of ranks."""
    losses = []
    for step in steps:
        optimizer.zero_grad()
        share = [batch(part, step) for part in range(4)][rank * 4 // num_ranks : (rank + 1) * 4 // num_ranks]
        loss = model(torch.cat(share)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def run(rank: int, port: int, folder: str, num_ranks: int, resumes: bool) -> dict[str, Any]:
    """Return the weights of every cell: those restored or saved, and those at the end."""
    start(rank, num_ranks, port)
    result: dict[str, Any] = {}
    for mode in MODES:
        for codec in CODECS:
            model = made(mode, num_ranks)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            handle: Any = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
            checkpoints = syncline.torch.Checkpoints(Path(folder, mode, codec), background=codec == "sign")
            first = 0
            if mode == "ddp":  # DDP changes its buckets after the first backward
                train(model, torch.optim.SGD(model.parameters(), lr=0.0), rank, num_ranks, range(1))
                handle.rescale(0.0)
            if resumes:
                first, extra = checkpoints.restore(model, optimizer, handle)
                assert extra == {"samples": 32 * SAVED}
            else:
                first = SAVED
                train(model, optimizer, rank, num_ranks, range(SAVED))
                checkpoints.save(SAVED, model, optimizer, handle, extra={"samples": 32 * SAVED})
            at = whole(model)
            owed = {name: part.clone() for name, part in handle.state_dict()["residuals"].items()}
            train(model, optimizer, rank, num_ranks, range(first, STEPS))
            checkpoints.wait()
            result[f"{mode} {codec}"] = {"first": first, "at": at, "end": whole(model), "owed": owed}
            handle.close()
    if not resumes:
        torch.save(result, Path(folder, f"before-{rank}.pt"))
        os._exit(9)  # killed: nothing is said, nothing is closed
    torch.save(result, Path(folder, f"after-{num_ranks}-{rank}.pt"))
    return {}
