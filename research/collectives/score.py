"""Predicted against published nccl-tests rows: errors by system and size band, plain, calibrated and left out."""

from __future__ import annotations

import time
from typing import Any

from research.published import BLIND_SETS, collective_rows

from syncline.questions.validate import CollectiveErrors
from syncline.validation.collectives import validate_rows
from syncline.validation.systems import load_systems

#: What is wanted of set 0: (where in the result, median, 90th percentile).
TARGETS = {"large": (0.025, 0.12), "all": (0.08, 0.35), "calibrated": (0.045, 0.20)}


def run() -> dict[str, Any]:
    """Return the errors of every set and the CPU seconds to predict and calibrate all their rows."""
    began = time.process_time()
    systems = load_systems(None)
    results: dict[str, Any] = {
        f"set {number}": CollectiveErrors(validate_rows(collective_rows(number), systems, f"set {number}")).to_json()
        for number in BLIND_SETS
    }
    cpu_s = time.process_time() - began
    overall = results["set 0"]["overall"]
    found = {"large": overall["large"], "all": overall, "calibrated": overall["calibrated"]}
    return {
        "cpu_s": cpu_s,
        "targets": {
            name: {
                "median_error": found[name]["median_error"],
                "p90_error": found[name]["p90_error"],
                "wanted_median_error": median,
                "wanted_p90_error": p90,
                "reached": found[name]["median_error"] <= median and found[name]["p90_error"] <= p90,
            }
            for name, (median, p90) in TARGETS.items()
        },
        "results": results,
    }
