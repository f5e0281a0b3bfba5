"""Errors by source, before (kept) and after releases, recipes, adapters and channels of peers: tuned on, and held out.

Needs training_more.csv and collectives_more.csv: `SYNCLINE_DATA=FOLDER python benchmarks/run.py mechanisms`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from syncline.validate.collectives import validate_collectives
from syncline.validate.training.validate import errors, validate_training

HELD_OUT = re.compile(r"MLPerf Training v5\.0|26\.06 NeMo|dgxc-benchmarking")
RESULTS = Path(__file__).parent / "results"


def run() -> dict[str, Any]:
    """Return errors of training runs, tuned on and held out, and of collectives by system."""
    folder = os.environ.get("SYNCLINE_DATA", "")
    if not folder:
        return {"missing": ["SYNCLINE_DATA is not set: the folder with training_more.csv and collectives_more.csv"]}
    shipped = Path(__file__).parent.parent / "src/syncline/validate/data/training-more.csv"
    out: dict[str, Any] = {"held_out": HELD_OUT.pattern}
    for name, path in (("training_more", Path(folder) / "training_more.csv"), ("training-more (ships)", shipped)):
        found = validate_training(path)
        held = np.array([bool(HELD_OUT.search(item.run.source)) for item in found.runs], dtype=bool)
        experts = np.array([item.has_experts for item in found.runs], dtype=bool)
        for title, mask in (("all", held | ~held), ("held out", held), ("tuned on or seen", ~held)):
            for kind, which in (("dense", ~experts), ("experts", experts)):
                out[f"{name}, {title}, {kind}"] = errors(found.ratio[mask & which])
    before = json.loads((RESULTS / "2026-11-16-blind_training_more.json").read_text())
    out["before: training_more"] = before["overall"]
    out["collectives_more"] = validate_collectives(Path(folder) / "collectives_more.csv").to_json()["overall"]
    out["before: collectives_more"] = json.loads((RESULTS / "2026-11-16-blind_collectives_more.json").read_text())[
        "overall"
    ]
    return out
