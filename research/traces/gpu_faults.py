"""Twelve traced training steps with a planted fault each: the saving that `explain` promises beside the one measured.

    python research/traces/gpu_script.py FOLDER         on the GPU's host: traces and unprofiled times, torch alone
    python research/traces/gpu_faults.py FOLDER         anywhere: promised against measured
    python -m research traces.gpu_faults                both, on a machine with a GPU

The cause of each fault and the change that mends it were written down before the first trace was read (`CAUSES`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from syncline.explaining.explain import explain_recordings
from syncline.explaining.reading import read_recordings

RIG = Path(__file__).with_name("gpu_script.py")
WITHIN = 0.10
CAUSES = {
    "stall": ("host", "no stall in"),
    "read-value": ("host", "no blocking calls"),
    "loader": ("input", "input ready in time"),
    "stream-order": ("copies", "copies hidden"),
    "small-kernels": ("host", "no waiting for the host"),
    "pageable": ("copies", "copies hidden"),
    "python-work": ("host", "no stall in"),
    "gradient-norms": ("host", "no blocking calls"),
    "slow-worker": ("input", "input ready in time"),
    "waits-for-copies": ("copies", "copies hidden"),
    "optimizer-loop": ("host", "no waiting for the host"),
    "emptied-cache": ("host", "no blocking calls"),
}
"""By case: the cause that the account must name, and the change that mends it."""


def score(folder: Path) -> dict[str, Any]:
    """Return by case what was named, promised and measured, as shares of the planted step."""
    times = json.loads((folder / "times.json").read_text())
    cases = {}
    for name, (cause, change) in CAUSES.items():
        trace = folder / f"{name}.planted.json.gz"
        if not trace.is_file() or f"{name}.fixed" not in times:
            continue
        found = explain_recordings(read_recordings([trace]))
        promised = next((one for one in found.changes if one.change.startswith(change)), None)
        planted = times[f"{name}.planted"]
        measured = 1 - times[f"{name}.fixed"] / planted
        share = promised.share if promised is not None else 0.0
        cases[name] = {
            "step_s": planted, "traced_step_s": found.account.step_s, "causes_s": dict(found.account.causes_s),
            "named": found.account.causes_s.get(cause, 0.0) > 0.02 * found.account.step_s and promised is not None,
            "rank_of_change": [one.change for one in found.changes].index(promised.change) + 1 if promised else None,
            "promised_share": round(share, 4), "measured_share": round(measured, 4), "off": round(share - measured, 4),
        }  # fmt: skip
    worst = max((abs(case["off"]) for case in cases.values()), default=None)
    return {"cases": cases, "worst_off": worst, "all_passed": worst is not None and worst <= WITHIN}


def run() -> dict[str, Any]:
    """Trace on this machine's GPU and score."""
    import torch

    if not torch.cuda.is_available():
        return {"missing": ["no GPU: run research/traces/gpu_script.py on one, then score its folder"], "cases": {}}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(RIG), folder], check=True, timeout=600)
        return score(Path(folder))


if __name__ == "__main__":
    print(json.dumps(score(Path(sys.argv[1])), indent=2))
