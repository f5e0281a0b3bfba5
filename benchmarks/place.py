"""Ranks placed on 200 random fragmented allocations: what placing gains, and whether it is ever worse.

Every order is executed with the same model at flow level. Small cases are enumerated beside the search, which then may
not enumerate itself.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from syncline.fabric import Fabric, load
from syncline.place.allocation import from_list
from syncline.place.judge import Judge
from syncline.place.search import arrangements, enumerated, search
from syncline.workload.job import Job
from syncline.workload.read_job import load_job

NUM = 200
NUM_SMALL = 12


def fabrics() -> list[tuple[str, Fabric]]:
    """Return oversubscribed fabrics, one of them with failed and slow ports, and one of rails."""
    thin = {"topology": "leaf-spine", "link": "100GbE", "oversubscription": "4:1", "hosts_per_leaf": 8}
    faults = [{"device": "host-05/nic-2"}, {"device": "host-17/nic-0", "rate": "25Gbps"}]
    thinner = {"topology": "leaf-spine", "link": "100GbE", "oversubscription": "8:1", "hosts_per_leaf": 4}
    return [
        ("leaf-spine 4:1", load({"name": "thin", "hosts": 64, "host": "8 x H100", "network": thin})),
        ("with faults", load({"name": "faulty", "hosts": 64, "host": "8 x H100", "network": thin, "faults": faults})),
        ("leaf-spine 8:1", load({"name": "thinner", "hosts": 64, "host": "8 x H100", "network": thinner})),
        ("rails", load({"name": "rails", "hosts": 64, "host": "8 x H100", "network": "rail-optimized 400GbE"})),
    ]


def job(number: int, hosts: int) -> Job:
    """Return one of four jobs, with a batch that divides over so many hosts."""
    split = ({"tp": 8, "pp": 4}, {"tp": 8, "pp": 2}, {"tp": 8}, {"tp": 1, "zero": "hsdp"})[number % 4]
    replicas = hosts * 8 // (split["tp"] * split.get("pp", 1))  # type: ignore[operator]
    batch = {"global": replicas * 4, "sequence": 2048}
    return load_job({"model": "llama3-8b", "batch": batch, "parallel": split})


def fragmented(chance: np.random.Generator, wanted: int) -> str:
    """Return hosts as a busy cluster leaves them: runs of a few neighbours, ordered by name or by chance."""
    taken: set[int] = set()
    while len(taken) < wanted:
        first, run = int(chance.integers(64)), int(chance.integers(1, 5))
        taken |= set(range(first, min(first + run, 64, first + wanted - len(taken))))
    hosts = sorted(taken)[:wanted]
    if chance.random() < 0.5:
        chance.shuffle(hosts)
    return ",".join(map(str, hosts))


def run() -> dict[str, Any]:
    """Return gains over packed and over the scheduler's order, and how often enumeration found better."""
    chance, built = np.random.default_rng(27), fabrics()
    over_packed: dict[str, list[float]] = {name: [] for name, _ in built}
    over_given: list[float] = []
    worse, began = 0, time.process_time()
    for number in range(NUM):
        name, fabric = built[number % len(built)]
        wanted = int(chance.choice([8, 12, 16, 24]))
        judge = Judge(fabric, from_list(fabric, fragmented(chance, wanted)), job(number // len(built), wanted))
        found, seats = search(judge), judge.seats
        packed, given = judge.time_s(seats.packed_order()), judge.time_s(seats.scheduler_order())
        over_packed[name].append(1 - found.step_time_s / packed)
        over_given.append(1 - found.step_time_s / given)
        worse += found.step_time_s > packed * (1 + 1e-9)
    spent = time.process_time() - began
    every = [gain for gains in over_packed.values() for gain in gains]
    return {
        "allocations": NUM, "worse_than_packed": worse,
        "median_gain_over_packed": float(np.median(every)), "best_gain_over_packed": float(np.max(every)),
        "gained_over_packed": int(sum(gain > 1e-3 for gain in every)),
        "median_gain_over_packed_where_any": float(np.median([g for g in every if g > 1e-3] or [0.0])),
        "median_gain_over_scheduler": float(np.median(over_given)),
        "best_gain_over_scheduler": float(np.max(over_given)),
        "by_fabric": {
            name: {"median": float(np.median(gains)), "best": float(np.max(gains))}
            for name, gains in over_packed.items()
        },
        "cpu_s_per_allocation": spent / NUM, **small(chance, built),
    }  # fmt: skip


def small(chance: np.random.Generator, built: list[tuple[str, Fabric]]) -> dict[str, Any]:
    """Return on how many small cases the search without enumeration found the best of all arrangements."""
    same, gaps, tried = 0, [], 0
    while tried < NUM_SMALL:
        _, fabric = built[tried % 2]
        hosts = ",".join(map(str, chance.choice(24, 6, replace=False)))  # of three racks
        judge = Judge(fabric, from_list(fabric, hosts), job(tried % 2 + 1, 6))
        if not 1 < arrangements(judge.seats) <= 100:
            continue
        tried += 1
        found = search(judge, most_enumerated=0)
        best = min(judge.time_s(order) for order in enumerated(judge.seats))
        gaps.append(found.step_time_s / best - 1)
        same += gaps[-1] < 1e-6
    return {"enumerated_cases": tried, "optimal": same, "worst_gap_to_optimum": float(max(gaps))}
