"""Ranks that come and go: kill any of them, start it again, and the others never stop.

    python examples/training/crew.py store 29400 &            # where ranks meet; the one thing that must stay
    python examples/training/crew.py 0 3 29400 &              # rank 0 of 3, and so on
    python examples/training/crew.py 1 3 29400 &
    python examples/training/crew.py 2 3 29400

The same command starts a rank and brings it back.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import torch
from torch import nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

import syncline.torch

STEPS = int(os.environ.get("STEPS", "200"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0.1"))


def keep_store(port: int) -> None:
    """Hold the store until this process is ended."""
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    print(f"the store listens on port {store.port}", flush=True)
    threading.Event().wait()


def train(rank: int, num_ranks: int, port: int) -> None:
    """Learn a function that is known, with an outer step every 20 steps."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    crew = syncline.torch.Crew(store, rank, num_ranks)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))
    inner = torch.optim.AdamW(model.parameters(), lr=3e-3)
    optimizer = syncline.torch.DiLoCo(inner, model, every=20, codec="int8", crew=crew)
    while optimizer.num_steps < STEPS:
        step = optimizer.num_steps
        x = torch.randn(64, 16, generator=torch.Generator().manual_seed(1000 * step + rank))
        loss: torch.Tensor = nn.functional.mse_loss(model(x).squeeze(1), torch.sin(x.sum(1) / 4))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if optimizer.num_steps % 20 == 0:
            print(f"rank {rank} step {optimizer.num_steps} loss {loss.item():.3f}; {crew.history[-1]}", flush=True)
        time.sleep(PAUSE_S)
    optimizer.synchronize()
    total = float(sum(p.detach().double().sum() for p in model.parameters()))
    print(f"rank {rank} ends with weights that sum to {total:.12g}", flush=True)
    optimizer.close()


if __name__ == "__main__":
    if sys.argv[1] == "store":
        keep_store(int(sys.argv[2]))
    else:
        train(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
