"""Best known schedules on random clusters: never below the bound, never behind NCCL's model, never slower when better.

    python research/collectives/best_known.py 2000        as many clusters, one line for each that breaks a rule

Every cluster is drawn from its number: hosts, GPUs, networks, sites of different size, slow and failed ports.
"""

from __future__ import annotations

import random
import sys
import time
from copy import deepcopy
from typing import Any

from syncline.fabric.build import build
from syncline.fabric.fabric import Fabric, Tier
from syncline.fabric.spec import ClusterSpec
from syncline.program import place
from syncline.schedule import Kind
from syncline.sim.best.best import BestSearch
from syncline.sim.collective.price import price

KINDS = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.BROADCAST, Kind.REDUCE, Kind.ALL_TO_ALL)
SIZES = (1 << 16, 1 << 26, 1 << 30)
TIE = 1.01
RUNS = 100


def drawn(seed: int) -> dict[str, Any]:
    """Return the description of one cluster."""
    draw = random.Random(seed)
    gpus = draw.choice([1, 2, 4, 8])
    host = {"model": draw.choice(["dgx-h100", "dgx-a100"]), "gpus": gpus, "nics": gpus}
    link = draw.choice(["HDR", "NDR", "EDR"])
    kind = draw.choice(["rail-optimized", "rail-only", "fat-tree", "leaf-spine"])
    network: dict[str, Any] = {"topology": kind, "link": link}
    if kind == "leaf-spine":
        network["hosts_per_leaf"] = draw.choice([2, 4])
    if kind in ("leaf-spine", "fat-tree"):
        network["oversubscription"] = draw.choice(["1:1", "2:1", "4:1"])
    if draw.random() < 0.4:
        sites = [{"name": name, "hosts": draw.randint(1, 5), "host": host, "network": network}
                 for name in "abcd"[: draw.randint(2, 4)]]  # fmt: skip
        wan = {"rate": draw.choice(["100Gbps", "400Gbps", "800Gbps"]), "latency": draw.choice(["20us", "1ms", "5ms"]),
               "pattern": draw.choice(["mesh", "ring", "star"]) if len(sites) > 2 else "mesh"}  # fmt: skip
        return {"sites": sites, "wan": wan}
    return {"hosts": draw.randint(2, 12), "host": host, "network": network}


def faulty(description: dict[str, Any], seed: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the cluster with a slow port, and with the same port slower still."""
    draw = random.Random(seed + 1_000_003)
    fabric = built(description)
    ports = [fabric.link_name(int(link)) for nic in fabric.nics for link in fabric.out_links(nic)
             if fabric.links.tier[link] == Tier.ACCESS]  # fmt: skip
    if not ports:
        return None
    name = draw.choice(ports).replace("->", "<->")
    better, worse = deepcopy(description), deepcopy(description)
    better["faults"] = [{"link": name, "which": 0, "rate": "50Gbps"}]
    worse["faults"] = [{"link": name, "which": 0, "rate": "25Gbps"}]
    return better, worse


def built(description: dict[str, Any]) -> Fabric:
    """Return the fabric of a description."""
    return build(ClusterSpec.model_validate(description))


def prices(description: dict[str, Any], kinds: tuple[Kind, ...] = KINDS) -> dict[tuple[Kind, int], tuple[float, float]]:
    """Return the best known time, and the bound, by collective and size."""
    placed = place("auto", built(description), None)
    found = {}
    for kind in kinds:
        search = BestSearch(kind, placed)
        for size in SIZES:
            best = search.at(size)
            found[kind, size] = (best.time_s, best.bound_s)
    return found


def broken(seed: int, kinds: tuple[Kind, ...] = KINDS) -> list[str]:
    """Return the rules that a cluster breaks, in words."""
    description = drawn(seed)
    sound = prices(description, kinds)
    words = []
    placed = place("auto", built(description), None)
    for (kind, size), (best, bound) in sound.items():
        if best < bound * (1 - 1e-6):
            words.append(f"{kind} {size}: {best} s is below the bound {bound}")
        known = price(kind, size, placed)
        if known.nccl is not None and known.best.time_s > known.nccl.time_s * (1 + 1e-9):
            words.append(f"{kind} {size}: {known.best.time_s} s is slower than NCCL's {known.nccl.time_s}")
    if "sites" in description:
        words += _alike(sound, prices(description | {"sites": description["sites"][::-1]}, kinds), "sites reversed")
    pair = faulty(description, seed)
    if pair is not None:
        better, worse = (prices(each, kinds) for each in pair)
        words += _not_slower(sound, better, "a sound port") + _not_slower(better, worse, "a faster port")
    return words


def _alike(one: dict[Any, tuple[float, float]], other: dict[Any, tuple[float, float]], what: str) -> list[str]:
    return [f"{key[0]} {key[1]}: {what}: {one[key][0]} and {other[key][0]} s" for key in one
            if abs(one[key][0] - other[key][0]) > 1e-3 * one[key][0]]  # fmt: skip


def _not_slower(better: dict[Any, tuple[float, float]], worse: dict[Any, tuple[float, float]], what: str) -> list[str]:
    return [f"{key[0]} {key[1]}: {what}: {better[key][0]} s, without it {worse[key][0]}" for key in better
            if better[key][0] > TIE * worse[key][0]]  # fmt: skip


def run() -> dict[str, float]:
    """Return how many clusters break a rule."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else RUNS
    begin = time.process_time()
    bad = 0
    for seed in range(count):
        words = broken(seed)
        bad += bool(words)
        for each in words:
            print(f"{seed}: {each}", flush=True)
    return {"clusters": count, "clusters_that_break_a_rule": bad, "cpu_s": time.process_time() - begin}


if __name__ == "__main__":
    print(run())
