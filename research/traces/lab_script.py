"""One rank of DDP on CPUs over gloo, traced: a rank may be slow, buckets may be small.

lab_script.py OUT SLOW_RANK SLOW_MS BUCKET_MB      writes OUT/rankN.json
"""

# mypy: disable-error-code="no-untyped-call,arg-type"
from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

STEPS = 3


def main(out: str, slow: int, slow_ms: float, bucket_mb: float) -> None:
    """Train a few steps under the profiler."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(16)])
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    batch = torch.randn(64, 256)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=STEPS)
    options = {"activities": [torch.profiler.ProfilerActivity.CPU], "schedule": schedule, "record_shapes": True}
    with torch.profiler.profile(**options) as profiler:
        for _ in range(2 + STEPS):
            if rank == slow:
                time.sleep(slow_ms / 1e3)
            ddp(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(str(Path(out) / f"rank{rank}.json"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
