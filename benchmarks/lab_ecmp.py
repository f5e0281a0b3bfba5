"""Hash collisions in the lab and in the simulator: the same collectives on the same fabric, under several hashes.

Eight hosts under two leaves and two spines. How many of the four pairs across leaves share an uplink depends on the
hash alone; host costs are fitted under the first hash, and times under the others are predicted with them.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from syncline.bench.sweep import program_of
from syncline.errors import LabError
from syncline.lab import Profile
from syncline.rehearse.stage import LabStage, open_lab
from syncline.schedule.collective import Kind
from syncline.sim.emulate.emulation import HostCosts, Script, predict, script_of
from syncline.sim.emulate.host_fit import TimedOperation, fit

CLUSTER = Path(__file__).resolve().parent.parent / "examples" / "lab-leaf-spine.yaml"
SCALE = 0.2
SEEDS = (1, 2, 3, 4, 5, 6)
ALGORITHMS = ("halving-doubling", "direct", "ring")
SIZES = (512 << 10, 1 << 20)
REPEATS = 4


def run() -> dict[str, Any]:
    """Return predicted and measured times under every hash, with the pairs on the busiest uplink."""
    costs: HostCosts | None = None
    rows: list[dict[str, Any]] = []
    try:
        for seed in SEEDS:
            with open_lab(str(CLUSTER), scale=SCALE, profile=Profile(hash_seed=seed)) as stage:
                scripts, measured = _measured(stage)
                costs = costs or fit([TimedOperation(*each) for each in zip(scripts, measured, strict=True)]).costs
                busiest = _busiest(stage)
            for (algorithm, size), script, time_s in zip(_operations(), scripts, measured, strict=True):
                predicted = predict(script, costs)
                rows.append({
                    "hash_seed": seed, "pairs_on_busiest_uplink": busiest, "algorithm": algorithm, "size_bytes": size,
                    "predicted_s": predicted, "measured_s": time_s, "gap": predicted / time_s - 1,
                    "fitted_on": seed == SEEDS[0],
                })  # fmt: skip
    except LabError as error:
        return {"skipped": str(error)}
    return {"rows": rows, **_summary(rows)}


def _operations() -> list[tuple[str, int]]:
    return [(algorithm, size) for algorithm in ALGORITHMS for size in SIZES]


def _measured(stage: LabStage) -> tuple[list[Script], list[float]]:
    scripts, orders = [], []
    for algorithm, size in _operations():
        program = program_of(algorithm, Kind.ALL_REDUCE, stage.placement, "gloo")
        scripts.append(script_of(program, size, stage.wiring))
        orders.append({"algorithm": algorithm, "kind": "all_reduce", "size_bytes": size, "repeats": REPEATS})
    answer = stage.run("worker", {"operations": orders}, 300.0)
    return scripts, [statistics.median(row["times_s"]) for row in answer]


def _busiest(stage: LabStage) -> int:
    """Return how many of the pairs i, i + 4 take the same uplink."""
    hosts = stage.lab.host_names
    pairs = [(hosts[i], hosts[i + len(hosts) // 2]) for i in range(len(hosts) // 2)]
    names = stage.lab.blueprint.link_names
    load = stage.lab.paths().load(pairs)
    return max(count for link, count in load.items() if "spine" in names[link])


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how far hashes spread the times, in the lab and predicted, and the gaps under hashes not fitted on."""
    gaps = [abs(row["gap"]) for row in rows if not row["fitted_on"]]
    spread: dict[str, Any] = {}
    for algorithm, size in _operations():
        each = [row for row in rows if (row["algorithm"], row["size_bytes"]) == (algorithm, size)]
        columns = {key: np.array([row[key] for row in each]) for key in ("predicted_s", "measured_s")}
        spread[f"{algorithm} {size >> 10} KiB"] = {
            "slowest_over_fastest_predicted": float(columns["predicted_s"].max() / columns["predicted_s"].min()),
            "slowest_over_fastest_measured": float(columns["measured_s"].max() / columns["measured_s"].min()),
        }
    return {"spread": spread, "median_gap": statistics.median(gaps), "worst_gap": max(gaps)}
