"""A rank killed, a rank stopped, a host cut off, a link that flaps: how soon each is named, and what it costs.

Four hosts in a lab train with gradients in 4 bits and `wait_s=0`: nobody is waited for. Each of the first three
faults must be named, with rank and host, by every rank that is left, within 10 s. A link that is down for 2 s must
cost only its time.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syncline.errors import LabError
from syncline.fabric import load
from syncline.lab import Lab

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "benchmarks" / "rig" / "fault_rank.py"
CLUSTER = ROOT / "examples" / "lab-flat.yaml"
NUM_RANKS, STRUCK, AFTER_STEP = 4, 2, 30
PAUSE_S, STEPS, FLAP_S = 0.05, 150, 2.0
REPEATS = 3
Strike = Callable[[Lab, Any], None]


class Log:
    """What the ranks say, line by line; an event is set when the step after which the fault strikes is over."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.reached = threading.Event()

    def take(self, process: Any, stream: str, line: str) -> None:
        """Take a line of a rank."""
        if stream != "stdout" or not line.startswith("{"):
            return
        row = json.loads(line)
        self.rows.append(row)
        if row.get("step") == AFTER_STEP:
            self.reached.set()

    def steps(self, rank: int) -> list[dict[str, Any]]:
        """Return the steps of a rank."""
        return [row for row in self.rows if row["rank"] == rank and "step" in row]


def train(strike: Strike | None, steps: int) -> tuple[Log, float]:
    """Train in a fresh lab, strike when the ranks are at it, and return what they said and when the fault struck."""
    log = Log()
    with Lab(load(CLUSTER), hosts=NUM_RANKS) as lab:
        command = [sys.executable, str(WORKER), str(steps), str(PAUSE_S)]
        job = lab.start(command, ranks_per_host=1, num_ranks=NUM_RANKS, on_line=log.take)
        try:
            if not log.reached.wait(120.0):
                raise RuntimeError(f"training did not start: {job.processes[0].stderr[-500:]}")
            struck_s = time.monotonic()
            if strike is not None:
                strike(lab, job.processes[STRUCK])
            left = [rank for rank in range(NUM_RANKS) if rank != STRUCK or strike in (None, flap)]
            for rank in left:
                job.processes[rank].wait(120.0)
        finally:
            job.end(0.0)
    return log, struck_s


def kill(lab: Lab, process: Any) -> None:
    """Kill the rank with -9."""
    process.signal(signal.SIGKILL)


def stop(lab: Lab, process: Any) -> None:
    """Stop the rank."""
    process.signal(signal.SIGSTOP)


def cut(lab: Lab, process: Any) -> None:
    """Take the link of the rank's host down."""
    lab.fault(f"{process.host}:eth0 down")


def flap(lab: Lab, process: Any) -> None:
    """Take the link of the rank's host down for two seconds."""
    lab.fault(f"{process.host}:eth0 down for {FLAP_S:g}s")


def detection(strike: Strike) -> dict[str, Any]:
    """Return how long it took until every rank that was left had named the struck one, in each of some runs."""
    times, texts, named = [], set(), True
    for _ in range(REPEATS):
        log, struck_s = train(strike, 100_000)
        said = [row for row in log.rows if "error" in row and row["rank"] != STRUCK]
        times.append(round(max(row["at_s"] for row in said) - struck_s, 2))
        texts |= {row["text"] for row in said}
        named = named and len(said) == NUM_RANKS - 1 and all(f"rank {STRUCK} on " in row["text"] for row in said)
    return {
        "named_by_all_after_s": times, "longest_s": max(times), "rank_and_host_named_by_all": named,
        "texts": sorted(texts),
    }  # fmt: skip


def disturbance() -> dict[str, Any]:
    """Return what a link that flaps costs: time, and whether the losses are those of a run that nobody disturbed."""
    calm, calm_s = train(None, STEPS)
    hurt, hurt_s = train(flap, STEPS)
    ends = [max(row["at_s"] for row in log.steps(0)) - s for log, s in ((calm, calm_s), (hurt, hurt_s))]
    gaps = [b["at_s"] - a["at_s"] for a, b in zip(hurt.steps(0), hurt.steps(0)[1:], strict=False)]
    equal = all(
        [row["loss"] for row in calm.steps(rank)] == [row["loss"] for row in hurt.steps(rank)]
        for rank in range(NUM_RANKS)
    )
    return {
        "down_s": FLAP_S, "steps": STEPS, "losses_equal_undisturbed": equal and len(hurt.steps(0)) == STEPS,
        "errors": [row["text"] for row in hurt.rows if "error" in row],
        "longest_step_s": round(max(gaps), 2), "median_step_s": round(statistics.median(gaps), 4),
        "lost_s": round(ends[1] - ends[0], 2),
    }  # fmt: skip


def run() -> dict[str, Any]:
    """Return all four."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        rows = {strike.__name__: detection(strike) for strike in (kill, stop, cut)}
        return {"ranks": NUM_RANKS, "watch_s": 10.0, **rows, "flap": disturbance()}
    except LabError as error:
        return {"skipped": str(error)}
