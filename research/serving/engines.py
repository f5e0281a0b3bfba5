"""Serving engines as people run them: published runs beside what we say.

    python -m research.serving.engines [FOLDER]    # with aiconfigurator_core as FOLDER, its runs anew too

Tuned engines and a fixed number of users: FOLDER/systems/silicon_sample.csv of ai-dynamo/aiconfigurator (Apache-2.0,
commit 095f58a5): runs of InferenceMAX and of NVIDIA's own on H100, H200, B200, B300 and GB200 by vLLM, SGLang and
TensorRT-LLM. The file is read where it lies; `engine-residuals.csv` keeps how far off we were, a line a setting. Read
are runs whose prefill runs beside decode, without pipelines, on at most eight GPUs, whose layout is either tensor
ranks or attention by request. That rule, and the half that a group of runs belongs to, were fixed before
the first score. First scores, tokens a second: 13.0 / 40 % (median / 90th percentile) in half 0, which was then looked
at, and 16.1 / 37 % in half 1, which was not; 339 of 3,075 runs (weights in 4 bits on Hopper) could not be priced.

Engines at their defaults, 1,000 requests of ShareGPT at once: gpustack/gpustack docs/performance-lab (commit 47277d79),
the first runs of each page: `vllm serve MODEL` and the like, with nothing else said.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from research.serving.latency import SHAREGPT_TAIL

from syncline.fabric.fabric import Fabric
from syncline.fabric.load import load
from syncline.sim.serve.engine import Engine, Split
from syncline.sim.serve.steady import Crowd, crowd_of, rollout_s
from syncline.sim.step.machine import Machine, machine_from_fabric
from syncline.workload.family.config import shape_from_config
from syncline.workload.read_job import load_job

RESIDUALS = Path(__file__).with_name("engine-residuals.csv")
KINDS = ("rate", "token", "first")
#: Models that do not ship, by the config beside the runs.
CONFIGS = {"minimax-m2.5": "MiniMaxAI--MiniMax-M2.5", "qwen3.5-397b-a17b": "Qwen--Qwen3.5-397B-A17B",
           "kimi-k2.5": "moonshotai--Kimi-K2.5"}  # fmt: skip
HOSTS = {"h100_sxm": "dgx-h100", "h200_sxm": "dgx-h200", "b200_sxm": "dgx-b200", "b300_sxm": "dgx-b300",
         "gb200": "gb200-nvl72"}  # fmt: skip
MODELS = {
    "deepseek-ai/DeepSeek-R1": "deepseek-v3", "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "openai/gpt-oss-120b": "gpt-oss-120b", "meta-llama/Llama-3.1-70B": "llama3-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama3-8b", "nvidia/Llama-3.1-8B-Instruct-FP8": "llama3-8b",
    "Qwen/Qwen3-32B": "qwen3-32b", "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5", "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "moonshotai/Kimi-K2.5": "kimi-k2.5",
}  # fmt: skip


@dataclass(frozen=True)
class EngineRun:
    """One measured run: an engine, a replica, so many users at a time, and what they saw."""

    engine: str
    model: str
    host: str
    precision: str
    ranks: int
    spread: bool
    prompt: int
    answer: int
    users: int
    first_s: float
    token_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.users * self.answer / (self.first_s + (self.answer - 1) * self.token_s)

    @property
    def group(self) -> str:
        """Runs that err together: one model in one precision on one part under one engine."""
        return f"{self.model} {self.precision} on {self.host}, {self.engine}"

    @property
    def kind(self) -> str:
        return "dense" if self.model in ("llama3-8b", "llama3-70b", "qwen3-32b") else "experts"

    @property
    def half(self) -> int:
        """0: looked at while the model was changed; 1: scored before and after, and not looked at."""
        return hashlib.sha256(self.group.encode()).digest()[0] % 2


def read(path: Path) -> list[EngineRun]:
    """Return the runs of the file that the rule above takes."""
    with path.open() as stream:
        return [run for row in csv.DictReader(stream) if (run := _run(row)) is not None]


def _run(row: dict[str, str]) -> EngineRun | None:
    tp, pp, wide = (int(row[name] or 1) for name in ("tp_size", "pp_size", "attention_dp_size"))
    experts = int(row["moe_tp_size"] or 1) * int(row["moe_ep_size"] or 1)
    known = row["system"] in HOSTS and row["model_path"] in MODELS and row["mode"] == "agg"
    if not known or pp > 1 or not 0 < tp * wide <= 8 or (tp > 1 and wide > 1) or experts not in (0, 1, tp * wide):
        return None  # a file that says other ranks for experts than for the rest is not known to be one replica
    return EngineRun(
        row["backend"], MODELS[row["model_path"]], HOSTS[row["system"]], row["precision"] or "bf16", tp * wide,
        wide > 1, int(row["isl"]), int(row["osl"]), int(float(row["batch_size"])), float(row["silicon_ttft_ms"]) / 1e3,
        float(row["silicon_tpot_ms"]) / 1e3,
    )  # fmt: skip


@functools.cache
def predicted(run: EngineRun, folder: Path) -> Crowd | None:
    """Return what we say that the users of a run see; None where its replica holds none of them."""
    model = _shape(folder, run.model)
    given: dict[str, Any] = {"kind": "serve", "model": model, "load": _load(run.prompt, run.answer)}
    given |= {} if run.precision == "int4" else {"precision": run.precision}  # as its checkpoint says
    job = load_job(given)
    assert job.load is not None
    replica = Engine(_host(run.host), job, Split(run.ranks, spread=run.spread), _machine(run.host))
    return crowd_of(replica, job.load, run.users)


def _load(prompt: float, answer: float, tail: float = 1.0) -> dict[str, Any]:
    lengths = {"prompt": prompt, "answer": answer}
    return {"rate": 1} | {name: {"mean": mean, "p99": tail * mean} for name, mean in lengths.items()}


@functools.cache
def _host(name: str) -> Fabric:
    return load({"hosts": 1, "host": name, "network": "rail-optimized NDR"})


@functools.cache
def _machine(name: str) -> Machine:
    return machine_from_fabric(_host(name))


@functools.cache
def _shape(folder: Path, name: str) -> object:
    """Return a model that ships, or the shape of its published config."""
    if name not in CONFIGS:
        return name
    text = (folder / "model_configs" / f"{CONFIGS[name]}_config.json").read_text()
    return shape_from_config(json.loads(text)).model_dump(exclude_none=True, exclude_defaults=True)


def residuals(folder: Path) -> list[dict[str, Any]]:
    """Return log(measured / predicted) of every setting: tokens a second, time of a token, time to the first."""
    found: dict[tuple[Any, ...], list[tuple[float, float, float]]] = defaultdict(list)
    for run in read(folder / "systems" / "silicon_sample.csv"):
        if (said := predicted(replace(run, first_s=0.0, token_s=0.0), folder)) is not None:
            ours = (said.rate * run.answer, said.token_s, said.first_token_s)
            pairs = zip((run.tokens_per_s, run.token_s, run.first_s), ours, strict=True)
            key = (run.group, run.half, run.kind, run.engine, run.ranks, run.prompt, run.answer, run.users)
            found[key].append(tuple(math.log(a / b) for a, b in pairs))  # type: ignore[arg-type]
    names = ("group", "half", "kind", "engine", "ranks", "prompt", "answer", "users")
    return [
        dict(zip(names, key, strict=True))
        | {name: round(statistics.median(row[place] for row in rows), 3) for place, name in enumerate(KINDS)}
        for key, rows in found.items()
    ]


@dataclass(frozen=True)
class DefaultRun:
    """All requests at once, answered by an engine that was given a model and nothing else."""

    engine: str
    model: str
    host: str
    ranks: int
    tokens_per_s: float
    lengths: tuple[float, float] = (217.4, 201.5)

    @property
    def kind(self) -> str:
        return "dense" if self.model in ("qwen3-14b", "qwen3-32b", "qwen3.5-9b") else "experts"


def _page(
    model: str, host: str, ranks: int, *rates: float, lengths: tuple[float, float] = (217.4, 201.5)
) -> list[DefaultRun]:
    """Return the runs of one page: vLLM, SGLang and, where it ran, TensorRT-LLM."""
    return [DefaultRun(engine, model, host, ranks, rate, lengths) for engine, rate in zip(ENGINES, rates, strict=False)]


ENGINES = ("vllm", "sglang", "trtllm")
DEFAULTS = (
    *_page("qwen3-14b", "dgx-a100", 1, 1887.31, 2542.06, 2770.99),
    *_page("qwen3-14b", "dgx-h100", 1, 3173.92, 4043.89, 4000.99),
    *_page("qwen3-32b", "dgx-a100", 1, 832.43, 672.56, 987.91),
    *_page("qwen3-32b", "dgx-h100", 1, 1131.55, 814.03, 1280.04),
    *_page("gpt-oss-120b", "dgx-a100", 1, 2276.40, 329.69),
    *_page("gpt-oss-120b", "dgx-h100", 1, 2901.05, 865.81, 1013.72),
    *_page("gpt-oss-20b", "dgx-a100", 1, 4620.12, 265.99),
    *_page("gpt-oss-20b", "dgx-h100", 1, 7817.03, 2679.49, 3615.45),
    *_page("qwen3-235b-a22b", "dgx-a100", 8, 1798.14, 2202.21),
    *_page("qwen3-235b-a22b", "dgx-h100", 8, 4015.36, 3644.72),
    *_page("deepseek-v3", "dgx-h200", 8, 2621.05, 3172.46, 1618.94),
    *_page("glm-4.5-air", "dgx-h100", 4, 3815.71, 4532.66),
    *_page("qwen3.5-9b", "dgx-h100", 1, 5202.94, 2933.60, lengths=(342.1, 281.4)),
    *_page("qwen3.5-35b-a3b", "dgx-h200", 1, 4347.55, 2254.86, lengths=(342.1, 281.4)),
)
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3.5-9b": {"model_type": "qwen3_5_text"}, "qwen3.5-35b-a3b": {"model_type": "qwen3_5_moe_text"},
    "glm-4.5-air": {"model_type": "glm4_moe", "head_dim": 128},
}  # fmt: skip
REQUESTS = 1000


def default_ratio(run: DefaultRun) -> float:
    """Return predicted over measured tokens a second of an engine at its defaults."""
    config = FAMILIES.get(run.model)
    model = shape_from_config(config).model_dump(exclude_none=True, exclude_defaults=True) if config else run.model
    engine = {"name": run.engine, "tuned": False}
    job = load_job({"kind": "serve", "model": model, "engine": engine, "load": _load(*run.lengths, SHAREGPT_TAIL)})
    assert job.load is not None
    replica = Engine(_host(run.host), job, Split(run.ranks))
    took = rollout_s(replica, REQUESTS, job.load.prompt, job.load.answer)
    return REQUESTS * job.load.answer.mean / took / run.tokens_per_s


def stored() -> list[dict[str, str]]:
    """Return the residuals as they were last made."""
    with RESIDUALS.open() as stream:
        return list(csv.DictReader(stream))


def run() -> dict[str, Any]:
    """Return how far off we are, by half, engine and kind of model, and for engines at their defaults."""
    found, rows = dict[str, Any](), stored()
    for name, facet in (("half", "half"), ("engine", "engine"), ("model", "kind")):
        for value in sorted({row[facet] for row in rows}):
            mine = [row for row in rows if row[facet] == value]
            found[f"{name} {value}"] = {what: _errors([float(row[what]) for row in mine]) for what in KINDS}
    for engine in ENGINES:
        ratios = [default_ratio(each) for each in DEFAULTS if each.engine == engine]
        found[f"defaults, {engine}"] = _errors([-math.log(ratio) for ratio in ratios])
    return found


def _errors(logs: Sequence[float]) -> dict[str, float]:
    off = sorted(abs(math.expm1(-each)) for each in logs)
    return {
        "rows": len(off), "median_error": round(statistics.median(off), 3),
        "p90_error": round(off[int(0.9 * len(off))], 3), "median_ratio": round(math.exp(-statistics.median(logs)), 3),
    }  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rows = residuals(Path(sys.argv[1]))
        with RESIDUALS.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print(json.dumps(run(), indent=2))
