"""Thirty questions, each asked of every verb that can answer it: do they agree?

    python benchmarks/run.py agreement

Of a collective: `simulate` at flow and at packet level, and what `bench` expects of the same algorithm; of NCCL's
choice: `simulate --algorithm nccl` and `bench`'s verdict. Of a job: `step`, `step --level flow`, `plan` with the same
split, the step that `plan` hands to `watch` (the time of its data-parallel collectives against `step`'s), and what an
hour of a GPU costs by `plan` and by `cost`.
A row has all answers and the largest over the smallest, less one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import syncline
from syncline.bench.expect import Oracle
from syncline.errors import SynclineError
from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.plan.answer import make_plan
from syncline.program import place
from syncline.sim.candidates import NAMES
from syncline.sim.flow.routing import NetworkOptions
from syncline.sim.step import step
from syncline.sim.step.collectives import priced_collectives
from syncline.sim.step.executed.execute import execute
from syncline.workload.read_job import load_job

SLOW = [{"link": "leaf-00 <-> host-01/nic-1", "rate": "50Gbps"}]
CLUSTERS: dict[str, dict[str, Any]] = {
    "h100": {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"},
    "h100 4:1": {"hosts": 4, "host": "dgx-h100",
                 "network": {"topology": "leaf-spine", "link": "NDR", "hosts_per_leaf": 2, "oversubscription": "4:1"}},
    "h100, a slow cable": {"hosts": 4, "host": "dgx-h100", "network": {"topology": "leaf-spine", "link": "NDR"},
                           "faults": SLOW},
    "p5": {"hosts": 4, "host": "p5", "network": {"topology": "leaf-spine", "link": "EFAv2"}},
    "a100": {"hosts": 4, "host": "dgx-a100", "network": {"topology": "leaf-spine", "link": "HDR"}},
    "polaris": {"hosts": 4, "host": "polaris", "network": {"topology": "leaf-spine", "link": "HDR"}},
}  # fmt: skip
COLLECTIVES = (("allreduce", "64MiB"), ("alltoall", "4MiB"), ("allgather", "16MiB"))


def collective(fabric: Fabric, name: str, size: str) -> dict[str, float]:
    """Return what verbs say of one collective by the algorithm that `simulate` chooses."""
    flow = syncline.simulate(fabric, name, size)
    assert flow.contest is not None and flow.largest is not None
    program = flow.contest.at(flow.largest).program
    oracle = Oracle(fabric, place("packed", fabric, fabric.num_gpus), NetworkOptions())
    return {
        "simulate": flow.time_s,
        "simulate --level packet": syncline.simulate(fabric, name, size, level="packet").time_s,
        "bench": oracle.program(program, [int(flow.rows[0]["size_bytes"])])[0].time_s,
    }


def vendor(fabric: Fabric) -> dict[str, float]:
    """Return what verbs say of NCCL's all-reduce of 256 MiB."""
    oracle = Oracle(fabric, place("packed", fabric, fabric.num_gpus))
    return {
        "simulate --algorithm nccl": syncline.simulate(fabric, "allreduce", "256MiB", algorithm="nccl").time_s,
        "bench": oracle.vendor(NAMES["allreduce"], [2**28], backend="nccl")[0].time_s,
    }


def trained(fabric: Fabric) -> dict[str, dict[str, float]]:
    """Return what verbs say of one training step: its time, its data-parallel exchange, its price."""
    dp = fabric.num_gpus // 4
    split = {"tp": 4, "dp": dp, "zero": "1"}
    job = load_job({"model": "llama3-8b", "parallel": split, "batch": {"global": 2 * dp, "sequence": 4096, "micro": 1}})
    found = step(fabric, job)
    fix = {"tp": 4, "pp": 1, "cp": 1, "dp": dp, "zero": "1", "micro": 1, "recompute": found.job.recompute}
    planned = make_plan(fabric, job, fix=fix, with_actions=False, with_run=False, execute=True)
    best = planned.best
    twin = step(fabric, planned.result.job)
    assert twin.cost is not None
    watched = sum(row["count"] * row["time_s"] for row in best.collectives if "@data/" in row["name"])
    priced = sum(row.count * row.time_s for row in priced_collectives(twin, best.decision.bucket_bytes)
                 if "@data/" in row.name)  # fmt: skip
    times = {
        "step": twin.step_time_s,
        "step --level flow": execute(fabric, twin).step_time_s,
        "plan": best.predicted.closed_form_s or best.predicted.step_time_s,
    }
    rows = {"time of a step": times}
    if watched > 0:
        rows["data-parallel exchange"] = {"watch (the plan's collectives)": watched, "step": priced}
    if best.cost is not None and best.cost.basis == "owned":
        bill: Any = syncline.cost(fabric, step_time="1s").to_json()
        hour = float(bill["owned"]["usd_per_gpu_hour"])
        rows["price of a GPU for an hour"] = {"plan": best.cost.usd_per_gpu_hour, "cost": hour}
    return rows


def run() -> dict[str, Any]:
    """Return every question with the answers to it."""
    rows: list[dict[str, Any]] = []
    for name, data in CLUSTERS.items():
        fabric = build(ClusterSpec.model_validate(data))
        asked: dict[str, dict[str, float]] = {}
        for op, size in COLLECTIVES:
            asked[f"{op} {size}"] = collective(fabric, op, size)
        try:
            asked["all-reduce 256 MiB by NCCL"] = vendor(fabric)
        except SynclineError as error:
            rows.append({"cluster": name, "question": "all-reduce 256 MiB by NCCL", "refused": error.message})
        asked |= trained(fabric)
        for question, answers in asked.items():
            values = list(answers.values())
            rows.append({"cluster": name, "question": question, "answers": answers,
                         "apart": max(values) / min(values) - 1})  # fmt: skip
    apart = [row["apart"] for row in rows if "apart" in row]
    return {
        "questions": len(rows), "apart_median": float(np.median(apart)), "apart_worst": max(apart),
        "over_10_percent": [f"{row['cluster']}: {row['question']}" for row in rows if row.get("apart", 0) > 0.10],
        "rows": rows,
    }  # fmt: skip
