"""Loss on the source of Python's standard library after equal steps: plain DDP beside the default codecs.

Loss against time takes each method's median step at 1 Gb/s and 100 Mb/s from the kept results of `runtime` and
`runtime_slow`, while a method warms up that of int8 (of plain DDP for 1-bit Adam, whose later steps send what those of
`sign` do); the training itself runs on links without a limit, which the loss does not see.
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
METHODS = ("ddp", "int8", "one-bit-adam after 100", "sign after 100", "topk:keep=0.05+int8 after 100")
SAME_BYTES = {"one-bit-adam": ("ddp", "sign")}
STEPS, LAST = 200, 20
TASK = {"methods": list(METHODS), "rates_bps": [None], "steps": STEPS, "warm_up": 0, "batch": 1, "length": 128,
        "held_out": 32}  # fmt: skip


def run() -> dict[str, Any]:
    """Return the loss of each method (mean of the last steps, and held out) and draw the curves."""
    found = rows(TASK, timeout_s=3600.0)
    plain = found[0]
    table = []
    for row in found:
        last, base = fmean(row["losses"][-LAST:]), fmean(plain["losses"][-LAST:])
        table.append({
            "method": row["method"], "last_loss": round(last, 4), "against_ddp": round(last / base - 1, 4),
            "held_out": round(row["held_out"], 4),
            "held_out_against_ddp": round(row["held_out"] / plain["held_out"] - 1, 4),
        })  # fmt: skip
    curves = {row["method"]: row["losses"] for row in found}
    _draw(curves, datetime.date.today().isoformat())
    return {"steps": STEPS, "mean_of_last": LAST, "rows": table, "curves": curves}


def _draw(losses: dict[str, list[float]], date: str) -> None:
    """Draw the curves; called by itself this file draws the kept ones again, with the newest times of steps."""
    curves = {method: _smooth(values) for method, values in losses.items()}
    panels = [("equal steps", "steps", [(m, [float(k) for k in range(len(c))], c) for m, c in curves.items()])]
    for name, title in (("runtime", "1 Gb/s"), ("runtime_slow", "100 Mb/s")):
        panels += [(title, "seconds", timed)] if (timed := _timed(name, curves)) else []
    draw(panels, RESULTS / f"{date}-runtime_loss.svg")


def _timed(name: str, curves: dict[str, list[float]]) -> list[Curve]:
    kept = sorted(RESULTS.glob(f"*-{name}.json"))
    if not kept:
        return []
    step_s = {row["method"]: row["step_s"] for row in json.loads(kept[-1].read_text())["rows"]}
    return [(m, times, c) for m, c in curves.items() if (times := _clock(m, len(c), step_s))]


def _clock(method: str, num_steps: int, step_s: dict[str, float]) -> list[float]:
    """Return when each step ends, or nothing where a step of the method has not been timed."""
    name, _, warm_up = method.partition(" after ")
    first, then = SAME_BYTES.get(name, ("int8", name))
    if then not in step_s or (warm_up and first not in step_s):
        return []
    early = int(warm_up or 0)
    return [min(k, early) * step_s.get(first, 0.0) + max(0, k - early) * step_s[then] for k in range(num_steps)]


def _smooth(losses: list[float], window: int = 10) -> list[float]:
    return [fmean(losses[max(0, k - window + 1) : k + 1]) for k in range(len(losses))]


if __name__ == "__main__":
    newest = max(RESULTS.glob("*-runtime_loss.json"))
    _draw(json.loads(newest.read_text())["curves"], newest.name.removesuffix("-runtime_loss.json"))
