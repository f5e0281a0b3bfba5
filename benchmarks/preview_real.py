"""Scripts as they run on a real GPU, beside which previews are put: `python benchmarks/preview_real.py SCRIPT [ARGS]`.

Runs the script of one rank unmodified, times the steps between calls of its optimizer and prints one JSON line: the
median of 20 steps after 10, and the most memory that was allocated.
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
import time

WARM, TIMED = 10, 20


def main() -> None:
    """Run the script in `sys.argv` and print what its steps took."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    os.environ.update(alone, MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    marks: list[float] = []

    def after(*_: object) -> None:
        torch.cuda.synchronize()
        marks.append(time.perf_counter())
        if len(marks) == WARM:
            torch.cuda.reset_peak_memory_stats()
        if len(marks) > WARM + TIMED:
            steps = [b - a for a, b in zip(marks[WARM:], marks[WARM + 1 :], strict=False)]
            found = {
                "script": os.path.basename(sys.argv[0]), "args": sys.argv[1:], "gpu": torch.cuda.get_device_name(),
                "torch": torch.__version__, "step_s": statistics.median(steps), "slowest_s": max(steps),
                "peak_bytes": torch.cuda.max_memory_allocated(),
            }  # fmt: skip
            print("RESULT " + json.dumps(found), flush=True)
            os._exit(0)

    register_optimizer_step_post_hook(after)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
