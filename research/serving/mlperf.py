"""Serving against MLPerf Inference 4.1: Llama 2 70B of NVIDIA's closed submissions, offline and at a server's load.

Source: mlcommons/inference_results_v4.1, closed/NVIDIA/results/*/llama2-70b-99*/*/performance/run_1/mlperf_log_summary
(commit a2f5d66d); layouts from closed/NVIDIA/configs/llama2-70b. Answers are as long as tokens over samples say. The
length of a prompt is not in the logs: it is assumed to be that of an answer in the reference, 294 tokens, with a 99th
percentile of three times that.

Scored blind first: offline 0.85, 0.80 and 1.08 of what was measured;
but a server at the rate that was measured was taken to be half busy, with 7, 3 and 13 times shorter times of a token. A
pass that takes a prompt along decoded for nothing: its products were not counted. They are now; no constant was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncline.fabric.load import load
from syncline.sim.serve.engine import Engine, Split
from syncline.sim.serve.steady import most_rate, steady
from syncline.workload.load import Load
from syncline.workload.read_job import load_job

PROMPT, TAIL = 294.0, 3.0


@dataclass(frozen=True)
class Submission:
    """One system: samples a second and tokens a sample offline, then samples a second and latencies of a server."""

    host: str
    tp: int
    replicas: int
    precision: str
    answer: float
    offline: float
    server: float
    first_p50: float  # milliseconds
    first_p99: float
    token: float


SUBMISSIONS = (
    Submission("dgx-h100", 2, 4, "fp8", 290.3, 84.4792, 74.42, 272.95, 461.28, 154.96),
    Submission("dgx-h200", 1, 8, "fp8", 291.25, 107.477, 100.35, 180.76, 452.74, 123.26),
    Submission("dgx-b200", 1, 1, "fp4", 274.0, 41.1075, 39.25, 204.78, 357.22, 131.54),
)


def _replica(row: Submission) -> tuple[Engine, Load]:
    lengths = {
        "prompt": {"mean": PROMPT, "p99": TAIL * PROMPT},
        "answer": {"mean": row.answer, "p99": TAIL * row.answer},
    }
    job = load_job({"kind": "serve", "model": "llama2-70b", "precision": row.precision, "load": {"rate": 1} | lengths})
    assert job.load is not None
    fabric = load({"hosts": 1, "host": row.host, "network": "rail-optimized NDR"})
    return Engine(fabric, job, Split(row.tp)), job.load


def run() -> dict[str, Any]:
    """Return predicted over measured: offline, at the server's rate, and at its share of the predicted capacity."""
    rows = []
    for row in SUBMISSIONS:
        engine, wanted = _replica(row)
        most = most_rate(engine, wanted)
        name = f"{row.replicas * row.tp} x {row.host[4:].upper()}, tp {row.tp}, {row.precision}"
        found = {"row": name, "offline": round(most * row.replicas / row.offline, 3)}
        for kind, rate in (("same_rate", row.server / row.replicas), ("same_share", row.server / row.offline * most)):
            at = steady(engine, wanted, rate)
            found[kind] = {
                "busy": round(at.busy, 3), "first": round(1e3 * at.first_token_p50_s / row.first_p50, 3),
                "first_p99": round(1e3 * at.first_token_p99_s / row.first_p99, 3),
                "token": round(1e3 * at.token_s / row.token, 3),
            }  # fmt: skip
        rows.append(found)
    return {"rows": rows, "measured_share_of_offline": [round(r.server / r.offline, 3) for r in SUBMISSIONS]}
