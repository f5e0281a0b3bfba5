"""Random small clusters and faults: `simulate`, `nccl` and `plan` as a user asks them, against bounds and neighbours.

    python benchmarks/run.py one_truth_asked                300 cases
    NUM_CASES=100 FIRST_CASE=9000 python benchmarks/run.py one_truth_asked          of other seeds
    ROWS=rows.jsonl NUM_CASES=2000 python benchmarks/run.py one_truth_asked         goes on where it ended

For each case a collective by `auto`, by one family and by `nccl`, of three sizes; every fourth case also plans a job.
No answer is below its own bound, nor below one worked out from the description alone (what a host must send through its
NICs at the rate of their links, and the hosts of a leaf through its uplinks); and on a cluster that is nowhere worse
(faults repaired, one fault fewer, slow links twice as fast, no oversubscription, a faster WAN) no answer is slower by
more than 1 %. That is asked with flows sprayed over all paths (on a dragonfly routed by load, with detours); where each
takes one path by its hash (`ecmp`), a repaired link moves other flows too, and the luck of that is counted by itself
(`slower_by_hash`). Of `nccl` it is asked of the fastest that NCCL could choose: its tuner goes by figures of its own,
and where a better network moves it to a slower protocol that is counted as `slower_by_nccl_choice`; and where the
answer on the better network itself says that a port or cable is slower than none (NCCL gives every channel the same
share, spraying every path), that is counted as
`slower_by_slow_port`. A plan is asked without its actions, which do not change it. `one_truth` does the same for `step`
and its execution.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import syncline
from one_truth import SLOWER, better, fault
from syncline.errors import BelowBoundError, SynclineError
from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.plan.answer import make_plan
from syncline.workload.read_job import load_job

NUM_CASES = int(os.environ.get("NUM_CASES", "300"))
FIRST_CASE = int(os.environ.get("FIRST_CASE", "70000"))
ROWS = os.environ.get("ROWS", "")
SIZES = (1 << 10, 1 << 20, 1 << 28)
OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall")
FAMILIES = ("ring", "tree", "direct", "hierarchical", "halving-doubling", "bruck")
RATES_BPS = {"NDR": 50e9, "HDR": 25e9}
TOPOLOGIES = ("leaf-spine", "rail-optimized", "fat-tree", "rail-only", "dragonfly", "torus", "sites")


def cluster(rng: np.random.Generator) -> dict[str, Any]:
    """Return the description of a random small cluster."""
    hosts, per_host = int(rng.choice([2, 4, 8])), int(rng.choice([2, 4, 8]))
    if hosts == 8:
        per_host = min(per_host, 4)
    host = {"model": "dgx-h100", "gpus": per_host, "nics": per_host}
    topology, link = str(rng.choice(TOPOLOGIES)), str(rng.choice(list(RATES_BPS)))
    if topology == "sites":
        site = {"hosts": hosts // 2, "host": host, "network": f"rail-optimized {link}"}
        rate = str(rng.choice(["100Gbps", "400Gbps"]))
        return {"sites": [{"name": name, **site} for name in "ab"], "wan": {"rate": rate, "latency": "2ms"}}
    network: dict[str, Any] = {"topology": topology, "link": link}
    if topology in ("leaf-spine", "rail-optimized", "fat-tree"):
        network["oversubscription"] = str(rng.choice(["1:1", "2:1", "4:1"]))
    if topology == "leaf-spine":
        network["hosts_per_leaf"] = int(rng.choice([1, 2]))
    if topology == "torus":
        network |= {"shape": [2, hosts // 2] if hosts > 2 else [2], "of": "hosts"}
    return {"hosts": hosts, "host": host, "network": network}


def neighbours(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return clusters that are nowhere worse, by what they have better."""
    found = {}
    if any("rate" in row for row in data["faults"]):
        faster = [row | ({"rate": "100Gbps"} if "rate" in row else {}) for row in data["faults"]]
        found["slow links twice as fast"] = {**data, "faults": faster}
    if data["faults"]:
        found["repaired"] = {**data, "faults": []}
        found["one fault fewer"] = {**data, "faults": data["faults"][:-1]}
    if "sites" in data:
        found["a faster WAN"] = {**data, "wan": {**data["wan"], "rate": "800Gbps"}}
        return found
    if data["network"].get("oversubscription", "1:1") != "1:1":
        found["repaired, 1:1"] = better(data)
    return found


def by_hand_s(data: dict[str, Any], operation: str, size: int) -> float:
    """Return what a collective takes at least through the NICs of a host and the uplinks of a leaf that hosts share.

    By the description alone: nothing built from it is asked.
    """
    first = data["sites"][0] if "sites" in data else data
    hosts = sum(site["hosts"] for site in data["sites"]) if "sites" in data else data["hosts"]
    network = first["network"]
    link = network["link"] if isinstance(network, dict) else network.split()[1]
    per_host = first["host"]["gpus"]
    least = _leaves_s(operation, hosts, per_host, per_host)
    if "hosts_per_leaf" in first["network"]:
        under = network["hosts_per_leaf"]
        uplinks = math.ceil(under * per_host / float(network["oversubscription"].split(":")[0]))
        least = max(least, _leaves_s(operation, hosts // under, under * per_host, uplinks))
    return least * size / RATES_BPS[link]


def _leaves_s(operation: str, parts: int, gpus: int, links: int) -> float:
    """Return how long each of equal parts of a cluster sends, in buffers over the rate of a link."""
    if parts < 2:
        return 0.0
    others = (parts - 1) / parts
    sent = {"allreduce": 2 * others, "allgather": others, "reducescatter": others, "broadcast": 1, "reduce": 1,
            "alltoall": gpus * others}[operation]  # fmt: skip
    return sent / links


def collective(
    fabric: Fabric, operation: str, algorithm: str, routing: str
) -> list[tuple[float, float, float, bool]] | None:
    """Return time, bound, the fastest that could be chosen and whether a port is slower than none, of each size.

    None where the question is refused.
    """
    try:
        answer = syncline.simulate(fabric, operation, SIZES, algorithm=algorithm, routing=routing)
    except SynclineError as error:
        if isinstance(error, BelowBoundError) or "bug of" in str(error):
            raise
        return None
    slow_port = any("is slower than none" in line for line in answer.how.get("assumed", ()))
    return [
        (float(row["time_s"]), float(row["bound_s"]), float(row.get("fastest_s", row["time_s"])), slow_port)
        for row in answer.rows
    ]


def planned(fabric: Fabric, job: dict[str, Any]) -> tuple[float, float, bool] | None:
    """Return time and bound of the best plan, and whether it names a port slower than none; None: nothing fits."""
    try:
        best = make_plan(fabric, load_job(job), with_actions=False, with_run=False, execute=True).best.predicted
    except SynclineError as error:
        if isinstance(error, BelowBoundError) or "bug of" in str(error):
            raise
        return None
    return best.step_time_s, best.bound_s, any("is slower than none" in line for line in best.warnings)


def one(seed: int) -> dict[str, Any] | None:
    """Return what one case showed; None where the description is refused."""
    rng = np.random.default_rng(seed)
    data = cluster(rng)
    try:
        healthy = build(ClusterSpec.model_validate(data))
        data |= {"faults": [row for _ in range(2) for row in fault(rng, healthy)]}
        fabric = build(ClusterSpec.model_validate(data))
    except SynclineError:
        return None
    others = neighbours(data)
    chosen = str(rng.choice(list(others))) if others else ""
    other = build(ClusterSpec.model_validate(others[chosen])) if chosen else None
    operation = str(rng.choice(OPERATIONS))
    found: dict[str, Any] = {"seed": seed, "operation": operation, "better": chosen, "answers": 0, "compared": 0,
                             "below": [], "slower": [], "slower_by_hash": [],
                             "slower_by_slow_port": [], "slower_by_nccl_choice": [],
                             "oracle_below_hand": []}  # fmt: skip
    family = str(rng.choice(FAMILIES))
    even = "ugal" if data.get("network", {}).get("topology") == "dragonfly" else "spray"
    for algorithm, routing in (
        ("auto", "ecmp"),
        ("auto", even),
        (family, "ecmp"),
        (family, even),
        ("nccl", "auto"),
    ):
        rows = collective(fabric, operation, algorithm, routing)
        twin = collective(other, operation, algorithm, routing) if other and rows else None
        for at, (size, (time_s, bound_s, fastest_s, _)) in enumerate(zip(SIZES, rows or (), strict=False)):
            hand_s, what = by_hand_s(data, operation, size), f"{algorithm} {operation} {size} {routing}"
            found["answers"] += 1
            if time_s < max(bound_s, hand_s) * (1 - 1e-9):
                found["below"].append(f"{what}: {time_s:.4g} s, bound {bound_s:.4g} s, by hand {hand_s:.4g} s")
            if bound_s < hand_s * (1 - 1e-9):
                found["oracle_below_hand"].append(f"{what}: {bound_s:.4g} s, by hand {hand_s:.4g} s")
            if twin:
                found["compared"] += 1
                more, least = twin[at][0] / time_s - 1, twin[at][2] / fastest_s - 1
                if more > SLOWER - 1:
                    chose = "slower_by_nccl_choice" if least <= SLOWER - 1 else "slower"
                    kind = "slower_by_hash" if routing == "ecmp" else "slower_by_slow_port" if twin[at][3] else chose
                    found[kind].append(f"{what}: {time_s:.4g} s, {more:+.1%} with {chosen}")
    if seed % 4 == 0:
        _plan(fabric, other, chosen, rng, found)
    return found


def _plan(fabric: Fabric, other: Fabric | None, chosen: str, rng: np.random.Generator, found: dict[str, Any]) -> None:
    batch = {"global": int(rng.choice([32, 64, 128])), "sequence": int(rng.choice([2048, 4096]))}
    job = {"model": str(rng.choice(["llama3-8b", "llama3.2-1b"])), "batch": batch}
    here = planned(fabric, job)
    if here is None:
        return
    found["planned"] = True
    if here[0] < here[1] * (1 - 1e-9):
        found["below"].append(f"plan: {here[0]:.4g} s, bound {here[1]:.4g} s")
    there = planned(other, job) if other else None
    if there and there[0] > SLOWER * here[0]:
        kind = "slower_by_slow_port" if there[2] else "slower"
        found[kind].append(f"plan: {here[0]:.4g} s, {there[0] / here[0] - 1:+.1%} with {chosen}")


def _kept() -> Callable[[int], dict[str, Any] | None]:
    """Return `one` with a line for each case in the file of ROWS, and those that are there already read from it."""
    path = Path(ROWS)
    lines = path.read_text().splitlines() if path.exists() else []
    known: dict[int, dict[str, Any] | None] = dict(json.loads(line) for line in lines)

    def ask(seed: int) -> dict[str, Any] | None:
        if seed not in known:
            known[seed] = one(seed)
            with path.open("a") as out:
                out.write(json.dumps([seed, known[seed]]) + "\n")
        return known[seed]

    return ask


def run() -> dict[str, Any]:
    """Return how the cases came out."""
    began = time.process_time()
    rows = [row for row in map(_kept() if ROWS else one, range(FIRST_CASE, FIRST_CASE + NUM_CASES)) if row]

    def told(name: str) -> list[str]:
        return [f"{row['seed']}: {line}" for row in rows for line in row[name]]

    return {
        "cases": NUM_CASES,
        "first_seed": FIRST_CASE,
        "built": len(rows),
        "answers_of_simulate_and_nccl": sum(row["answers"] for row in rows),
        "compared": sum(row["compared"] for row in rows),
        "plans": sum(row.get("planned", False) for row in rows),
        "neighbours": dict(Counter(row["better"] or "none" for row in rows)),
        "operations": dict(Counter(row["operation"] for row in rows)),
        "below_bound": told("below"),
        "oracle_below_hand": told("oracle_below_hand"),
        "slower_when_better": told("slower"),
        "slower_by_hash": told("slower_by_hash"),
        "slower_by_nccl_choice": told("slower_by_nccl_choice"),
        "slower_by_slow_port": told("slower_by_slow_port"),
        "cpu_s": time.process_time() - began,
    }
