"""Calculon and syncline beside published training runs that the authors of neither chose.

    SYNCLINE_PEERS=FOLDER python benchmarks/run.py predictors     # FOLDER/calculon: a checkout of calculon-ai/calculon

Dense runs in 16 bits on A100 80 GB and H100 80 GB whose layout, batch and recomputation are published, of sources that
neither was fitted to or validated on. Calculon gets its own files of the two systems. It has no word for a vocabulary,
grouped heads and gated layers: the width of gated layers it gets is half as much again. syncline predicts with
constants that never saw the source.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from research.intervals.residuals import publication
from research.published import BLIND_SETS, training_rows
from research.training.observed import ObservedRun, observe, predicted_s
from research.training.systems import load_systems

from syncline.sim.step.constants import default_constants, left_out_constants
from syncline.workload.shape import Shape

SOURCES = (
    "bigscience-workshop/bigscience", "InternLM/InternLM", "FlagOpen/FlagPerf training/nvidia/llama3",
    "dgxc-benchmarking nemo_megatron", "dgxc-benchmarking nemotron", "DGXC benchmarking Nemotron4",
)  # fmt: skip
SYSTEMS = {"A100": "systems/a100_80g.json", "H100": "systems/h100_80g_nvl8.json"}
RECOMPUTED = {"none": "none", "selective": "attn_only", "full": "full"}


def comparable() -> list[tuple[ObservedRun, Shape, str]]:
    """Return the runs that both can be asked about, with the shape and Calculon's file of the system."""
    found = []
    for number in BLIND_SETS:
        rows = [row for row in training_rows(number) if any(name in row.text("source") for name in SOURCES)]
        for run in observe(rows, load_systems(None))[0] if rows else ():
            job, machine = run.described.job, run.described.machine
            system = next((path for name, path in SYSTEMS.items() if machine.gpu.name.startswith(name)), None)
            if run.case is None or run.recalled or system is None or job.precision not in ("bf16", "fp16"):
                continue
            shape, split = job.model, job.parallel
            if isinstance(shape, Shape) and shape.moe is None and (split.cp or 1) == (split.ep or 1) == 1:
                found.append((run, shape, system))
    return found


def execution(run: ObservedRun, shape: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return Calculon's description of a model and of how it is run."""
    job, gpus = run.described.job, run.described.num_gpus
    tp, pp = int(job.parallel.tp or 1), int(job.parallel.pp or 1)
    dp = gpus // (tp * pp)
    parallel = bool(job.parallel.sp) and tp > 1
    app = {
        "hidden": shape.hidden, "feedforward": int((shape.ffn or 4 * shape.hidden) * (1.5 if shape.gated else 1)),
        "seq_size": job.batch.sequence, "attn_heads": shape.heads, "attn_size": shape.hidden // shape.heads,
        "num_blocks": shape.layers,
    }  # fmt: skip
    far = 0 if gpus <= 8 else 1
    return app, {
        "num_procs": gpus, "tensor_par": tp, "pipeline_par": pp, "data_par": dp, "tensor_par_net": 0,
        "pipeline_par_net": far, "data_par_net": far, "batch_size": job.batch.global_,
        "microbatch_size": job.batch.micro, "datatype": "float16", "fused_activation": True,
        "attention_type": "multihead", "activation_recompute": RECOMPUTED[str(job.recompute)],
        "pipeline_interleaving": job.parallel.virtual, "optimizer_sharding": dp > 1 and job.parallel.zero != "none",
        "tensor_par_comm_type": "rs_ag" if parallel else "ar", "tensor_par_overlap": "none", "seq_par_ag_redo": False,
        "data_par_overlap": False, "weight_offload": False, "activations_offload": False, "optimizer_offload": False,
        "training": True,
    }  # fmt: skip


def calculon_s(folder: Path, system: str, app: dict[str, Any], execution: dict[str, Any]) -> float:
    """Return the step time that Calculon predicts."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        sys.modules.setdefault("pandas", ModuleType("pandas"))  # only its search writes tables
    from calculon import System
    from calculon.llm import Llm

    model = Llm(Llm.Application(app), logging.getLogger("calculon"))
    machine = System(json.loads((folder / system).read_text()))
    model.compile(machine, Llm.Execution.from_json(execution))
    model.run(machine)
    return float(model.get_total_time())


def off(values: list[float]) -> dict[str, float]:
    """Return median and 90th percentile of |predicted / measured - 1| in percent."""
    size = 100 * np.abs(np.array(values) - 1)
    return {"median_percent": round(float(np.median(size)), 1), "p90_percent": round(float(np.quantile(size, 0.9)), 1)}


def run() -> dict[str, Any]:
    """Return by publication how far both are off, and for how many runs Calculon has an answer."""
    peers = os.environ.get("SYNCLINE_PEERS")
    if not peers:
        raise SystemExit("set SYNCLINE_PEERS to a folder with a checkout of calculon-ai/calculon named calculon.")
    folder = Path(peers) / "calculon"
    ratios: dict[str, list[tuple[float, float]]] = defaultdict(list)
    refused: dict[str, int] = defaultdict(int)
    for one, shape, system in comparable():
        assert one.case is not None, "a comparable run has layers of one kind"
        try:
            ours = float(predicted_s(one.case, left_out_constants().get(one.source, default_constants())))
            theirs = calculon_s(folder, system, *execution(one, shape))
        except Exception as error:  # Calculon refuses by assertions and an error of its own
            refused["memory" if "needs" in str(error) else "layout"] += 1
            continue
        ratios[publication(one.run.source)].append((ours / one.measured_s, theirs / one.measured_s))
    every = [pair for mine in ratios.values() for pair in mine]
    return {
        "runs": len(every), "refused_by_calculon": dict(refused),
        "syncline": off([ours for ours, _ in every]), "calculon": off([theirs for _, theirs in every]),
        "publications": {
            name: {"runs": len(mine), "syncline": off([a for a, _ in mine]), "calculon": off([b for _, b in mine])}
            for name, mine in ratios.items()
        },
    }  # fmt: skip
