"""Scripts as they run on a real GPU, beside which previews are put: `python benchmarks/preview_real.py SCRIPT [ARGS]`.

Runs the script of one rank unmodified and marks its optimizer's steps. 30 steps to warm up, as they come; 30 timed from
first to last, while the GPU's clock and power are read; 20 with the GPU awaited after each, and of each how long the
host took; 3 under the profiler. One JSON line: these times, the most memory that was allocated, and what the GPU's
kernels take in a step.
"""

from __future__ import annotations

import itertools
import json
import os
import runpy
import statistics
import subprocess
import sys
import time
from typing import Any

WARM, TIMED, AWAITED, PROFILED = 30, 30, 20, 3
METER = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits", "--loop-ms=20"]


class Watch:
    """Counts the steps of a script and says what they took."""

    def __init__(self) -> None:
        self.marks: list[float] = []
        self.host: list[float] = []
        self.found: dict[str, Any] = {}
        self.profiler: Any = None
        self.allocations = 0
        self.meter: Any = None

    def stepped(self, *_: object) -> None:
        """A step is through."""
        import torch

        number = len(self.marks) + 1
        left = time.perf_counter()
        if number in (WARM, WARM + TIMED) or number > WARM + TIMED:
            torch.cuda.synchronize()
        self.marks.append(time.perf_counter())
        if number > WARM + TIMED:
            self.host.append(left - self.marks[-2])
        if number == 3:
            self.meter = subprocess.Popen(METER, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        elif number == WARM:
            torch.cuda.reset_peak_memory_stats()
            self.allocations = torch.cuda.memory_stats()["num_device_alloc"]
            self.marks[-1] = time.perf_counter()
        elif number == WARM + TIMED + AWAITED:
            self._timed()
            self.profiler = torch.profiler.profile(acc_events=True)
            self.profiler.__enter__()
        elif number == WARM + TIMED + AWAITED + PROFILED:
            self.profiler.__exit__(None, None, None)
            self.found |= kernels(self.profiler) | {"host": host(self.profiler)}
            finish(self.found)

    def _timed(self) -> None:
        import torch

        self.meter.terminate()
        free, awaited = self.marks[WARM - 1 : WARM + TIMED], self.marks[WARM + TIMED - 1 : WARM + TIMED + AWAITED]
        each = [b - a for a, b in itertools.pairwise(awaited)]
        read = [line.split(",") for line in self.meter.communicate()[0].splitlines() if line.count(",") == 1]
        self.found = {
            "script": os.path.basename(sys.argv[0]), "args": sys.argv[1:], "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__, "step_s": (free[-1] - free[0]) / TIMED,
            "awaited_step_s": statistics.median(each), "slowest_s": max(each),
            "host_s": statistics.median(self.host[:AWAITED]), "clock_MHz_and_W": read,
            "device_allocations": torch.cuda.memory_stats()["num_device_alloc"] - self.allocations,
            "peak_bytes": torch.cuda.max_memory_allocated(),
        }  # fmt: skip


def kernels(profiler: Any) -> dict[str, Any]:
    """Return the time of a step in which the GPU computes, and its kernels, the longest first."""
    spans, rows = [], dict[str, list[float]]()
    for event in profiler.events():
        if "CUDA" not in str(event.device_type) or getattr(event, "is_user_annotation", False):
            continue
        spans.append((event.time_range.start, event.time_range.end))
        row = rows.setdefault(event.name, [0, 0.0])
        row[0] += 1 / PROFILED
        row[1] += (event.time_range.end - event.time_range.start) * 1e-6 / PROFILED
    busy, until = 0.0, 0.0
    for begin, end in sorted(spans):
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    longest = sorted(rows.items(), key=lambda row: -row[1][1])[:60]
    listed = [{"name": name[:120], "calls": round(n, 1), "seconds": s} for name, (n, s) in longest]
    return {"gpu_busy_s": busy * 1e-6 / PROFILED, "gpu_kernels": round(len(spans) / PROFILED), "kernels": listed}


def host(profiler: Any) -> list[dict[str, Any]]:
    """Return what the host does in a step, by operator and call of the driver, the longest first."""
    rows = sorted(profiler.key_averages(), key=lambda row: -row.self_cpu_time_total)[:60]
    return [
        {
            "name": row.key[:90],
            "calls": round(row.count / PROFILED, 1),
            "self_s": row.self_cpu_time_total * 1e-6 / PROFILED,
        }
        for row in rows
    ]


def finish(found: dict[str, Any]) -> None:
    """Print the result and end: what the script does afterwards is not wanted."""
    print("RESULT " + json.dumps(found), flush=True)
    os._exit(0)


def main() -> None:
    """Run the script in `sys.argv` and print what its steps took."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    os.environ.update(alone, MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    register_optimizer_step_post_hook(Watch().stepped)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
