"""A script's preview beside the shape-based `step` of its own job file: `python benchmarks/preview_step.py [NAME...]`.

`SYNCLINE_CAPTURES=DIR` keeps what was captured, and takes it from there the next time.

Eleven models. For each the script is previewed, its job file derived from the capture and priced by `step`: bytes that
a rank sends by kind of parallelism, operations and memory of a rank must agree (equal, 1 %, 5 %); a difference is a
defect of one of the two. JSON lines; no GPU.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import syncline
from syncline.preview.axes import ScriptSplit, axes_of
from syncline.workload.job import Job
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape
from syncline.workload.volumes import volumes

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks/preview_transformer.py"
CASES = {
    "llama3-8b, 8 layers, FSDP 64": (64, "--layers 8"),
    "llama3-70b, 4 layers, FSDP 64": (64, "--layers 4 --hidden 8192 --heads 64 --ffn 28672"),
    "gpt2-xl, 12 layers, DDP 8": (
        8, "--wrap ddp --layers 12 --hidden 1600 --heads 25 --kv 25 --ffn 6400 --vocab 50257 --plain --tied --bias "
        "--positions 1024 --length 1024 --batch 4"),
    "bert-large, 12 layers, DDP 32": (
        32, "--wrap ddp --layers 12 --hidden 1024 --heads 16 --kv 16 --ffn 4096 --vocab 30522 --plain --tied --bias "
        "--positions 512 --length 512 --batch 16 --both-ways"),
    "gemma-7b, 6 layers, FSDP 16": (
        16, "--layers 6 --hidden 3072 --heads 16 --kv 16 --size 256 --ffn 24576 --vocab 256000 --tied"),
    "mistral-7b, 8 layers, FSDP 32, full recomputation": (32, "--layers 8 --vocab 32000 --length 8192 --remake"),
    "llama3-8b, 6 layers, tensor 8 x FSDP 8": (64, "--layers 6 --tp 8"),
    "llama3-8b, 6 layers, HSDP 8 x 4": (32, "--layers 6 --shard 8"),
    "llama2-13b, 6 layers, FSDP 16, 4 micro-batches": (
        16, "--layers 6 --hidden 5120 --heads 40 --kv 40 --ffn 13824 --vocab 32000 --accumulate 4"),
    "gpt3-13b, 6 layers, tensor 8 x FSDP 2": (
        16, "--layers 6 --hidden 5120 --heads 40 --kv 40 --ffn 20480 --vocab 50304 --plain --length 2048 "
        "--batch 2 --tp 8"),
    "resnet, DDP 16": (16, ""),
}  # fmt: skip


def compared(name: str) -> dict[str, Any]:
    """Return one model's row: what each of the two says."""
    world, args = CASES[name]
    script = SCRIPT if args else ROOT / "examples/preview/vision.py"
    command = ["torchrun", "--nnodes", str(world // 8), "--nproc-per-node", "8", str(script), *shlex.split(args)]
    seen = syncline.preview("h100-64-rail", command, what_if=[], **_kept(name))
    job = load_job(seen.job.data)
    told: Any = syncline.step("h100-64-rail", seen.job.data)
    result = told.result
    split = axes_of(seen.captures)
    sent, stated = _seen(seen, split), _stated(result.job)
    memory: dict[str, float] = result.memory_bytes
    held = memory["total"] - memory.get("buffers", 0.0) - memory.get("fragmentation", 0.0)
    return {
        "model": name, "bytes": {axis: [sent.get(axis, 0.0), stated.get(axis, 0.0)] for axis in {**sent, **stated}},
        "flops": [seen.graph.flops, _flops(job) / world], "memory": [seen.memory.peak_bytes, float(held)],
        "parts": memory,
        "holders": {each.label: each.size_bytes for each in seen.memory.holders},
        "step_s": [seen.step_time_s, told.step_time_s],
        "job": {k: v for k, v in seen.job.data.items() if k != "model"}, "params": job.model.params,
        "counted": seen.captures[0].facts["model"]["parameters"], "unsure": list(seen.job.unsure),
    }  # fmt: skip


def _kept(name: str) -> dict[str, Any]:
    """Return where the captures of a model are, or are to be kept."""
    if "SYNCLINE_CAPTURES" not in os.environ:
        return {}
    folder = Path(os.environ["SYNCLINE_CAPTURES"]) / re.sub(r"\W+", "-", name)
    return {"captured" if (folder / "rank0.json").exists() else "keep": folder}


def _seen(seen: Any, split: ScriptSplit) -> dict[str, float]:
    """Return what a rank was seen to send by axis; activations cross groups of neighbours."""
    found: dict[str, float] = {}
    for use in seen.collectives:
        whole = seen.captures[0].groups[use.group]
        axis = "tensor" if split.tp > 1 and len(whole) == split.tp and whole[1] == whole[0] + 1 else "data"
        found[axis] = found.get(axis, 0.0) + use.sent_bytes
    return found


def _stated(job: Job) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in volumes(job):
        axis = "tensor" if row.axis == "tp" else "data"
        found[axis] = found.get(axis, 0.0) + row.size_bytes
    return found


def _flops(job: Job) -> float:
    """Return operations of a step by the model's shape; recomputation runs all but a layer's last product again."""
    if not isinstance(job.model, Shape):
        return job.batch.global_ * job.model.flops_per_sample
    each = job.model.flops_per_token(job.batch.sequence)
    last = 2 * job.model.hidden * (job.model.vocab + job.model.layers * job.model.ffn_size)
    again = each / 3 - last if job.recompute == "full" else 0.0
    return job.batch.global_ * job.batch.sequence * (each + again)


def main() -> None:
    """Print a row for each model."""
    for name in [case for case in CASES if not sys.argv[1:] or any(word in case for word in sys.argv[1:])]:
        print(json.dumps(compared(name)), flush=True)


if __name__ == "__main__":
    main()
