"""One rank of the same training under torchft: a replica of one process, its DDP and its manager over a lighthouse."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from rig.survive_rank import WIDTH, batch


def train(rank: int, num_ranks: int, steps: int, folder: Path, port: int, pause_s: float) -> None:
    """Train to the end, whoever comes and goes; a step that was not committed is counted and made again."""
    log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 1))
    inner = torch.optim.AdamW(plain.parameters(), lr=3e-3)

    def load(state: dict[str, Any]) -> None:
        plain.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    store: Any = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"model": plain.state_dict(), "optimizer": inner.state_dict()},
        lighthouse_addr=f"http://127.0.0.1:{port}", replica_id=f"rank_{rank}", rank=0, world_size=1,
        store_addr="127.0.0.1", store_port=store.port,
    )  # fmt: skip
    model = DistributedDataParallel(manager, plain)
    optimizer = Optimizer(manager, inner)
    discarded = 0
    with (folder / f"{rank}.jsonl").open("a") as out:
        while manager.current_step() < steps:
            optimizer.zero_grad()  # asks who takes part
            members, place = manager.num_participants(), manager.participating_rank()
            step = manager.current_step()
            x = batch(step, place or 0, max(members, 1))
            loss = (model(x) - x[:, :4].sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            if manager.current_step() > step:
                row = {"step": step, "loss": loss.item(), "at_s": time.monotonic(), "members": members}
                print(json.dumps(row), file=out, flush=True)
            else:
                discarded += 1
            time.sleep(pause_s)
        total = float(sum(p.detach().double().sum() for p in plain.parameters()))
        print(json.dumps({"end": total, "discarded": discarded}), file=out, flush=True)
    time.sleep(2.0)  # others may still ask this one whether they commit the last step
    os._exit(0)  # its threads outlive a manager that is shut down
