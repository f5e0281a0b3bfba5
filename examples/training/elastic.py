"""Train on through lost ranks: torchrun --standalone --nproc-per-node 4 --max-restarts 3 elastic.py [FOLDER]

Kill any of the ranks: the others raise an error that names it, torchrun starts them all again, and training resumes
from the last checkpoint, with what each rank owed the average. The losses are those of a run that was never disturbed.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

import syncline.torch

STEPS = int(os.environ.get("STEPS", "40"))
EVERY = int(os.environ.get("EVERY", "5"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0"))
BATCH = 24


def batch(step: int) -> torch.Tensor:
    """Return this rank's part of a step's data, which depends on the step alone."""
    whole = torch.randn(BATCH, 64, generator=torch.Generator().manual_seed(step))
    return whole.chunk(dist.get_world_size())[dist.get_rank()]


def join() -> None:
    """Meet the other ranks under the number of this start: torchrun keeps its store, and with it old addresses."""
    store, rank, num_ranks = next(iter(rendezvous("env://")))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group("gloo", store=PrefixStore(attempt, store), rank=rank, world_size=num_ranks)


def main() -> None:
    join()
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = syncline.torch.synchronize(model, codec="int4")

    def backward(step: int) -> Any:
        x = batch(step)
        loss = (model(x) - x[:, :4].sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        return loss.detach()

    # DDP changes its buckets after the first backward: leave that behind, so that a resumed run has the same ones.
    backward(0)
    handle.rescale(0.0)
    checkpoints = syncline.torch.Checkpoints(sys.argv[1] if len(sys.argv) > 1 else "checkpoints", keep=2)
    first, _ = checkpoints.restore(model, optimizer, handle)

    for step in range(first, STEPS):
        loss = backward(step)
        optimizer.step()
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item() / dist.get_world_size():.9g}", flush=True)
        if (step + 1) % EVERY == 0:
            checkpoints.save(step + 1, model, optimizer, handle)
        time.sleep(PAUSE_S)

    handle.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
