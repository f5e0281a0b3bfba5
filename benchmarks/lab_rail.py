"""A link taken down in the middle of training on hosts with two rails: detected, moved to the other rail, nothing lost.

The lab plays the routing daemon (detection after 50 ms). Kept: when the link went down, when routes were changed, the
longest step, the steps after, and whether the loss is that of an undisturbed run.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from syncline.errors import LabError
from syncline.fabric import load
from syncline.lab import Lab

CLUSTER = Path(__file__).resolve().parent.parent / "examples" / "lab-two-rails.yaml"
MODEL = {"width": 128, "depth": 2, "batch": 1, "length": 32}
STEPS = 150
DOWN_AT_S, DOWN_FOR_S = 25, 8


def run() -> dict[str, Any]:
    """Return what the fault cost."""
    try:
        calm = _train(())
        hurt = _train((f"host-01:eth0 down at {DOWN_AT_S}s for {DOWN_FOR_S}s",))
    except LabError as error:
        return {"skipped": str(error)}
    same = all(abs(a - b) < 1e-6 for a, b in zip(calm["losses"], hurt["losses"], strict=True))
    return {"undisturbed": _summary(calm), "link_down": _summary(hurt), "loss_equals_undisturbed": same}


def _train(faults: tuple[str, ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Lab(load(CLUSTER), scale=0.05) as lab:
        order, answer = Path(folder, "order.json"), Path(folder, "answer.json")
        order.write_text(json.dumps({"model": MODEL, "synchronisations": ["int8"], "steps": STEPS}))
        command = [sys.executable, "-m", "syncline.rehearsal.worker", "training", str(order), str(answer)]
        result = lab.run(command, ranks_per_host=1, faults=faults, timeout_s=600)
        if result.exit_code or not answer.exists():
            raise RuntimeError(f"training failed with status {result.exit_code}: {result.ranks[0].stderr[-500:]}")
        row = json.loads(answer.read_text())["rows"][0]
        begun = next((event.at_s for event in lab.events if event.what == "begun"), None)
        moved = next((event.at_s for event in lab.events if event.what == "rerouted"), None)
        return {**row, "detected_after_s": None if begun is None or moved is None else moved - begun,
                "events": [f"{event.what}: {event.text}" for event in lab.events]}  # fmt: skip


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    times = row["times_s"]
    worst = max(range(len(times)), key=times.__getitem__)
    return {
        "steps": len(times), "median_step_s": statistics.median(times), "longest_step_s": times[worst],
        "longest_step": worst, "median_after_s": statistics.median(times[worst + 1 : worst + 11] or times),
        "stall_s": times[worst] - statistics.median(times), "detected_after_s": row["detected_after_s"],
        "events": row["events"], "last_loss": row["losses"][-1],
    }  # fmt: skip
