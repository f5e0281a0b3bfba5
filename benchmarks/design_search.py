"""How fast fabrics are searched: about 10,000 of them, a sample of it executed and carried over by count.

Hosts of four generations, four sizes, every link, switch, ratio, number of cards and planes that `syncline design`
knows. Every n-th choice is taken. Pricing goes with the number of choices. Planning does not: the more is known, the
more is bounded away and the more share a plan, so carrying it over by count overstates it.
"""

from __future__ import annotations

import time
from typing import Any

from syncline.design.choice import space
from syncline.design.search import Designer, Limits
from syncline.workload.read_job import load_job

HOSTS = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "hgx-h100-8")
GPUS = (256, 512, 1024, 2048)
EVERY = 40
JOB = {"model": "llama3-70b", "batch": {"global": 2048, "sequence": 4096}}
WANTED, CORES, WITHIN_S = 10_000, 2, 600.0


def run() -> dict[str, Any]:
    """Return CPU seconds of a sample, and of 10,000 fabrics carried over from it."""
    choices = list(space(HOSTS, GPUS))
    sample = choices[::EVERY]
    designer = Designer([(load_job(JOB), 1.0)], Limits(after_one=0.5))
    began = time.process_time()
    for choice in sample:
        designer._priced(choice, designer.run(()))
    priced = time.process_time() - began
    began = time.process_time()
    found = designer.run(sample)
    whole = time.process_time() - began
    each = whole / len(sample)
    return {
        "choices": len(choices), "sample": len(sample), "planned": found.num_planned, "bounded": found.num_bounded,
        "over_limit": sum(found.over.values()), "impossible": len(found.impossible), "front": len(found.front()),
        "pricing_cpu_s_each": priced / len(sample), "cpu_s": whole, "cpu_s_each": each,
        "cpu_s_10000": each * WANTED, "minutes_10000_on_two_cores": each * WANTED / CORES / 60,
        "within_ten_minutes": each * WANTED / CORES <= WITHIN_S,
    }  # fmt: skip
