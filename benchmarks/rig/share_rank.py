"""One rank of a training job that shares a network: turns of a few steps, alone and with others, in slots or not.

share_rank.py FOLDER JOB      reads FOLDER/JOB.json: floats of the model, and by turn compute seconds, steps (0: not my
                              turn), slots; FOLDER/start says when the turns begin. Prints when each step ended.
"""

from __future__ import annotations

import json
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


def main() -> None:
    """Take the turns."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder, name = Path(sys.argv[1]), sys.argv[2]
    told = json.loads((folder / f"{name}.json").read_text())
    model = DistributedDataParallel(Weights(told["floats"]), bucket_cap_mb=64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = syncline.torch.synchronize(model, codec="fp32", transport="point-to-point", check_every=0, watch_s=0)

    def step(compute_s: float) -> None:
        time.sleep(compute_s)  # work of an accelerator, which takes none of the processors that all ranks share here
        model(torch.ones(1)).backward()
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
        ends = []
        for _ in range(turn["steps"]):
            slots.wait()
            step(turn["compute"])
            ends.append(time.time())
        if dist.get_rank() == 0:
            print(json.dumps({"turn": turn["name"], "late_s": late, "ends": ends}), flush=True)
    handle.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
