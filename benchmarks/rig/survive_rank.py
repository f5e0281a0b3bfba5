"""One rank of a run that is killed now and then: trains a small model over a crew, a line a step to a file.

python -m rig.survive_rank FOLDER STEPS PAUSE_S        who it is, torchrun's and Slurm's variables say
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

import syncline.runtime.elastic.start
import syncline.torch

WIDTH, BATCH = 64, 24


def batch(step: int, place: int, count: int) -> torch.Tensor:
    """Return this rank's part of a step's data, which is the same whoever shares it."""
    whole = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
    return whole.chunk(count)[place]


def train(rank: int, num_ranks: int, steps: int, folder: Path, port: int, pause_s: float) -> None:
    """Train to the end, whoever comes and goes, as this rank of so many."""
    log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    crew = {"": f"127.0.0.1:{port}", "_RANK": rank, "_RANKS": num_ranks}
    os.environ |= {f"SYNCLINE_CREW{name}": str(value) for name, value in crew.items()}
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    train_from_env(folder, steps, pause_s)


def train_from_env(folder: Path, steps: int, pause_s: float) -> None:
    """Train to the end as the rank that the environment says."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    member = syncline.torch.Crew.from_env(patience_s=30.0)
    handle = syncline.torch.elastic(model, optimizer, member, "int8", door_every=5)
    with (folder / f"{member.rank}.jsonl").open("a") as out:
        while handle.step < steps:
            step, place = handle.step, handle.place  # who shares this step is fixed here
            members, x = len(handle.members), batch(step, *place)
            loss: torch.Tensor = (model(x) - x[:, :4].sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if handle.step == step:
                continue  # a rank was lost, and those who are left make the step again
            row = {"step": step, "loss": loss.item(), "at_s": time.monotonic(), "members": members}
            print(json.dumps(row), file=out, flush=True)
            time.sleep(pause_s)
        handle.close()
        total = float(sum(p.detach().double().sum() for p in model.parameters()))
        print(json.dumps({"end": total, "history": handle.history}), file=out, flush=True)


if __name__ == "__main__":
    train_from_env(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
