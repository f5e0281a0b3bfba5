"""Two jobs that train a real model share one thin line: predicted slowdown against measured (see share_lab).

Here the computation is not a wait but forward and backward passes of a network on this machine's processors, steered
through `syncline.torch.StepSlots` as in share_lab. Two cores carry four ranks, so they are part of the answer:

- "a device of a fixed speed": the passes take a part of the compute time and the rank waits for the rest, as a host
  waits for its accelerator. The prediction is share_lab's.
- "no wait": a step is its passes and its exchange. In phase four ranks compute at once on two cores and take as much
  longer; apart, one job computes while the other sends. The prediction knows the passes' time on a core of its own,
  measured before, and the number of cores.

The first is on a line of 8 Mb/s and with steps of 3.3 s, so that a machine that does other work too can carry it; the
second wants a machine that does nothing else (SYNCLINE_QUIET=1). The load when each began is in the result.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import torch

from rig.share_rank import Network
from share_lab import SETTLE, STEPS, Case, measure, predicted

BATCH, MICRO, SLOW = 256, 3, "8Mbps"
CORES = os.cpu_count() or 1
DEVICE = Case("two jobs, a device of a fixed speed", (2.0, 2.0), (1_200_000, 1_200_000), True, MICRO, BATCH, SLOW)
APART = Case("two jobs, no link in common", (2.0, 2.0), (1_200_000, 1_200_000), False, MICRO, BATCH, SLOW)
ALL = Case("two jobs, no wait", (0.0, 0.0), (1_600_000, 1_600_000), batch=BATCH)
WANTED_S = 0.3
"""What the passes of a step should take on a core of their own where there is no wait."""


def pass_s(floats: int, batch: int) -> float:
    """Return what one forward and backward pass takes on one core, the median of 21."""
    torch.set_num_threads(1)
    model, taken = Network(floats), []
    for _ in range(21):
        begun = time.process_time()
        model(batch).backward()
        taken.append(time.process_time() - begun)
    return sorted(taken)[10]


def slowdowns(step_s: Any, alone_s: Any) -> list[float]:
    """Return how many times as long as alone each job's step takes."""
    return [a / b for a, b in zip(step_s, alone_s, strict=True)]


def compare(case: Case, known: dict[str, Any], in_phase_s: Any) -> dict[str, Any]:
    """Run a case and return what was said and what was."""
    load = os.getloadavg()[0]
    seen = measure(case, known)
    row: dict[str, Any] = {
        "case": case.name, "line": case.line, "micro_batches": case.micro, "batch": case.batch, "load_before": load,
        "steering": known["steering"], "predicted_alone_s": list(known["alone_s"]), "measured_alone_s": seen["alone_s"],
        "in_phase_predicted": slowdowns(in_phase_s, known["alone_s"]),
        "in_phase_measured": slowdowns(seen["in_phase_s"], seen["alone_s"]),
        "interleaved_predicted": slowdowns(known["interleaved_s"], known["alone_s"]),
        "interleaved_measured": slowdowns(seen["interleaved_s"], seen["alone_s"]),
        "late_s": seen["late_s"],
        "cpu_s_a_step": {f"{one['turn']}, job {one['job']}": one["cpu_s"] / STEPS for one in seen["work"]},
        "loss_first_last": [[one["losses"][0], one["losses"][-1]] for one in seen["work"] if one["losses"]],
    }  # fmt: skip
    row["errors"] = [
        said / was - 1
        for turn in ("in_phase", "interleaved")
        for said, was in zip(row[f"{turn}_predicted"], row[f"{turn}_measured"], strict=True)
    ]
    row["gain_predicted"] = 1 - sum(row["interleaved_predicted"]) / sum(row["in_phase_predicted"])
    row["gain_measured"] = 1 - sum(row["interleaved_measured"]) / sum(row["in_phase_measured"])
    return row


def no_wait() -> tuple[Case, dict[str, Any], Any]:
    """Return the case without a wait, what is known of it, and its step in phase on the cores there are."""
    each = pass_s(ALL.exchange_bytes[0] // 4, BATCH)
    micro = max(2, round(WANTED_S / each))
    case = replace(ALL, compute_s=tuple(micro * each for _ in ALL.compute_s), micro=micro)
    known = predicted(case)
    crowd = max(1.0, 2 * len(case.compute_s) / CORES)
    crowded = predicted(replace(case, compute_s=tuple(crowd * one for one in case.compute_s)))
    # in phase the passes take the crowd's time: slots and steps are those of jobs that compute for so long
    known |= {"in_phase_slots": crowded["in_phase_slots"], "in_phase_s": crowded["in_phase_s"]}
    return replace(case, compute_s=tuple(0.0 for _ in case.compute_s)), known, crowded["in_phase_s"]


def run() -> dict[str, Any]:
    """Return predicted and measured slowdowns of the cases."""
    rows = []
    for case in (DEVICE, APART):
        known = predicted(case)
        rows.append(compare(case, known, known["in_phase_s"]))
    if os.environ.get("SYNCLINE_QUIET"):
        rows.append(compare(*no_wait()))
    errors = [abs(error) for row in rows for error in row["errors"]]
    return {
        "steps": STEPS - SETTLE, "cores": CORES, "cases": rows, "slowdowns": len(errors),
        "worst_error": max(errors), "worst_error_by_case": {row["case"]: max(map(abs, row["errors"])) for row in rows},
    }  # fmt: skip
