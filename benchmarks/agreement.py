"""A hundred questions, each asked of every verb that can answer it: do they agree?

    python benchmarks/run.py agreement
    CLUSTERS=p5,planes,design python benchmarks/run.py agreement

Of a collective: `simulate` at flow and at packet level, what `bench` expects of the same algorithm, a scenario of that
job alone, and the winner of `compare-algorithms`; of NCCL's choice: `simulate --algorithm nccl` and `bench`'s verdict.
Of a job: `step`, `step --level flow`, `plan` with the same split, `place` in the scheduler's order and `share` with the
cluster to itself; the step that `plan` hands to `watch` (the time of its data-parallel collectives against `step`'s),
and what an hour of a GPU costs by `plan` and by `cost`.
Of a fabric that `design` chose: its step, closed and executed, against `plan` and `step` on the description it writes,
its capital against `cost`'s, and a collective on it of the verbs above.
A row has all answers and the largest over the smallest, less one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np

import syncline
from syncline.bench.expect import Oracle
from syncline.errors import SynclineError
from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.planning.answer import make_plan
from syncline.program import place
from syncline.questions.place import place as place_ranks
from syncline.questions.share import share
from syncline.sim.candidates import NAMES
from syncline.sim.flow.routing import NetworkOptions
from syncline.sim.play import play
from syncline.sim.scenario import load_scenario
from syncline.sim.step.collectives import priced_collectives
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job

Answers = dict[str, float]
SLOW = [{"link": "leaf-00 <-> host-01/nic-1", "rate": "50Gbps"}]
RAIL = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
PLANE = {"topology": "leaf-spine", "link": "NDR200"}
SITE = {"hosts": 2, "host": "dgx-h100", "network": "rail-optimized NDR"}


def _plain(host: str, link: str, hosts: int = 4, **more: Any) -> dict[str, Any]:
    return {"hosts": hosts, "host": host, "network": {"topology": "leaf-spine", "link": link, **more}}


CLUSTERS: dict[str, dict[str, Any]] = {
    "h100": RAIL,
    "h100 4:1": _plain("dgx-h100", "NDR", hosts_per_leaf=2, oversubscription="4:1"),
    "h100, a slow cable": {**_plain("dgx-h100", "NDR"), "faults": SLOW},
    "p5": _plain("p5", "EFAv2"),
    "a100": _plain("dgx-a100", "HDR"),
    "polaris": _plain("polaris", "HDR"),
    # New: faults, planes, sites, hosts that differ, meshes, domains of several hosts, sockets, other routing.
    "a failed rail": {**RAIL, "faults": [{"device": "leaf-03"}]},
    "a failed NIC": {**RAIL, "faults": [{"device": "host-02/nic-5"}]},
    "three faults": {**_plain("dgx-h100", "NDR", hosts_per_leaf=2, oversubscription="2:1"),
                     "faults": [{"link": "leaf-00 <-> spine-00", "which": 0}, {"device": "host-01/nic-0"},
                                {"link": "leaf-01 <-> host-02/nic-3", "rate": "100Gbps"}]},
    "planes": {"hosts": 3, "host": {"model": "dgx-h100", "nic": "ConnectX-7 2x200G", "ports_per_nic": 2},
               "network": {"topology": "multi-plane", "planes": 2, "link": "NDR200", "plane": PLANE}},
    "two sites": {"sites": [{"name": name, **SITE} for name in "ab"], "wan": {"rate": "400Gbps", "latency": "1ms"}},
    "hosts that differ": {"hosts": [{"count": 2, "host": "dgx-h100"}, {"count": 2, "host": "dgx-h200"}],
                          "network": "rail-optimized NDR"},
    "p5en": _plain("p5en", "EFAv3"),
    "mi300x": _plain("mi300x-8", "400GbE"),
    "nvl72": _plain("gb200-nvl72", "NDR", 36),
    "slingshot": _plain("polaris", "Slingshot-11"),
    "sockets": _plain("old-server-10gbe", "10GbE"),
    "adaptive": _plain("dgx-h100", "400GbE", hosts_per_leaf=2, routing="adaptive"),
    "fat-tree": {"hosts": 6, "host": "dgx-h100", "network": {"topology": "fat-tree", "link": "400GbE"}},
}  # fmt: skip
DESIGNS: dict[str, dict[str, Any]] = {
    "8B on 32": {"job": "llama3-8b", "gpus": 32, "global": 64},
    "70B on 64": {"job": "llama3-70b", "gpus": 64, "global": 64},
    "experts on 64": {"job": "mixtral-8x7b", "gpus": 64, "global": 128},
    "8B on two sites": {"job": "llama3-8b", "gpus": 64, "global": 128, "sites": 2, "wan": "400Gbps,2ms"},
}
"""Jobs that `design` finds a fabric for."""
COLLECTIVES = (("allreduce", "64MiB"), ("alltoall", "4MiB"), ("allgather", "16MiB"))


def collective(fabric: Fabric, name: str, size: str) -> Answers:
    """Return what verbs say of one collective by the algorithm that `simulate` chooses."""
    flow = syncline.simulate(fabric, name, size)
    assert flow.contest is not None and flow.largest is not None
    program = flow.contest.at(flow.largest).program
    oracle = Oracle(fabric, place("auto", fabric, fabric.num_gpus), NetworkOptions())
    job = {"name": "a", "collective": name, "size": size, "placement": "packed"}
    return {
        "simulate": flow.time_s,
        "simulate --level packet": syncline.simulate(fabric, name, size, level="packet").time_s,
        "bench": oracle.program(program, [int(flow.rows[0].size_bytes)])[0].time_s,
        "scenario": play(load_scenario({"jobs": [job]}), fabric).jobs[0].took_s,
        "compare-algorithms": min(row.time_s for row in syncline.compare_algorithms(fabric, name, size).rows),
    }


def vendor(fabric: Fabric) -> Answers:
    """Return what verbs say of NCCL's all-reduce of 256 MiB."""
    oracle = Oracle(fabric, place("packed", fabric, fabric.num_gpus))
    return {
        "simulate --algorithm nccl": syncline.simulate(fabric, "allreduce", "256MiB", algorithm="nccl").time_s,
        "bench": oracle.vendor(NAMES["allreduce"], [2**28], backend="nccl")[0].time_s,
    }


def trained(fabric: Fabric) -> dict[str, Answers]:
    """Return what verbs say of one training step: its time, its data-parallel exchange, its price."""
    tp = min(4, fabric.num_gpus // fabric.num_hosts)
    dp = fabric.num_gpus // tp
    split = {"tp": tp, "dp": dp, "zero": "1"}
    described = {"model": "llama3-8b", "parallel": split, "batch": {"global": 2 * dp, "sequence": 4096, "micro": 1}}
    job = load_job(described)
    found = step(fabric, job)
    fix = {"tp": tp, "pp": 1, "cp": 1, "dp": dp, "zero": "1", "micro": 1, "recompute": found.job.recompute}
    planned = make_plan(fabric, job, fix=fix, with_actions=False, with_run=False)
    best = planned.best
    twin = step(fabric, planned.result.job)
    assert twin.cost is not None
    watched = sum(row.count * row.time_s for row in best.collectives if "@data/" in row.name)
    priced = sum(row.count * row.time_s for row in priced_collectives(twin, best.decision.bucket_bytes)
                 if "@data/" in row.name)  # fmt: skip
    times = {
        "step": twin.step_time_s,
        "step --level flow": execute(fabric, twin).step_time_s,
        "plan": best.predicted.closed_form_s or best.predicted.step_time_s,
    }
    rows = {"time of a step": times, "the same step on the links": laid(fabric, described)}
    if watched > 0:
        rows["data-parallel exchange"] = {"watch (the plan's collectives)": watched, "step": priced}
    if best.cost is not None and best.cost.basis == "owned":
        bill: Any = syncline.cost(fabric, step_time="1s").to_json()
        hour = float(bill["owned"]["usd_per_gpu_hour"])
        rows["price of a GPU for an hour"] = {"plan": best.cost.usd_per_gpu_hour, "cost": hour}
    return rows


def laid(fabric: Fabric, job: dict[str, Any]) -> Answers:
    """Return what verbs that lay a step on the links say of it: executed, placed and alone on a shared cluster."""
    found = {"step --level flow": execute(fabric, step(fabric, load_job(job))).step_time_s}
    jobs = {"jobs": [{"name": "a", "job": job, "hosts": f"0-{fabric.num_hosts - 1}"}]}
    asks: dict[str, Callable[[], float]] = {
        "place": lambda: place_ranks(fabric, job, hosts=f"0-{fabric.num_hosts - 1}").packed_s,
        "share": lambda: share(fabric, jobs).epochs[0].jobs[0].alone_s,
    }
    for name, ask in asks.items():
        try:
            found[name] = ask()
        except SynclineError as error:
            print(f"  {fabric.name}: {name}: {error.message}")
    return found


def designed(name: str) -> list[dict[str, Any]]:
    """Return what `design` says of the fabric it chooses, and other verbs of the description that it writes."""
    asked = dict(DESIGNS[name])
    job = load_job({"model": asked.pop("job"), "batch": {"global": asked.pop("global"), "sequence": 4096}})
    answer = syncline.design(job, **asked)
    written = json.loads(json.dumps(answer.cluster()))
    fabric = build(ClusterSpec.model_validate({"name": f"design: {name}", **written}))
    planned = make_plan(fabric, job, with_actions=False, with_run=False)
    found: dict[str, Answers] = {
        "a step on design's fabric": {
            "design": answer.best.step_s[0],
            "plan": planned.best.predicted.step_time_s,
            "step --level flow": execute(fabric, step(fabric, planned.result.job)).step_time_s,
        },
        "what design's fabric costs": {"design": answer.best.capital_usd, "cost": _capital(fabric)},
    }
    about = {"cluster": f"design: {name}: {answer.best.choice.label}"}
    rows = [about | {"question": question, **_apart(answers)} for question, answers in found.items()]
    try:
        return [*rows, about | {"question": "allreduce 64MiB", **_apart(collective(fabric, "allreduce", "64MiB"))}]
    except SynclineError as error:
        return [*rows, about | {"question": "allreduce 64MiB", "refused": error.message}]


def _capital(fabric: Fabric) -> float:
    bill: Any = syncline.cost(fabric, step_time="1s").to_json()
    return float(bill["owned"]["capital_usd"])


def _apart(answers: Answers) -> dict[str, Any]:
    return {"answers": answers, "apart": max(answers.values()) / min(answers.values()) - 1}


def asked_of(name: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every question about a cluster with the answers to it."""
    fabric = build(ClusterSpec.model_validate({"name": name, **data}))
    questions: dict[str, Callable[[], dict[str, Answers]]] = {}
    for op, size in COLLECTIVES:
        questions[f"{op} {size}"] = lambda op=op, size=size: {f"{op} {size}": collective(fabric, op, size)}  # type: ignore[misc]
    questions["all-reduce 256 MiB by NCCL"] = lambda: {"all-reduce 256 MiB by NCCL": vendor(fabric)}
    questions["a training step"] = lambda: trained(fabric)
    rows: list[dict[str, Any]] = []
    for question, ask in questions.items():
        try:
            found = ask()
        except SynclineError as error:
            rows.append({"cluster": name, "question": question, "refused": error.message})
            continue
        for each, answers in found.items():
            rows.append({"cluster": name, "question": each, **_apart(answers)})
    return rows


def run() -> dict[str, Any]:
    """Return every question with the answers to it."""
    every = ",".join(CLUSTERS).replace(", ", "; ") + ",design"
    chosen = os.environ.get("CLUSTERS", every).split(",")
    rows = [
        row for name, data in CLUSTERS.items() if name.replace(", ", "; ") in chosen for row in asked_of(name, data)
    ]
    rows += [row for name in DESIGNS if "design" in chosen for row in designed(name)]
    apart = [row["apart"] for row in rows if "apart" in row]
    return {
        "questions": len(rows), "apart_median": float(np.median(apart)), "apart_worst": max(apart),
        "over_5_percent": [
            f"{row['cluster']}: {row['question']}: {row['apart']:.1%}" for row in rows if row.get("apart", 0) > 0.05
        ],
        "refused": [f"{row['cluster']}: {row['question']}: {row['refused']}" for row in rows if "refused" in row],
        "rows": rows,
    }  # fmt: skip
