"""Gradient synchronisation at 1 Gb/s and 100 Mb/s: syncline's codecs beside plain DDP and torch's hooks.

Four ranks share two cores here, and their computation keeps both busy: what DDP, a codec and TCP compute comes on top,
behind nothing. So the small batch shows how much faster than plain DDP a step is, and the large one, whose computation
is longer, how near its bound.
"""

from __future__ import annotations

from typing import Any

import torch

from rig.measure_rig import TORCH, figures, rows

SYNCLINE = ("int8", "int4", "sign", "powersgd:rank=1")
TASK: dict[str, Any] = {
    "methods": ["compute", *TORCH, *SYNCLINE, "compute"],
    "rates_bps": [1e9],
    "steps": 6,
    "batch": 1,
    "length": 128,
}
LARGE = {**TASK, "methods": ["compute", "ddp", "torch bf16", "int8", "sign", "compute"], "batch": 8, "steps": 4,
         "warm_up": 2}  # fmt: skip
SLOW = {**TASK, "rates_bps": [1e8], "steps": 2, "warm_up": 2}
GPU: dict[str, Any] = {
    "methods": ["compute", "ddp", "torch bf16", "auto", "int8", "int4", "sign", "bf16", "fp32", "ddp", "compute"],
    "rates_bps": [1e9, 1e10, 2.5e10], "steps": 6, "warm_up": 3, "warm_up_of": {"auto": 60}, "batch": 8,
    "length": 256, "device": "cuda",
}  # fmt: skip
"""Four ranks on one GPU. DDP stands twice: how far it lies from itself is what a difference must pass."""
LEAN = ("int8", "sign", "powersgd:rank=1", "torch powersgd r1")


def run() -> dict[str, Any]:
    """Return a row for each method on the GPU, or where there is none on CPUs.

    At 100 Mb/s plain DDP takes fourteen seconds a step, so it gets fewer steps.
    """
    if torch.cuda.is_available():
        return {"model": "GPT, 25.4M parameters, bytes", "ranks": 4, "rows_gpu": figures(rows(GPU))}
    slow = rows({**SLOW, "methods": ["ddp"]}) + rows({**SLOW, "methods": ["compute", *LEAN, "compute"], "steps": 5})
    return {
        "model": "GPT, 25.4M parameters, bytes",
        "ranks": 4,
        "rows": figures(rows(TASK)),
        "rows_batch_8": figures(rows(LARGE)),
        "rows_100_Mbps": figures(slow),
    }
