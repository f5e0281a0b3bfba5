"""Loss on the source of Python's standard library after equal steps: plain DDP beside the default codecs.

Loss against time takes each method's median step at 1 Gb/s and 100 Mb/s from the kept results of `runtime` and
`runtime_slow`; the training itself runs on links without a limit, which the loss does not see.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from rig.curves import Curve, draw
from rig.measure_rig import rows

RESULTS = Path(__file__).resolve().parent / "results"
METHODS = ("ddp", "int8", "sign", "topk:keep=0.01+int8")
STEPS, LAST = 100, 20
TASK = {"methods": list(METHODS), "rates_bps": [None], "steps": STEPS, "warm_up": 0, "batch": 1, "length": 128,
        "held_out": 32, "bucket_mb": {"int8": 8.0, "sign": 8.0, "topk": 8.0}}  # fmt: skip


def run() -> dict[str, Any]:
    """Return the loss of each method (mean of the last steps, and held out) and draw the curves."""
    found = rows(TASK, timeout_s=1200.0)
    plain = found[0]
    table = []
    for row in found:
        last, base = fmean(row["losses"][-LAST:]), fmean(plain["losses"][-LAST:])
        table.append({
            "method": row["method"], "last_loss": round(last, 4), "against_ddp": round(last / base - 1, 4),
            "held_out": round(row["held_out"], 4),
            "held_out_against_ddp": round(row["held_out"] / plain["held_out"] - 1, 4),
        })  # fmt: skip
    curves = {row["method"]: _smooth(row["losses"]) for row in found}
    panels = [("equal steps", "steps", [(m, [float(k) for k in range(len(c))], c) for m, c in curves.items()])]
    for name, title in (("runtime", "1 Gb/s"), ("runtime_slow", "100 Mb/s")):
        panels += [(title, "seconds", timed)] if (timed := _timed(name, curves)) else []
    draw(panels, RESULTS / f"{datetime.date.today()}-runtime_loss.svg")
    return {
        "steps": STEPS,
        "mean_of_last": LAST,
        "rows": table,
        "curves": {m: found[k]["losses"] for k, m in enumerate(curves)},
    }


def _timed(name: str, curves: dict[str, list[float]]) -> list[Curve]:
    kept = sorted(RESULTS.glob(f"*-{name}.json"))
    if not kept:
        return []
    step_s = {row["method"]: row["step_s"] for row in json.loads(kept[-1].read_text())["rows"]}
    return [(m, [k * step_s[m] for k in range(len(c))], c) for m, c in curves.items() if m in step_s]


def _smooth(losses: list[float], window: int = 5) -> list[float]:
    return [fmean(losses[max(0, k - window + 1) : k + 1]) for k in range(len(losses))]
