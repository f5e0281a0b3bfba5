"""What ranks do in the test of spans: a real training and a real program, told to the agent by the runtime itself."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

NUM_RANKS = 2
NUM_STEPS = 4
WAIT_S = 30.0


def train(folder: Path, rank: int, port: int) -> dict[str, float]:
    """Train a few steps, run one program, and wait until the test has seen it; returns what the rank sent a step."""
    os.environ["SYNCLINE_WATCH"] = str(folder / "spans.sock")
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import syncline.torch
    from syncline.fabric import ClusterSpec, build
    from syncline.program import lower, packed
    from syncline.runtime.execute.executor import Executor
    from syncline.runtime.group import Group
    from syncline.schedule import build as family
    from syncline.schedule import verify

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=NUM_RANKS,
                            timeout=timedelta(seconds=WAIT_S))  # fmt: skip
    try:
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 64)))
        handle = syncline.torch.synchronize(model, codec="int8", check_every=0)
        for step in range(NUM_STEPS + 1):
            model(torch.full((4, 64), float(step))).square().sum().backward()
        sent = float(handle.report().wire_bytes)
        handle.close()
        cluster = build(ClusterSpec.model_validate({"hosts": 2, "host": "1 x H100", "network": "leaf-spine NDR"}))
        program = lower(verify(family("ring", NUM_RANKS)), packed(cluster, NUM_RANKS))
        with Executor(Group()) as executor:
            executor.run(program, torch.ones(1 << 16))
        return {"sent": sent}
    finally:
        dist.destroy_process_group()
