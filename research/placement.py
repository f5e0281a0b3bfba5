"""Placements against all arrangements where they are few, and against hill climbs with restarts where they are many.

Allocations are drawn: 2 to 32 hosts out of racks of 4 that others use too, 8:1 or 2:1, dense or with experts, pipelines
or not, some with more hosts than the job needs, hosts listed in any order. A hill climb has the same judge and as many
executed orders as the search. A placement is worse if its step is longer by more than a thousandth, and depends on the
list if the same hosts listed otherwise take another step.

    python -m research.placement [ALLOCATIONS [FIRST [JOBS]]]
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from syncline.fabric import load
from syncline.placing.allocation import from_list
from syncline.placing.judge import Judge
from syncline.placing.search import enumerated, search
from syncline.workload.read_job import load_job

ALLOCATIONS, WORSE = 500, 1e-3
MOST_ENUMERATED = 500
"""Arrangements that are all executed beside the search."""
SPLITS = (
    ("llama3-8b", {"tp": 8, "pp": 2}), ("llama3-8b", {"tp": 8}), ("mixtral-8x7b", {"tp": 1, "pp": 2, "ep": 8}),
    ("llama3-8b", {"tp": 4, "pp": 4}), ("mixtral-8x7b", {"tp": 2, "ep": 8}),
)  # fmt: skip


class Compared(NamedTuple):
    """The step of a placement beside those of its rivals."""

    seed: int
    hosts: int
    split: str
    step_s: float
    rival_s: float
    bound_s: float
    listed_s: float
    otherwise_s: float
    """The same hosts, listed in another order."""
    proved: bool


def run(count: int = ALLOCATIONS, first: int = 0, jobs: int = 1) -> dict[str, Any]:
    """Return how many placements are worse than their rival, and by how much at most; a line for each on the way."""
    rows = []
    with ProcessPoolExecutor(jobs) as pool:
        for row in pool.map(_row, range(first, first + count)):
            rows.append(row)
            print(*row, file=sys.stderr, flush=True)
    return {
        "allocations": len(rows), "proved": sum(row.proved for row in rows),
        "worse": sum(row.step_s > row.rival_s * (1 + WORSE) for row in rows),
        "worst": max((row.step_s / row.rival_s - 1 for row in rows), default=0.0),
        "worse_seeds": [row.seed for row in rows if row.step_s > row.rival_s * (1 + WORSE)],
        "depends_on_list": sum(abs(row.otherwise_s / row.step_s - 1) > 1e-9 for row in rows),
        "saved_against_the_list": float(np.median([1 - row.step_s / row.listed_s for row in rows])),
        "gap_to_bound": float(np.median([row.step_s / row.bound_s - 1 for row in rows])),
    }  # fmt: skip


def _row(seed: int) -> Compared:
    chance = np.random.default_rng(seed)
    network = {"topology": "leaf-spine", "link": "100GbE", "oversubscription": ("8:1", "2:1")[seed % 2],
               "hosts_per_leaf": 4}  # fmt: skip
    fabric = load({"hosts": 48, "host": "8 x H100", "network": network})
    model, split = SPLITS[int(chance.integers(len(SPLITS)))]
    num = int(chance.choice([2, 4, 6, 8, 12, 16, 24, 32]))
    hosts = chance.permutation(48)[: num + int(chance.integers(2))]
    width = 8 * num // (int(split.get("tp", 1)) * int(split.get("pp", 1)))
    parallel = {**split, "dp": width}
    job = load_job({"model": model, "batch": {"global": 4 * width, "sequence": 2048}, "parallel": parallel})
    judge = Judge(fabric, from_list(fabric, ",".join(map(str, hosts))), job)
    found = search(judge)
    every = list(islice(enumerated(judge), MOST_ENUMERATED + 1))
    few = len(every) <= MOST_ENUMERATED
    rival_s = min(map(judge.time_s, every)) if few else climbed(judge, chance, found.num_executed)
    again = search(Judge(fabric, from_list(fabric, ",".join(map(str, chance.permutation(hosts)))), job))
    words = " ".join(f"{axis} {size}" for axis, size in parallel.items())
    return Compared(
        seed, len(hosts), words, found.step_time_s, rival_s, found.bound_s,
        judge.time_s(judge.seats.scheduler_order()), again.step_time_s, found.proved,
    )  # fmt: skip


def climbed(judge: Judge, chance: np.random.Generator, most: int) -> float:
    """Return the best step of hill climbs from random orders, with so many orders executed."""
    best_s, begun = np.inf, judge.num_executed
    for _ in range(50):
        here = chance.permutation(judge.seats.num_units)
        here_s = judge.time_s(tuple(here.tolist()))
        for _ in range(40):
            a, b = chance.integers(len(here), size=2)
            there = here.copy()
            there[[a, b]] = there[[b, a]]
            there_s = judge.time_s(tuple(there.tolist()))
            if there_s < here_s:
                here, here_s = there, there_s
            if judge.num_executed - begun > most:
                return float(min(best_s, here_s))
        best_s = min(best_s, here_s)
    return float(best_s)


if __name__ == "__main__":
    print(run(*map(int, sys.argv[1:])))
