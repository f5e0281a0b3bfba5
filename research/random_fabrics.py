"""Random fabrics, jobs and faults: every answer against its bound, its neighbours and another level.

    python -m research random_fabrics              2,000 cases
    NUM_CASES=200 FIRST_CASE=5000 python -m research random_fabrics        of other seeds, below 10,000
    NUM_CASES=0 NUM_WIDE=300 FIRST_WIDE=60000 python -m research random_fabrics        wide cases of other seeds

Wide cases (seeds from 10,000 on) have what the others leave out: hosts with more or fewer NICs than GPUs, planes,
rack-scale NVLink, odd numbers of hosts, GPUs left idle, three sites, and up to three faults at once.

For each case: no estimate of `nccl` or `step` beats its bound (the models raise where one does), and no low end of an
interval that or the model's operations at the peak rate; a fabric with
the fault repaired or none of the oversubscription is never slower by more than 1 %; and the step's closed form stands
beside its execution at flow level. Gaps above 15 % carry the causes that `syncline step` prints
(`sim/step/executed/gap.py`). `one_price` asks the price of collectives.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np

from syncline.errors import BelowBoundError, SynclineError
from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.sim.nccl.describe import from_fabric
from syncline.sim.nccl.predict import predict
from syncline.sim.step.executed.account import executed_account
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.executed.gap import causes
from syncline.sim.step.step import step
from syncline.timeline.account import Account, StepCause
from syncline.workload.read_job import load_job

NUM_CASES = int(os.environ.get("NUM_CASES", "2000"))
FIRST_CASE = int(os.environ.get("FIRST_CASE", "0"))
MODELS = ("llama3-8b", "llama3-70b", "mixtral-8x7b")
NUM_WIDE = int(os.environ.get("NUM_WIDE", "500"))
WIDE = 10_000
"""The least seed of wide cases."""
FIRST_WIDE = int(os.environ.get("FIRST_WIDE", str(WIDE)))
HOSTS = {"dgx-h100": "NDR", "p5": "EFAv2", "p5en": "EFAv3", "dgx-a100": "HDR", "gb200-nvl72": "NDR", "polaris": "HDR"}
SLOWER = 1.01


def cluster(rng: np.random.Generator) -> dict[str, Any]:
    """Return the description of a random cluster; `over` and `faults` can be taken back."""
    hosts = int(rng.choice([4, 8, 16, 32]))
    topology = str(rng.choice(["leaf-spine", "rail-optimized", "fat-tree", "rail-only", "dragonfly", "torus", "sites"]))
    over = str(rng.choice(["1:1", "2:1", "4:1", "8:1"]))
    link = str(rng.choice(["NDR", "HDR"]))
    if topology == "sites":
        site = {"hosts": hosts // 2, "host": "dgx-h100", "network": f"rail-optimized {link}"}
        rate = str(rng.choice(["100Gbps", "400Gbps"]))
        return {"sites": [{"name": "a", **site}, {"name": "b", **site}], "wan": {"rate": rate, "latency": "2ms"}}
    network: Any = {"topology": topology, "link": link, "oversubscription": over}
    if topology == "leaf-spine":
        network["hosts_per_leaf"] = int(rng.choice([2, 4]))
    if topology in ("rail-only", "dragonfly"):
        network = f"{topology} {link}"
    if topology == "torus":
        network = {"topology": "torus", "link": link, "shape": [2, 2, hosts // 4], "of": "hosts"}
    return {"hosts": hosts, "host": "dgx-h100", "network": network}


def wide_cluster(rng: np.random.Generator) -> dict[str, Any]:
    """Return the description of a random cluster of the kinds that `cluster` leaves out."""
    kind = str(rng.choice(["hosts", "hosts", "planes", "sites"]))
    if kind == "planes":
        plane = {"topology": str(rng.choice(["leaf-spine", "fat-tree"])), "link": "NDR200"}
        host = {"model": "dgx-h100", "nic": "ConnectX-7 2x200G", "ports_per_nic": 2}
        network: Any = {"topology": "multi-plane", "planes": 2, "link": "NDR200", "plane": plane}
        return {"hosts": int(rng.choice([3, 6, 8])), "host": host, "network": network}
    if kind == "sites":
        site = {"hosts": int(rng.choice([2, 3, 4])), "host": "dgx-h100", "network": "rail-optimized NDR"}
        wan = {"rate": str(rng.choice(["50Gbps", "200Gbps"])), "latency": "5ms"}
        return {"sites": [{"name": name, **site} for name in "abc"], "wan": wan}
    model = str(rng.choice(list(HOSTS)))
    network = {"topology": "leaf-spine", "link": HOSTS[model], "oversubscription": str(rng.choice(["1:1", "3:1"]))}
    hosts = int(rng.choice([3, 5, 6, 9, 12])) * (6 if model == "gb200-nvl72" else 1)
    return {"hosts": hosts, "host": model, "network": network}


def wide_job(rng: np.random.Generator, num_gpus: int) -> dict[str, Any]:
    """Return a random job that may leave GPUs idle, its replicas any number."""
    tp, pp = int(rng.choice([1, 2, 4])), int(rng.choice([1, 2]))
    dp = max(1, num_gpus // (tp * pp) - int(rng.choice([0, 0, 1, 3])))
    zero = str(rng.choice(["none", "1", "fsdp"] if pp == 1 else ["none", "1"]))
    batch = {"global": dp * int(rng.choice([1, 2, 4])), "sequence": 4096, "micro": 1}
    return {"model": "llama3-8b", "parallel": {"tp": tp, "pp": pp, "dp": dp, "zero": zero}, "batch": batch}


def fault(rng: np.random.Generator, fabric: Fabric) -> list[dict[str, Any]]:
    """Return no fault, or one slow or failed link of the network."""
    network = np.flatnonzero((fabric.links.tier >= 3) & (fabric.links.tier <= 5))
    if rng.random() < 0.4 or not len(network):
        return []
    link = int(rng.choice(network))
    name = fabric.link_name(link).replace("->", "<->")
    return [{"link": name, "which": 0} | ({"rate": "50Gbps"} if rng.random() < 0.6 else {})]


def job(rng: np.random.Generator, num_gpus: int) -> dict[str, Any]:
    """Return a random job that divides on so many GPUs."""
    model = str(rng.choice(MODELS))
    tp, pp = int(rng.choice([1, 2, 4, 8])), int(rng.choice([1, 2, 4]))
    pp = pp if tp * pp <= num_gpus else 1
    parallel: dict[str, Any] = {"tp": tp, "pp": pp, "zero": str(rng.choice(["none", "1", "fsdp"]))}
    if parallel["zero"] == "fsdp":
        parallel["pp"] = 1
    if model == "mixtral-8x7b":
        parallel["ep"] = int(rng.choice([1, 8]))
    batch = {"global": int(rng.choice([1, 2, 4])) * num_gpus, "sequence": 4096, "micro": 1}
    return {"model": model, "parallel": parallel, "batch": batch}


def better(data: dict[str, Any]) -> dict[str, Any]:
    """Return a cluster that is nowhere worse: no faults, no oversubscription."""
    network = data.get("network")
    plain = (
        {**network, "oversubscription": "1:1"}
        if isinstance(network, dict) and "oversubscription" in network
        else network
    )
    return {**data, "faults": [], **({"network": plain} if plain is not None else {})}


def account_off(account: Account) -> dict[str, float]:
    """Return by how much of the step an account's parts miss it, and its network part what a free network saves.

    Nothing else of a predicted step hides behind the network, so its part and the saving differ by what exchanges
    delay beside themselves (bubbles, stragglers), never by work that hid behind them.
    """
    free = account.removal(StepCause.NETWORK)
    assert free is not None
    miss = abs(sum(line.seconds for line in account.lines) / account.step_s - 1)
    behind = free.behind_s / account.step_s
    return {"sum": miss, "hid": max(behind, 0.0), "delays": max(-behind, 0.0)}


def one(seed: int) -> dict[str, Any] | None:
    """Return what one case showed; None where the description or the job is refused."""
    rng = np.random.default_rng(seed)
    wide = seed >= WIDE
    data = wide_cluster(rng) if wide else cluster(rng)
    try:
        healthy = build(ClusterSpec.model_validate(data))
        data = {**data, "faults": [row for _ in range(3 if wide else 1) for row in fault(rng, healthy)]}
        fabric, whole = (build(ClusterSpec.model_validate(each)) for each in (data, better(data)))
        described = load_job((wide_job if wide else job)(rng, fabric.num_gpus))
        found, ideal = step(fabric, described), step(whole, described)
        ran = execute(fabric, found)
    except SynclineError as error:
        if isinstance(error, BelowBoundError) or "bug of" in str(error):
            raise
        return None
    systems = [from_fabric(each) for each in (fabric, whole)]
    nccl = [float(predict(system, "all_reduce", [2.0**28]).time_us[0]) for system in systems]
    parts = {name: value for name, value in found.parts_s.items() if name not in ("compute", "fixed")}
    lows = [found.interval(took, shared=known).p90[0] for took in (None, ran.step_time_s) for known in ("", "job")]
    roofline_s = found.mfu * found.step_time_s  # the model's operations at the datasheet's rate
    return {
        "seed": seed,
        "gap": ran.step_time_s / found.step_time_s - 1,
        "below": bool(
            min(ran.step_time_s, found.step_time_s) < found.floor_s * (1 - 1e-9)
            or min(lows) < max(found.floor_s, roofline_s) * (1 - 1e-9)
        ),
        "causes": list(causes(found, ran)),
        "accounts": [account_off(found.account), account_off(executed_account(found.account, ran))],
        "slower_when_better": bool(ideal.step_time_s > SLOWER * found.step_time_s or nccl[1] > SLOWER * nccl[0]),
        "topology": data["network"]["topology"]
        if isinstance(data.get("network"), dict)
        else str(data.get("network", "sites")),
        "largest": max(parts, key=parts.__getitem__),
    }


def run() -> dict[str, Any]:
    """Return how the cases came out."""
    return {
        **told(NUM_CASES, range(FIRST_CASE, FIRST_CASE + NUM_CASES)),
        "wide": told(NUM_WIDE, range(FIRST_WIDE, FIRST_WIDE + NUM_WIDE)),
    }


def told(num: int, seeds: range) -> dict[str, Any]:
    """Return how the cases of some seeds came out."""
    rows = [row for row in map(one, seeds) if row is not None]
    if not rows:
        return {"cases": num, "answered": 0}
    gaps = np.abs([row["gap"] for row in rows])
    large = [row for row in rows if abs(row["gap"]) > 0.30]
    return {
        "cases": num,
        "first_seed": seeds.start,
        "answered": len(rows),
        "below_bound": [row["seed"] for row in rows if row["below"]],
        "slower_when_better": [row["seed"] for row in rows if row["slower_when_better"]],
        "gap_median": float(np.median(gaps)),
        "gap_p90": float(np.quantile(gaps, 0.9)),
        "gap_worst": float(gaps.max()),
        "gaps_over_30_percent": dict(Counter(f"{row['topology']}: {row['largest']}" for row in large)),
        "gap_p99": float(np.quantile(gaps, 0.99)),
        "over_30_percent_without_cause": [row["seed"] for row in large if not row["causes"]],
        "account": {
            key: {
                "median": float(np.median([each[key] for row in rows for each in row["accounts"]])),
                "worst": max(each[key] for row in rows for each in row["accounts"]),
            }
            for key in ("sum", "hid", "delays")
        },
        "worst": sorted(rows, key=lambda row: -abs(row["gap"]))[:20],
    }
