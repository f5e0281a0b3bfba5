"""How fast fabrics are searched: all 13,560 that `syncline design` lays out for five hosts and four sizes, no sample.

Hosts of four generations, four sizes, every link, switch, ratio, number of cards and planes that it knows.
"""

from __future__ import annotations

import time
from typing import Any

from syncline.design.choice import space
from syncline.design.search import Designer, Limits
from syncline.workload.read_job import load_job

HOSTS = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "hgx-h100-8")
GPUS = (256, 512, 1024, 2048)
JOB = {"model": "llama3-70b", "batch": {"global": 2048, "sequence": 4096}}
WANTED, CORES, WITHIN_S = 10_000, 2, 600.0


def run() -> dict[str, Any]:
    """Return the CPU seconds of the whole search, and of 10,000 of its fabrics by count."""
    choices = list(space(HOSTS, GPUS))
    designer = Designer([(load_job(JOB), 1.0)], Limits(after_one=0.5))
    began = time.process_time()
    found = designer.run(choices)
    whole = time.process_time() - began
    each = whole / len(choices)
    return {
        "choices": len(choices), "planned": found.num_planned, "bounded": found.num_bounded,
        "over_limit": sum(found.over.values()), "impossible": len(found.impossible), "front": len(found.front()),
        "cpu_s": whole, "minutes_on_one_core": whole / 60, "cpu_s_each": each, "cpu_s_10000": each * WANTED,
        "minutes_10000_on_two_cores": each * WANTED / CORES / 60,
        "within_ten_minutes": each * WANTED / CORES <= WITHIN_S,
    }  # fmt: skip
