"""Designs asked again: whether `plan`, `step` and `cost` of every fabric on a front say what the front says.

Asks are drawn: models that are dense or have experts, 16 to 2,048 GPUs, hosts of several makers, links, limits, two
jobs, two sites, parts to come and grids. Each point is written as a cluster file and read back. Expected of each, to
the digit: `plan` names the same layout, step, idle GPUs and price of a token; `step` of the job file that `plan` writes
takes that step and fits; `cost` has the same capital, cost of a year, goodput and price of a GPU-hour; the point keeps
the limits. Points that cannot be executed, which the front marks, are left out.

    python -m research.asked_again [ASKS [FIRST [JOBS]]]
    python -m research.asked_again large [JOBS]           the asks of LARGE_ASKS
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from syncline.describe.document import Document
from syncline.describe.files import write_text
from syncline.designing.point import DesignPoint
from syncline.errors import PlanError
from syncline.fabric import load, save
from syncline.fabric.load import parse_cluster
from syncline.planning.answer import make_plan
from syncline.planning.cost.assumptions import load_assumptions
from syncline.planning.named_job import job_text
from syncline.questions.cost import CostAnswer, cost
from syncline.questions.design import DesignAnswer, design
from syncline.questions.plan import plan
from syncline.questions.step import StepPrediction, step

ASKS = 10
MODELS = (
    "llama3-8b", "gpt3-13b", "llama3-70b", "llama3-405b", "gpt3-175b", "qwen3-32b", "mixtral-8x7b", "deepseek-v3",
    "qwen3-30b-a3b", "gpt-oss-120b",
)  # fmt: skip
HOSTS = ("dgx-h100", "dgx-h100", "dgx-b200", "dgx-a100", "gb200-nvl72", "mi300x-8")
LARGE = ("llama3-405b", "gpt3-175b", "deepseek-v3")
LARGE_ASKS: tuple[dict[str, Any], ...] = (
    {"jobs": "llama3-70b", "gpus": 512, "budget": "40M", "power": 1000.0},
    {"jobs": "qwen3-235b-a22b", "gpus": 1024, "hosts": ("dgx-b200",), "links": ("400GbE", "800GbE"),
     "topologies": ("rail-optimized", "fat-tree"), "ratios": (1.0, 2.0)},
    {"jobs": "deepseek-v3", "gpus": 2048},
)  # fmt: skip


def drawn(seed: int) -> dict[str, Any]:
    """Return the arguments of one ask."""
    chance = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[int(chance.integers(len(values)))]

    job, host = str(pick(*MODELS)), str(pick(*HOSTS))
    unit = 72 if "nvl72" in host else 8
    gpus = unit * int(pick(*((32, 64, 128, 256) if job in LARGE else (2, 4, 7, 12, 32, 128))))
    asked: dict[str, Any] = {"jobs": job, "gpus": gpus, "hosts": (host,)}
    kind = pick("plain", "plain", "plain", "limits", "jobs", "sites", "by", "grid", "money")
    if kind == "limits":
        asked |= {"survive": float(pick(0.0, 0.7, 0.9)), "budget": f"{gpus * 45 // 1000 + 1}M"}
    elif kind == "jobs":
        asked |= {"jobs": (job, str(pick("llama3-8b", "mixtral-8x7b"))), "weights": (3.0, 1.0)}
    elif kind == "sites":
        asked |= {"sites": 2, "wan": str(pick("400Gbps,6ms", "1600Gbps,2ms")), "gpus": gpus + gpus % (2 * unit)}
    elif kind == "by":
        asked |= {"by": str(pick("2027-06", "2028-01"))}
    elif kind == "grid":
        asked |= {"topologies": ("fat-tree", "rail-optimized", "rail-only"), "ratios": (1.0, 2.0)}
    elif kind == "money":
        asked |= {"assume": {"years": pick(3, 5), "utilisation": 0.9}}
    return asked


def row(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what one ask found, and every point on which another verb says something else."""
    began = process_time()
    try:
        answer = design(**asked)
    except PlanError as error:
        return {"asked": asked, "points": 0, "refused": error.message, "cpu_s": process_time() - began}
    money = asked.get("assume")
    differences = [f"{point.label}: {one}" for point in answer.front if point.executed
                   for one in _differences(answer, point, money)]  # fmt: skip
    points = sum(point.executed for point in answer.front)
    return {"asked": asked, "points": points, "not_executed": len(answer.front) - points,
            "differences": differences, "cpu_s": process_time() - began}  # fmt: skip


def _differences(answer: DesignAnswer, point: DesignPoint, money: dict[str, Any] | None) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        cluster, job_file = Path(folder, "cluster.yaml"), Path(folder, "job.yaml")
        save(parse_cluster(Document(point.choice.described(), {}, "design")), cluster)
        usd_per_token = []
        for number, (job, _) in enumerate(answer.jobs):
            if point is answer.best:
                planned = plan(str(cluster), job, assume=money).result
            else:  # what to change is worked out after the best plan is known
                assumed, _ = load_assumptions(None, dict(money or {}))
                planned = make_plan(load(cluster), job, assumptions=assumed, with_actions=False, with_run=False)
            best = planned.best
            write_text(job_file, job_text(planned.result.job))
            stepped = step(str(cluster), str(job_file))
            paid = cost(str(cluster), job, step_time=f"{point.step_s[number]!r}s", assume=money)
            assert isinstance(stepped, StepPrediction) and isinstance(paid, CostAnswer) and best.cost is not None
            owned, failures = paid.statement.owned, paid.statement.failures
            usd_per_token.append(best.cost.cost_per_token_usd)
            rows = {
                "plan's layout": (best.decision.label, point.plans[number]),
                "plan's step": (best.predicted.step_time_s, point.step_s[number]),
                "plan's idle GPUs": (best.num_gpus - best.decision.num_gpus <= point.idle_gpus, True),
                "step's step": (stepped.step_time_s, point.step_s[number]),
                "step fits": (stepped.fits, True),
                "cost's capital": (owned.capital_usd, point.capital_usd),
                "cost's year": (owned.usd_per_year, point.usd_per_year),
                "cost's goodput": (failures.goodput, best.cost.goodput),
                "cost's GPU-hour": (owned.usd_per_gpu_hour, best.cost.usd_per_gpu_hour),
            }
            yield from (f"{name} {theirs}, the front's {ours}" for name, (theirs, ours) in rows.items()
                        if theirs != ours)  # fmt: skip
        weights = [weight for _, weight in answer.jobs]
        mean = sum(w * usd for w, usd in zip(weights, usd_per_token, strict=True)) / sum(weights)
        if abs(mean / point.usd_per_token - 1) > 1e-12:
            yield f"plan's price of a token {mean}, the front's {point.usd_per_token}"
        broken = answer.limits.broken(point)
        if broken and not answer.grid:
            yield f"a limit: {broken.words}"


def run(asks: Sequence[dict[str, Any]], jobs: int = 1) -> dict[str, Any]:
    """Return how many points were asked again and which differ; a line for each ask on the way."""
    rows = []
    with ProcessPoolExecutor(jobs) as pool:
        for one in pool.map(row, asks):
            rows.append(one)
            print(json.dumps(one), file=sys.stderr, flush=True)
    return {
        "asks": len(rows), "refused": sum("refused" in one for one in rows),
        "points": sum(one["points"] for one in rows),
        "differences": [one for each in rows for one in each.get("differences", ())],
    }  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["large"]:
        found = run(LARGE_ASKS, *map(int, sys.argv[2:]))
    else:
        count, first, jobs = (*map(int, sys.argv[1:]), *(ASKS, 0, 1)[len(sys.argv) - 1 :])
        found = run([drawn(seed) for seed in range(first, first + count)], jobs)
    print(json.dumps(found, indent=1))
