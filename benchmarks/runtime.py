"""Gradient synchronisation at 1 Gb/s: syncline's codecs beside plain DDP and torch's hooks, in one run on the rig."""

from __future__ import annotations

from typing import Any

from rig.measure_rig import TORCH, figures, rows

SYNCLINE = ("int8", "int4", "sign", "topk:keep=0.01+int8", "powersgd:rank=1")
BUCKET_MB = {name.split(":")[0]: 8.0 for name in SYNCLINE}
TASK: dict[str, Any] = {
    "methods": ["compute", *TORCH, *SYNCLINE, "compute"],
    "rates_bps": [1e9],
    "steps": 6,
    "batch": 1,
    "length": 128,
    "bucket_mb": BUCKET_MB,
}


def run() -> dict[str, Any]:
    """Return a row for each method."""
    return {"rate": "1 Gb/s", "model": "GPT, 25.4M parameters, bytes", "ranks": 4, "rows": figures(rows(TASK))}
