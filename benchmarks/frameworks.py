"""Random plans before the frameworks' real entry points, from the files that `plan --for` writes alone.

A cluster, a model, a batch and a framework are drawn; `syncline plan` writes the files with its default flags, and a
process of its own brings them to the framework's entry point (`rig/entry.py`), reads off every field, and builds the
model on the meta device. Other layouts are executed, in a world that `preview` stands in for (`rig/executed.py`).
`FRAMEWORK_PYTHON` names the interpreters: `megatron=PATH,maxtext=PATH,executed=PATH`; the default is ours.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from rig.executed import LAYOUTS, captured, compared, drawn_job
from syncline.planning.frameworks.fields import TRAINED, fields_of
from syncline.planning.frameworks.framework import FRAMEWORKS
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape
from syncline.workload.zoo import shapes

SEED, PLANS, EXECUTED = 20270311, 60, 4
CLOSE = 0.05
HOSTS = (1, 2, 4, 6, 8, 12, 16, 32, 48, 64)
NETWORKS = ("rail-optimized NDR", "leaf-spine NDR", "leaf-spine NDR 2:1")
BATCHES = (48, 64, 96, 128, 256, 384, 512, 1024, 2048)
SEQUENCES = (2048, 4096, 8192, 16384, 32768)
FOLDER = Path(__file__).resolve().parent


def drawn(folder: Path, seed: int, count: int) -> tuple[dict[str, list[Path]], dict[str, int]]:
    """Write plans of drawn jobs, as many for each framework; return their folders and how many jobs had no plan."""
    found, without = dict[str, list[Path]](), dict[str, int]()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tries = pool.map(lambda number: _tried(folder, seed, number), range(count))
        for (framework, place), failed in tries:
            found.setdefault(framework, []).append(place)
            without[framework] = without.get(framework, 0) + failed
    return found, without


def _tried(folder: Path, seed: int, number: int) -> tuple[tuple[str, Path], int]:
    rng = random.Random(f"{seed}/{number}")  # noqa: S311  (a draw that repeats, each plan alone)
    framework = list(FRAMEWORKS)[number % len(FRAMEWORKS)]
    place = folder / f"{number:03d}-{framework}"
    place.mkdir(parents=True)
    failed = 0
    while not _planned(place, framework, rng):
        failed += 1
    return (framework, place), failed


def _planned(place: Path, framework: str, rng: random.Random) -> bool:
    cluster = {"hosts": rng.choice(HOSTS), "host": rng.choice(("dgx-h100", "dgx-h100", "dgx-a100", "dgx-b200")),
               "network": rng.choice(NETWORKS)}  # fmt: skip
    job: dict[str, Any] = {"model": rng.choice(list(shapes())),
                           "batch": {"global": rng.choice(BATCHES), "sequence": rng.choice(SEQUENCES)}}  # fmt: skip
    if rng.random() < 0.7:
        job["tokens"] = rng.choice(("200B", "2T"))
    if rng.random() < 0.2:
        job["precision"] = "fp8"
    (place / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    (place / "job.yaml").write_text(yaml.safe_dump(job))
    words = ["best", "cluster.yaml", "job.yaml", "--for", framework, "--write", "files", "--write-job", "planned.yaml"]
    command = [sys.executable, "-m", "syncline", "plan", *words]
    return subprocess.run(command, cwd=place, capture_output=True, check=False).returncode == 0


def named_pythons() -> dict[str, str]:
    """Return the interpreters that the environment names."""
    return dict(each.split("=", 1) for each in os.environ.get("FRAMEWORK_PYTHON", "").split(",") if each)


def entered(framework: str, places: list[Path]) -> list[dict[str, Any]]:
    """Return what a framework makes of each written folder."""
    command = [
        named_pythons().get(framework, sys.executable),
        "-m",
        "rig.entry",
        framework,
        *(str(p / "files") for p in places),
    ]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return answers or [{"folder": "", "error": done.stderr[-300:]}]


def differs(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the fields in which what was built is not the job's model, parameters among them."""
    folder = Path(answer["folder"])
    shape = load_job(folder.parent / "planned.yaml").model
    assert isinstance(shape, Shape)
    wanted, built = fields_of(shape), answer["fields"]
    other = {key: [built[key], wanted[key]] for key in built if built[key] != wanted[key]}
    if "for which" in (folder / "run.sbatch").read_text():  # listed in the file itself: training settings it has not
        other = {key: pair for key, pair in other.items() if key not in TRAINED}
    if answer["params"] != shape.params:
        other["params"] = [answer["params"], shape.params]
    return other


def score(found: dict[str, list[Path]]) -> dict[str, Any]:
    """Return, of each framework, the plans it accepts, those it refuses and why, and the models that differ."""
    figures: dict[str, Any] = {}
    for framework, places in found.items():
        answers = entered(framework, places)
        if not answers[0]["folder"]:
            figures[framework] = {"left_out": answers[0]["error"]}
            continue
        refused = {Path(a["folder"]).parent.name: a["error"] for a in answers if "error" in a}
        different = {Path(a["folder"]).parent.name: d for a in answers if "fields" in a and (d := differs(a))}
        read = sum(len(a["fields"]) for a in answers if "fields" in a)
        figures[framework] = {"plans": len(places), "accepted": len(answers) - len(refused), "fields_read": read,
                              "refused": refused, "different": different}  # fmt: skip
    return figures


def executed(folder: Path, seed: int, count: int) -> dict[str, Any]:
    """Return what ranks send and hold where drawn layouts are executed, beside the price: measured, priced."""
    python = named_pythons().get("executed", sys.executable)
    layouts, failed = dict[str, Any](), dict[str, str]()
    for framework in LAYOUTS:
        for number in range(count):
            job = drawn_job(framework, random.Random(f"{seed}/{framework}/{number}"))  # noqa: S311
            split = job.parallel
            name = f"{framework} {job.model.name} tp {split.tp} pp {split.pp} dp {split.dp} {split.zero} {number}"
            place = folder / f"{framework}-{number}"
            place.mkdir()
            try:
                layouts[name] = compared(job, captured(framework, job, place, python))
            except RuntimeError as error:
                failed[name] = str(error)[-200:]
    rows = [pair for each in layouts.values() for pair in each.values()]
    within = sum(abs(priced - measured) <= CLOSE * measured for measured, priced in rows)
    return {"seed": seed, "layouts": layouts, "not_previewed": failed, "compared": len(rows), "within": within}


def run() -> dict[str, Any]:
    """Return how many drawn plans each framework takes as the model that was planned, and what executed ones do."""
    with tempfile.TemporaryDirectory() as folder:
        found, without = drawn(Path(folder), SEED, PLANS)
        figures = score(found)
        done = executed(Path(folder), SEED, EXECUTED)
    tried = [each for each in figures.values() if "plans" in each]
    return {
        "seed": SEED, "jobs_without_a_plan": without, "frameworks": figures,
        "plans": sum(each["plans"] for each in tried), "accepted": sum(each["accepted"] for each in tried),
        "fields_read": sum(each["fields_read"] for each in tried),
        "models_that_differ": sum(len(each["different"]) for each in tried), "executed": done,
    }  # fmt: skip
