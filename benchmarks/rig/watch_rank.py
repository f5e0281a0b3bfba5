"""One rank of a training that is watched: a small GPT on real text, gradients in int8, until the job is ended.

watch_rank.py FOLDER       rank 0 adds a line for each step to FOLDER/steps: begin, seconds, exposed seconds, loss;
                           while there is a FOLDER/slow-RANK, that rank's accelerator runs at half its speed
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import syncline.torch
from rig.gpt import Batches, Gpt, corpus

MODEL = {"width": 128, "depth": 4, "num_heads": 4, "context": 64}
BATCH, LENGTH = 2, 64
BUCKET_MB = 1
PAUSE_S = 0.1
"""In each step: work of an accelerator, which takes none of the processors that all ranks share here."""


def pause(folder: Path, rank: int, number: int) -> None:
    """Save every 40 steps and evaluate every 100, where a FOLDER/phases asks for it, and tell so."""
    what = "evaluation" if number % 100 == 0 else "checkpoint" if number % 40 == 0 else ""
    if not what or not (folder / "phases").exists():
        return
    dist.barrier()
    with syncline.torch.phase(what):
        time.sleep(8.0 if what == "evaluation" else 3.0)
    if rank == 0:
        with (folder / "told").open("a") as file:
            file.write(f"{what} {number}\n")
    dist.barrier()


def main() -> None:
    """Train; the runtime tells the agent of each step by itself, if there is one."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder, rank = Path(sys.argv[1]), dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Gpt(**MODEL), bucket_cap_mb=BUCKET_MB)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    handle = syncline.torch.synchronize(model, codec="int8")
    batches = Batches(corpus(), rank, BATCH, LENGTH)
    slow = folder / f"slow-{rank}"
    with (folder / "steps" if rank == 0 else Path("/dev/null")).open("w", buffering=1) as file:
        for number in itertools.count(1):
            pause(folder, rank, number)
            began = time.monotonic()
            loss = model(batches.next())
            time.sleep(2 * PAUSE_S if slow.exists() else PAUSE_S)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            file.write(f"{began} {time.monotonic() - began} {handle.report().exposed_s} {loss.item()}\n")


if __name__ == "__main__":
    main()
