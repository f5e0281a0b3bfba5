"""Scripts without GPUs in the lab on four CPUs: the step that `preview --cpu` predicts beside the one that is measured.

    python benchmarks/run.py preview_lab                 all of it; wants a core a rank and nothing else running
    python benchmarks/preview_lab.py capture FOLDER      the parts, for a machine with more cores
    python benchmarks/preview_lab.py measure FOLDER      there: operators, the script's own steps, steps in the lab
    python benchmarks/preview_lab.py score FOLDER

Links of 1 Gb/s, where computing decides, and of 100 Mb/s, where the network does. The prediction is blind: it knows
the links' rates, what operators and the script take on the slowest of four CPU cores that do the same, and nothing of
the lab's runs.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CLUSTER = "examples/lab-flat.yaml"
SCRIPTS = ("cpu_gpt", "cpu_average", "cpu_fsdp")
RATES = {"compute-bound": 1.0, "network-bound": 0.1}  # shares of the cluster's 1 Gb/s
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
WITHIN_PERCENT, RANKS = 8.0, 4


def command(script: str) -> list[str]:
    """Return what starts a script: a rank a host."""
    return ["OMP_NUM_THREADS=1", "torchrun", "--nnodes", str(RANKS), f"examples/preview/{script}.py"]


def capture(folder: Path) -> None:
    """Run a rank of each script without contents and keep what it did."""
    from syncline.fabric import load
    from syncline.previewing.launch import read_launch
    from syncline.previewing.ranks import Runner
    from syncline.sim.step.machine import machine_from_fabric

    runner = Runner(machine_from_fabric(load(CLUSTER)).gpu, 600.0, 16 << 30, device="cpu")
    for script in SCRIPTS:
        runner.stages(read_launch(command(script), 1), folder / script)


def measure(folder: Path) -> None:
    """Time each script's operators and its own steps, then its steps in the lab."""
    for script in SCRIPTS:
        beside_each_other(folder, script)
        for bound, scale in RATES.items():
            (folder / f"{script}-{bound}.json").write_text(json.dumps(in_lab(script, scale)))


def beside_each_other(folder: Path, script: str) -> None:
    """Time a script's operators and its own steps as often at once as the lab has ranks.

    Those of the slowest are kept: ranks that wait for each other go at its pace.
    """
    timed = [sys.executable, "-m", "syncline.previewing.capture.measure", str(folder / script)]
    outs = [folder / f"{script}-beside-{number}.json" for number in range(RANKS)]
    running = [subprocess.Popen([*timed, str(out)], env={**os.environ, **THREADS}) for out in outs]
    codes = [each.wait() for each in running]
    if any(codes):
        sys.exit(f"the operators of {script} could not be timed.")
    slowest = max((out.read_text() for out in outs), key=own_step_s)
    (folder / f"{script}-times.json").write_text(slowest)


def own_step_s(times: str) -> float:
    """Return what a script's own step took, of a file of times."""
    row = json.loads(times)["own"][0]
    return sum(float(row[f"{phase}_s"]) for phase in ("forward", "backward", "optimizer"))


def in_lab(script: str, scale: float) -> list[float]:
    """Return the seconds of each step of a script in the lab."""
    from syncline.fabric import load
    from syncline.lab import Lab

    rank = [sys.executable, "benchmarks/rig/preview_rank.py", f"examples/preview/{script}.py"]
    with Lab(load(CLUSTER), scale=scale) as lab:
        ran = lab.run(rank, ranks_per_host=1, timeout_s=300.0, env=THREADS)
    lines = [line for line in ran.ranks[0].stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{script} printed no result in the lab: {ran.ranks[0].stderr[-500:]}")
    return [b - a for a, b in itertools.pairwise(json.loads(lines[0].removeprefix("RESULT ")))]


def score(folder: Path) -> list[dict[str, Any]]:
    """Return predicted beside measured."""
    import syncline

    rows = []
    for script in SCRIPTS:
        changes = [f"network={scale:g}x" for scale in RATES.values()]
        answer = syncline.preview(
            CLUSTER, command(script), captured=folder / script, measured=folder / f"{script}-times.json", cpu=True,
            what_if=changes,
        )  # fmt: skip
        for (bound, scale), told in zip(RATES.items(), answer.alternatives, strict=True):
            steps = json.loads((folder / f"{script}-{bound}.json").read_text())
            found = statistics.median(steps)
            rows.append(
                {
                    "script": script, "bound": bound, "link_Mbps": 1000 * scale, "predicted_s": told.step_time_s,
                    "measured_s": found, "quickest_s": min(steps), "slowest_s": max(steps),
                    "off_percent": round(100 * (told.step_time_s / found - 1), 1), "own_step_s": answer.graph.host_s,
                    "exposed_s": told.exposed_s,
                }
            )  # fmt: skip
    return rows


def run() -> dict[str, Any]:
    """Capture, measure and score on this machine."""
    with tempfile.TemporaryDirectory(prefix="syncline-lab-") as scratch:
        folder = Path(scratch)
        capture(folder)
        measure(folder)
        return figures(folder)


def figures(folder: Path) -> dict[str, Any]:
    """Return the rows with what was asked of them."""
    rows = score(folder)
    times = json.loads((folder / f"{SCRIPTS[0]}-times.json").read_text())
    within = sum(abs(row["off_percent"]) <= WITHIN_PERCENT for row in rows)
    return {"asked_percent": WITHIN_PERCENT, "within": within, "device": times["device"], "cpu": times["cpu"],
            "torch": times["torch"], "rows": rows}  # fmt: skip


if __name__ == "__main__":
    os.chdir(ROOT)
    part, where = sys.argv[1], Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    if part == "score":
        print(json.dumps(figures(where), indent=2))
    else:
        {"capture": capture, "measure": measure}[part](where)
