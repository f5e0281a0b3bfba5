"""One rank of a script in the lab, unmodified: its optimizer's steps are marked, and it ends after enough of them."""

from __future__ import annotations

import json
import os
import runpy
import sys
import time

import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

WARM, TIMED = 3, 10
marks: list[float] = []


def stepped(*_: object) -> None:
    """Mark a step; after the last all ranks end together."""
    marks.append(time.perf_counter())
    if len(marks) == WARM + TIMED:
        if dist.get_rank() == 0:
            print("RESULT " + json.dumps(marks[WARM - 1 :]), flush=True)
        dist.barrier()
        os._exit(0)


if __name__ == "__main__":
    register_optimizer_step_post_hook(stepped)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
