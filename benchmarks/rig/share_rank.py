"""One rank of a training job that shares a network: turns of a few steps, alone and with others, in slots or not.

share_rank.py FOLDER JOB      reads FOLDER/JOB.json: floats of the model, micro-batches a step, and by turn compute
                              seconds, steps (0: not my turn), slots; FOLDER/start says when the turns begin. Prints
                              when each step ended, and with micro-batches the processor seconds and losses of a turn.

Without micro-batches a step's computation is a wait: an accelerator's, which takes none of the processors that all
ranks share here. With them it is a real model's forward and backward on this machine's processors; where it is done
before the compute seconds are over, the rank waits for the rest, and where it is not, the step is longer.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import syncline.torch


class Weights(torch.nn.Module):
    """So many floats, whose gradient costs no arithmetic to speak of."""

    def __init__(self, num: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(num))

    def forward(self, scale: torch.Tensor) -> torch.Tensor:
        return (self.weight * scale).sum()


class Network(torch.nn.Module):
    """Three layers of about so many floats that learn the sign of one number of what they see."""

    def __init__(self, num: int) -> None:
        super().__init__()
        width = round(math.sqrt(num / 3))
        self.layers = torch.nn.Sequential(
            *(torch.nn.Sequential(torch.nn.Linear(width, width, bias=False), torch.nn.Tanh()) for _ in range(3))
        )
        self.width = width

    def forward(self, batch: int) -> torch.Tensor:
        seen = torch.randn(batch, self.width)
        return torch.nn.functional.mse_loss(self.layers(seen)[:, 0], seen[:, 1].sign())


def main() -> None:
    """Take the turns."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder, name = Path(sys.argv[1]), sys.argv[2]
    told = json.loads((folder / f"{name}.json").read_text())
    micro = told.get("micro", 0)
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel((Network if micro else Weights)(told["floats"]), bucket_cap_mb=64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2 / max(1, micro))
    handle = syncline.torch.synchronize(model, codec="fp32", check_every=0, watch_s=0)

    losses: list[float] = []

    def work(compute_s: float) -> None:
        if not micro:
            time.sleep(compute_s)
            model(torch.ones(1)).backward()
            return
        begun = time.monotonic()
        with model.no_sync():
            for _ in range(micro - 1):
                model(told["batch"]).backward()
        taken = time.monotonic() - begun
        time.sleep(max(0.0, compute_s - taken * micro / max(1, micro - 1)))  # the last one comes after the wait
        loss = model(told["batch"])
        loss.backward()
        losses.append(loss.item())

    def step(compute_s: float) -> None:
        work(compute_s)
        optimizer.step()
        optimizer.zero_grad()

    step(0.0)
    step(0.0)
    print("ready", flush=True)
    while not (folder / "start").exists():
        time.sleep(0.02)
    start = float((folder / "start").read_text())
    for turn in told["turns"]:
        time.sleep(max(0.0, start + turn["begin"] - time.time()))
        late = time.time() - start - turn["begin"]
        if not turn["steps"]:
            continue
        slots = syncline.torch.StepSlots(turn["period"], turn["offset"])
        ends, used, done = [], time.process_time(), len(losses)
        for _ in range(turn["steps"]):
            slots.wait()
            step(turn["compute"])
            ends.append(time.time())
        if dist.get_rank() == 0:
            row = {"turn": turn["name"], "late_s": late, "ends": ends}
            row |= {"cpu_s": time.process_time() - used, "losses": losses[done:]} if micro else {}
            print(json.dumps(row), flush=True)
    handle.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
