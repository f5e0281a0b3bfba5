"""The same at 100 Mb/s, where plain DDP takes fourteen seconds a step."""

from __future__ import annotations

from typing import Any

import runtime
from rig.measure_rig import figures, rows

TASK = {**runtime.TASK, "rates_bps": [1e8], "steps": 3, "warm_up": 2}
FAST = {**TASK, "methods": ["compute", *runtime.SYNCLINE, "torch powersgd r1", "compute"], "steps": 6, "warm_up": 3}
DENSE = {**TASK, "methods": ["ddp", "torch fp16"]}


def run() -> dict[str, Any]:
    """Return a row for each method: the slow ones first, then the others with more steps, in one sitting."""
    found = rows(DENSE) + rows(FAST)
    return {"rate": "100 Mb/s", "model": "GPT, 25.4M parameters, bytes", "ranks": 4, "rows": figures(found)}
