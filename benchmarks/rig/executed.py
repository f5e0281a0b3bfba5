"""Written plans that are executed: what each rank holds and sends in a step, beside what `step` and `volumes` price.

A layout of a framework is drawn, its files are written, and `syncline preview` runs the framework's own training loop
from them (`rig/stepped.py`): its wrapping, its pipeline and its optimizer, as ranks of the job's world.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import yaml

from syncline.errors import SynclineError
from syncline.fabric import load
from syncline.planning.frameworks.framework import named_framework
from syncline.planning.frameworks.launch import launch_files
from syncline.planning.space import rows_of
from syncline.previewing.execute import sent_bytes
from syncline.previewing.holders import peak_memory
from syncline.previewing.record import Capture, read_capture
from syncline.sim.step.step import step
from syncline.workload.job import Job
from syncline.workload.read_job import load_job
from syncline.workload.volumes import unpriced_volumes, volumes
from syncline.workload.zoo import shapes

LAYERS, SEQUENCE, PER_HOST = 8, 4096, 8
#: What a preview runs of each framework: Megatron's context parallelism and repeated layers are Transformer Engine's,
#: and torchtitan's context, expert and tensor parallelism in a pipeline mix tensors as shapes alone do not carry.
LAYOUTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "megatron": {"tp": (1, 2, 4), "pp": (1, 2, 4), "zero": ("1", "none"),
                 "virtual": (1, 2)},
    "torchtitan": {"tp": (1, 2, 4), "pp": (1, 2, 4), "zero": ("3", "hsdp"),
                   "recompute": ("none", "full"), "virtual": (1, 2), "reshard": (True, False)},
    "deepspeed": {"zero": ("none", "1", "2", "3")},
}  # fmt: skip
MODELS = ("llama3-8b", "qwen3-8b", "mistral-7b", "llama3-1b", "qwen2.5-7b", "gpt3-6.7b")


def drawn_job(framework: str, rng: random.Random) -> Job:
    """Return a job of a layout that the framework's rules let through."""
    while True:
        pick = {key: rng.choice(words) for key, words in LAYOUTS[framework].items()}
        shape = shapes()[rng.choice([name for name in MODELS if name in shapes()])]
        ranks, virtual = rng.choice((16, 32)), pick.pop("virtual", 1)
        sequence = shape.positions or SEQUENCE
        parallel: dict[str, Any] = {key: pick[key] for key in ("tp", "pp", "cp", "ep", "zero") if key in pick}
        if virtual > 1:
            parallel |= {"schedule": "interleaved", "virtual": virtual}
        said: dict[str, Any] = {
            "model": shape.model_copy(update={"layers": LAYERS}), "parallel": parallel, "compiled": False,
            "batch": {"global": rng.choice((32, 64)), "micro": 1, "sequence": sequence},
            "recompute": pick.get("recompute", "none"),
            "overlap": {"reshard": pick["reshard"]} if "reshard" in pick else {},
        }  # fmt: skip
        try:
            job = named_framework(framework).stated(load_job(said))[0].on(ranks)
            rows = named_framework(framework).keep(rows_of(job, ranks, PER_HOST), job)
            launch_files(framework, job, PER_HOST)
        except SynclineError:
            continue
        split = job.parallel
        if framework == "torchtitan" and min(split.tp, split.pp) > 1:
            continue
        allowed = (rows.tp == split.tp) & (rows.pp == split.pp) & (rows.cp == split.cp) & (rows.ep == split.ep)
        if allowed.any() and (split.dp or 1) > 1 and (virtual == 1 or split.pp > 1):
            return job


def captured(framework: str, job: Job, folder: Path, python: str) -> list[Capture]:
    """Write the files of a job, preview a few of its steps with the framework, and return what its ranks did."""
    for name, text in launch_files(framework, job, PER_HOST).items():
        (folder / name).write_text(text)
    ranks = _ranks(job)
    (folder / "cluster.yaml").write_text(yaml.safe_dump(_cluster(ranks)))
    lines = (folder / "environment.sh").read_text().splitlines()
    stated = {line.removeprefix("export ").partition("=")[::2] for line in lines}
    path = [str(Path(__file__).parents[1]), os.environ.get("MEGATRON", "")]
    command = ["preview", "cluster.yaml", "--keep", "kept", "--json", "--",
               "torchrun", "--nnodes", str(ranks // PER_HOST), "--nproc-per-node", str(PER_HOST),
               "-m", "rig.stepped", framework, str(job.batch.sequence)]  # fmt: skip
    done = subprocess.run(
        [python, "-m", "syncline", *command], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, **dict(stated), "PYTHONPATH": os.pathsep.join(filter(None, path))},
    )  # fmt: skip
    (folder / "preview.json").write_text(done.stdout)
    if done.returncode:
        raise RuntimeError((json.loads(done.stdout or "{}").get("message") or done.stderr)[-400:])
    return [read_capture(path) for path in sorted((folder / "kept").glob("rank*.json"))]


def _ranks(job: Job) -> int:
    split = job.parallel
    return split.tp * split.cp * split.pp * (split.dp or 1)


def _cluster(ranks: int) -> dict[str, Any]:
    return {"hosts": ranks // PER_HOST, "host": "dgx-h100", "network": "rail-optimized NDR"}


def axis(job: Job, what: str, group: tuple[int, ...]) -> str:
    """Return which axis of the split a collective belongs to: frameworks lay tp out first, then cp, dp and pp."""
    if what in ("send", "recv"):
        return "pp"
    if what == "all_to_all":
        return "ep"
    split, left = job.parallel, list(group)
    for name, size in (("tp", split.tp), ("cp", split.cp), ("dp", split.dp or 1), ("pp", split.pp)):
        inner = {rank % size for rank in left}
        left = [rank // size for rank in left]
        if len(inner) > 1 and len(set(left)) == 1:
            return name
    return "dp"


def sent(job: Job, capture: Capture) -> dict[str, float]:
    """Return the bytes that a rank sends in a step, by axis."""
    found: defaultdict[str, float] = defaultdict(float)
    first, last = capture.steady[-1]
    for op in capture.ops[first:last]:
        if op.kind in ("collective", "send") and isinstance(op.extra, list):
            what, group, size = op.extra[:3]
            ranks = capture.groups[group]
            if len(ranks) > 1:
                found[axis(job, what, ranks)] += sent_bytes(what, size, len(ranks))
    return found


#: Holders of a preview, and parts of `step`'s memory: Megatron's fp32 parameters are parameters to the one, and
#: optimizer's state to the other.
PARTS = {"parameters": "state", "gradients": "gradients", "optimizer state": "state", "optimizer": "state"}
#: Of `step`'s memory, what no allocation of a script is.
BESIDE = ("buffers", "fragmentation", "total")


def compared(job: Job, captures: list[Capture]) -> dict[str, tuple[float, float]]:
    """Return bytes that ranks send at most, and that the fullest holds, measured and priced.

    Sharded parameters come and go, so of those what is held in all is compared; of others, what stays all the time.
    """
    by_rank = [sent(job, capture) for capture in captures]
    priced: defaultdict[str, float] = defaultdict(float)
    for volume in volumes(job) + unpriced_volumes(job):
        priced[volume.axis] += volume.size_bytes
    found = {f"sent {name}": (max(each.get(name, 0.0) for each in by_rank), priced[name])
             for name in sorted({*priced, *(key for each in by_rank for key in each)})}  # fmt: skip
    peaks = [peak_memory(capture, 0.0) for capture in captures]
    fullest = max(peaks, key=lambda peak: peak.peak_bytes)
    measured: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for holder in fullest.holders:
        measured[PARTS.get(holder.label, "activations")] += holder.size_bytes
    for name, size in step(load(_cluster(_ranks(job))), job).memory_bytes.items():
        if name not in BESIDE:
            expected[PARTS.get(name, "activations")] += int(size)
    if job.parallel.sharded_params:
        return found | {"held": (measured.total(), expected.total())}
    return found | {f"held {name}": (measured[name], expected[name]) for name in ("state", "gradients")}
