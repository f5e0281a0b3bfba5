"""The same at 100 Mb/s, where plain DDP takes fourteen seconds a step."""

from __future__ import annotations

from typing import Any

import runtime
from rig.measure_rig import figures, rows

TASK = {**runtime.TASK, "rates_bps": [1e8], "steps": 2, "warm_up": 2}
LEAN = ("int8", "sign", "topk:keep=0.01+int8", "powersgd:rank=1", "torch powersgd r1")
FAST = {**TASK, "methods": ["compute", *LEAN, "compute"], "steps": 5}
DENSE = {**TASK, "methods": ["ddp"]}


def run() -> dict[str, Any]:
    """Return a row for each method: the slow ones first, then the others with more steps, in one sitting."""
    found = rows(DENSE) + rows(FAST)
    return {"rate": "100 Mb/s", "model": "GPT, 25.4M parameters, bytes", "ranks": 4, "rows": figures(found)}
