"""Schedules: time and memory to build and prove large ones, and the table of seeded faults tried and caught."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from measure import measure

MIB = 1 << 20
Case = tuple[Any, ...]
RINGS: dict[str, Case] = {"ring 4,096": ("ring", 4096, ()), "ring 131,072": ("ring", 131072, ())}
LEVELS: dict[str, Case] = {
    "hierarchical 16,384 (2,048 x 8)": ("hierarchical", 16384, (2048, 8)),
    "hierarchical 16,384 (64 x 32 x 8)": ("hierarchical", 16384, (64, 32, 8)),
    "hierarchical 131,072 (16,384 x 8)": ("hierarchical", 131072, (16384, 8)),
    "hierarchical all-gather 131,072 (16,384 x 8)": ("hierarchical", 131072, (16384, 8), "all_gather"),
}
OTHERS: dict[str, Case] = {
    "halving-doubling 4,096": ("halving-doubling", 4096, ()),
    "double tree 16,384": ("double-tree", 16384, ()),
    "torus 4,096 (16 x 16 x 16)": ("torus", 4096, (16, 16, 16)),
    "pairwise all-to-all 2,048": ("pairwise", 2048, ()),
}
FAULT_RANKS = (4, 6)
SEEDS = 4


def build_and_prove(family: str, ranks: int, shape: list[int], kind: str = "") -> dict[str, Any]:
    """Build one schedule, prove it and count its bytes."""
    from syncline.schedule import Kind, build, counted_law, verify

    began = time.process_time()
    schedule = build(family, ranks, shape=tuple(shape), kind=Kind(kind) if kind else None)
    built = time.process_time()
    proved = verify(schedule)
    done = time.process_time()
    law = counted_law(schedule)
    return {
        "build_cpu_s": built - began,
        "prove_cpu_s": done - built,
        "count_cpu_s": time.process_time() - done,
        "moves": proved.num_moves,
        "rounds": law.rounds,
        "method": proved.method,
    }


def faults() -> dict[str, Any]:
    """Plant faults of every kind in every family; those the plain-Python twin calls wrong must be refused."""
    from tests.schedule.proof.faults import FAULTS

    from syncline.schedule.family.families import FAMILIES, Options
    from syncline.schedule.proof.flatten import flatten

    table: dict[str, dict[str, Counter[str]]] = {}
    for name, family in FAMILIES.items():
        table[name] = {fault: Counter() for fault in FAULTS}
        for kind in family.kinds:
            for ranks in FAULT_RANKS if kind != "all_to_allv" else ():
                schedule = family.make(Options(ranks, kind, peer=ranks - 1, chunks=3))
                kernel = flatten(schedule, schedule.strands[0])
                for fault in FAULTS:
                    table[name][fault].update(_try(kernel, fault))
    return {name: {fault: dict(counts) for fault, counts in row.items()} for name, row in table.items()}


def _try(kernel: Any, fault: str) -> Counter[str]:
    from tests.schedule.proof.faults import plant
    from tests.schedule.proof.reference import performs

    from syncline.errors import NotProvedError
    from syncline.schedule.proof.verify import prove_kernel

    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        broken = plant(kernel, fault, seed)
        harmful = not performs(broken)
        try:
            prove_kernel(broken)
            caught = False
        except NotProvedError:
            caught = True
        counts["tried"] += 1
        counts["harmless"] += not harmful
        counts["harmful"] += harmful
        counts["caught"] += harmful and caught
        counts["wrongly refused"] += caught and not harmful
    return counts


def run() -> dict[str, Any]:
    """Return time and peak memory of each large schedule, and the table of faults."""
    figures: dict[str, Any] = {"proofs": {}}
    for name, (family, ranks, shape, *kind) in (RINGS | LEVELS | OTHERS).items():
        cost = measure("schedules:build_and_prove", family=family, ranks=ranks, shape=list(shape), kind="".join(kind))
        figures["proofs"][name] = cost.result | {"cpu_s": cost.cpu_s, "peak_rss_MiB": cost.peak_rss_bytes / MIB}
    table = measure("schedules:faults").result
    total: Counter[str] = Counter()
    by_fault: dict[str, Counter[str]] = {}
    for row in table.values():
        for fault, counts in row.items():
            by_fault.setdefault(fault, Counter()).update(counts)
            total.update(counts)
    figures["faults"] = {
        "total": dict(total),
        "by_fault": {fault: dict(counts) for fault, counts in by_fault.items()},
        "by_family": table,
    }
    return figures
