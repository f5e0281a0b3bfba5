"""What the ranks of a crew do in its tests: one is killed and comes back as a new process, one is stopped."""

from __future__ import annotations

import datetime
import json
import os
import signal
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.training import batch, network, weights

import syncline.torch

NUM_RANKS = 3
STEPS = 36
EVERY = 4
KILLED, KILLED_AT = 2, 6
STOPPED, STOPPED_AT = 0, 22
OPTIONS: dict[str, Any] = {"piece_bytes": 16384, "timeout_s": 240.0, "watch_s": 35.0, "fragments": 2}
"""Rank 1 waits for a process that starts, which takes seconds: silence is ten times as long (0.6 of `watch_s`)."""


def go_on(rank: int, port: int, is_back: bool, codec: str = "int4") -> dict[str, Any]:
    """Train to the end, through both losses."""
    patience = datetime.timedelta(seconds=240)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=patience, wait_for_workers=False)
    crew = syncline.torch.Crew(store, rank, NUM_RANKS, patience_s=60.0, wait_s=240.0)
    model = network(seed=rank if is_back else 0)
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = syncline.torch.DiLoCo(inner, model, EVERY, codec, crew=crew, **OPTIONS)
    first = optimizer.num_steps
    while optimizer.num_steps < STEPS:
        step = optimizer.num_steps
        if (rank, step, is_back) == (KILLED, KILLED_AT, False):
            os.kill(os.getpid(), signal.SIGKILL)
        if (rank, step) == (STOPPED, STOPPED_AT):
            store.set("stopped", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        if (rank, step) == (1, STOPPED_AT + EVERY):
            os.kill(int(store.get("stopped")), signal.SIGCONT)
        # Rank 1 goes on to these steps without the lost rank and waits until it knocks. Not all who are left do: one
        # that has what it needs of the lost rank comes here before anybody is missed, and would be missed itself.
        for at, lost in ((KILLED_AT + EVERY, KILLED), (STOPPED_AT + EVERY, STOPPED)):
            if step == at and rank == 1:
                await_knock(store, lost)
        optimizer.zero_grad()
        model(batch(rank, step)).square().mean().backward()
        optimizer.step()
    optimizer.synchronize()
    found = weights(model)
    optimizer.close()
    return {
        "weights": found.tolist(), "history": crew.history, "first": first,
        "momentum": torch.cat([shared.outer[1] for shared in optimizer._shared]).sum().item(),
    }  # fmt: skip


def await_knock(store: Any, lost: int) -> None:
    """Wait until a rank has taken a ticket; others may have taken some before it."""
    number = 1
    while json.loads(store.get(f"syncline/crew/crew/ticket/{number}")) != lost:
        number += 1
