"""Published training runs, one by one: does the memory that syncline adds up fit the GPU they ran on?"""

from __future__ import annotations

from typing import Any

from syncline.sim.step.memory import memory
from syncline.validation.training import validate_training


def run() -> dict[str, Any]:
    """Return how many fit, and by how much the others do not."""
    over, runs = [], 0
    for each in validate_training().measured:
        if each.case is None:
            continue
        runs += 1
        held = memory(each.case)
        if not held.fits:
            share = float(held.total) / float(each.case.memory_bytes)
            over.append({"model": each.job.model.name, "source": each.table, "share_of_memory": round(share, 3)})
    return {"runs": runs, "fit": runs - len(over), "share": (runs - len(over)) / runs, "over": over}
