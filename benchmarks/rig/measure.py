"""Measure a function's CPU seconds and peak memory in a child process, where nothing else has grown the heap.

cost = measure("flow:price", routing="ecmp")       # benchmarks/flow.py, def price() -> dict
cost.cpu_s, cost.wall_s, cost.peak_rss_bytes, cost.result
"""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
BENCHMARKS = FOLDER.parent


@dataclass(frozen=True)
class Cost:
    """What one call cost in a process of its own; the peak includes the interpreter and the imports."""

    cpu_s: float
    wall_s: float
    peak_rss_bytes: int
    result: dict[str, Any]


def measure(function: str, **arguments: Any) -> Cost:
    """Call `MODULE:NAME` with JSON-able arguments in a fresh Python and return its cost and its result."""
    command = [sys.executable, str(FOLDER / "measure.py"), function, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{function} failed with status {done.returncode}:\n{done.stderr}")
    return Cost(**json.loads(done.stdout))


def cpu_seconds(call: Callable[[], object], at_least_s: float = 0.5) -> float:
    """Return the CPU seconds one call takes in this process: the best of several, repeated for `at_least_s`."""
    best = float("inf")
    began = time.process_time()
    while best == float("inf") or time.process_time() - began < at_least_s:
        before = time.process_time()
        call()
        best = min(best, time.process_time() - before)
    return best


def _child(function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    wall, cpu = time.perf_counter(), time.process_time()
    result = call(**arguments)
    cost = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**cost, "peak_rss_bytes": peak_kib * 1024, "result": result}


if __name__ == "__main__":
    sys.path[0] = str(BENCHMARKS)
    print(json.dumps(_child(sys.argv[1], json.loads(sys.argv[2]))))
