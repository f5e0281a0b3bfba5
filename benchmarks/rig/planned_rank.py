"""One rank of a saved plan in a lab: its gradients, buckets and codec for real, its arithmetic as time that passes.

planned_rank.py PLAN SCALE STEPS       every layer takes the plan's time for it, stretched as the lab's rates are
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import syncline.torch

NUM_LAYERS = 8


class Passing(torch.autograd.Function):
    """Time that passes forward and backward, as an accelerator would work meanwhile."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        time.sleep(seconds / 3)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        time.sleep(2 * ctx.seconds / 3)
        return grad, None


class Layers(nn.Module):
    """So many parameters in equal layers."""

    def __init__(self, num_parameters: int, seconds: float) -> None:
        super().__init__()
        self.scales = nn.ParameterList(
            [nn.Parameter(torch.randn(num_parameters // NUM_LAYERS) / 100) for _ in range(NUM_LAYERS)]
        )
        self.seconds = seconds / NUM_LAYERS

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            x = Passing.apply(x + scale.mean() * x, self.seconds)  # type: ignore[no-untyped-call]
        return x.square().mean()


def main() -> None:
    """Train as the plan says; the runtime tells the agent of each step by itself."""
    torch.set_num_threads(1)
    plan, scale, num_steps = json.loads(Path(sys.argv[1]).read_text()), float(sys.argv[2]), int(sys.argv[3])
    predicted, decision = plan["predicted"], plan["decision"]
    exchanged = next(row for row in plan["collectives"] if row["name"].startswith("all-reduce@data/"))
    size_bytes = exchanged["count"] * exchanged["size_bytes"]
    compute_s = (predicted["step_time_s"] - predicted["exposed_comm_s"]) / scale
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Layers(round(size_bytes / 4), compute_s)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=max(1, decision["bucket_bytes"] >> 20))
    syncline.torch.synchronize(wrapped, codec="plain" if decision["codec"] == "none" else decision["codec"])
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-3)
    for _ in range(num_steps):
        wrapped(torch.ones(4, size_of(model))).backward()
        optimizer.step()
        optimizer.zero_grad()


def size_of(model: Layers) -> int:
    """Return how wide the input is: a little, so that the time is the plan's and not this processor's."""
    return min(16, model.scales[0].numel())


if __name__ == "__main__":
    main()
