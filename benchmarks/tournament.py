"""Does the tournament find planted faults? Precision and recall over thousands of simulated ones, and one in the lab.

A drill plants one fault (or two) in a simulated leaf-spine fabric: a part drawn at random keeps 10 to 75 % of its rate;
rates carry 3 % of noise. A hit names the planted part, alone or together with parts that no measurement can tell from
it (then `exactly` counts it only where it stands first). Precision counts suspects; a healthy fabric must have none.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tests.drill.tournament import Drill

from syncline.bench.incidence import PartKind
from syncline.bench.tournament import run as play
from syncline.fabric import ClusterSpec, Fabric, build

SEEDS = 40
SHAPES = {"flat-8": (8, 8, 1), "leaf-spine-8": (8, 4, 2), "leaf-spine-16": (16, 4, 4)}
LAB_FAULT = "host-05:eth0 rate 40%"
LAB_LINK = "leaf-00 -> spine-01 rate 40%"


def leaf_spine(hosts: int, per_leaf: int, spines: int) -> Fabric:
    """Return a two-tier fabric of single-GPU hosts."""
    network = {"topology": "leaf-spine", "link": "100GbE", "hosts_per_leaf": per_leaf, "spines": spines}
    return build(ClusterSpec.model_validate({"hosts": hosts, "host": "1 x H100", "network": network}))


def run() -> dict[str, Any]:
    """Return precision, recall and confidence by fabric, by what is known of paths and by kind of fault."""
    began = time.perf_counter()
    rows = []
    sure: list[tuple[float, bool]] = []
    for name, shape in SHAPES.items():
        fabric = leaf_spine(*shape)
        parts = Drill(fabric).parts()
        # The only leaf there is slows every flow alike: no other flow tells.
        kinds = [k for k in sorted({p.kind for p in parts}) if not (name == "flat-8" and k is PartKind.LEAF)]
        for known in (True, False):
            rows += [_drills(name, fabric, parts, (kind,), known, sure) for kind in kinds]
            rows.append(_drills(name, fabric, parts, (PartKind.HOST_TX, PartKind.HOST_RX), known, sure))
            rows.append(_healthy(name, fabric, known))
    planted = sum(row["faults"] for row in rows)
    return {
        "faults": planted,
        "recall": sum(row["hits"] for row in rows) / planted,
        "exactly": sum(row["exactly"] for row in rows) / planted,
        "precision": sum(row["right"] for row in rows) / max(1, sum(row["suspects"] for row in rows)),
        "false_alarms_on_healthy_fabrics": sum(row["suspects"] for row in rows if not row["faults"]),
        "healthy_fabrics": sum(row["fabrics"] for row in rows if not row["faults"]),
        "confidence": _calibration(sure),
        "drills_per_s": sum(row["fabrics"] for row in rows) / (time.perf_counter() - began),
        "rows": rows,
        "lab": _in_the_lab(),
    }


def _drills(
    name: str, fabric: Fabric, parts: Any, kinds: tuple[PartKind, ...], known: bool, sure: list[tuple[float, bool]]
) -> dict[str, Any]:
    count: Counter[str] = Counter()
    for seed in range(SEEDS):
        drill = Drill(fabric, seed=seed * 1009 + len(kinds))
        planted = {drill.plant(kind, parts).part.name for kind in kinds}
        suspects = play(drill.crossings(known=known), drill.play).attribution.suspects
        named = [{suspect.part.name, *(part.name for part in suspect.among)} for suspect in suspects]
        count["faults"] += len(planted)
        count["hits"] += sum(any(part in names for names in named) for part in planted)
        count["exactly"] += sum(suspect.part.name in planted for suspect in suspects)
        count["suspects"] += len(suspects)
        count["right"] += sum(bool(planted & names) for names in named)
        sure += [(suspect.confidence, suspect.part.name in planted) for suspect in suspects]
    what = " and ".join(kind.value for kind in kinds)
    return _row(name, known, what, SEEDS, count)


def _healthy(name: str, fabric: Fabric, known: bool) -> dict[str, Any]:
    count: Counter[str] = Counter()
    for seed in range(SEEDS):
        drill = Drill(fabric, seed=90_000 + seed)
        count["suspects"] += len(play(drill.crossings(known=known), drill.play).attribution.suspects)
    return _row(name, known, "nothing", SEEDS, count)


def _row(name: str, known: bool, what: str, fabrics: int, count: Counter[str]) -> dict[str, Any]:
    keys = ("faults", "hits", "exactly", "suspects", "right")
    return {"fabric": name, "paths_known": known, "planted": what, "fabrics": fabrics} | {k: count[k] for k in keys}


def _calibration(sure: list[tuple[float, bool]]) -> list[dict[str, float]]:
    """Return how often suspects of each confidence were exactly right."""
    table = []
    for low, high in ((0.0, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, 1.01)):
        mine = [(c, right) for c, right in sure if low <= c < high]
        if mine:
            table.append({"from": low, "to": min(high, 1.0), "suspects": len(mine),
                          "mean_confidence": float(np.mean([c for c, _ in mine])),
                          "right": float(np.mean([right for _, right in mine]))})  # fmt: skip
    return table


def _in_the_lab() -> dict[str, Any]:
    """Return what the tournament says of a slow host link and of a slow link between switches in an emulated fabric."""
    try:
        return {fault: _lab_run(fault) for fault in (LAB_FAULT, LAB_LINK)}
    except Exception as error:  # no namespaces here: the drills stand alone
        return {"not_run": f"{type(error).__name__}: {error}"}


def _lab_run(fault: str) -> dict[str, Any]:
    from syncline.lab.lab import Lab

    cluster = "name: lab8\nhosts: 8\nhost: 1 x H100\nnetwork:\n  topology: leaf-spine\n  link: 100GbE\n"
    cluster += "  hosts_per_leaf: 4\n  spines: 2\n  oversubscription: 2:1\n"
    with tempfile.TemporaryDirectory() as folder:
        path, table = Path(folder) / "lab8.yaml", Path(folder) / "paths.json"
        path.write_text(cluster)
        from syncline.fabric import load

        with Lab(load(str(path))) as lab:
            table.write_text(json.dumps(lab.paths().to_json()))
            lab.fault(fault)
            command = [sys.executable, "-m", "syncline", "bench", "tournament", "--cluster", str(path)]
            done = lab.run(
                [*command, "--paths", str(table), "--size", "1MiB", "--json"], ranks_per_host=1, timeout_s=170
            )
        payload = json.loads(done.ranks[0].stdout)
    return {
        "links": 24, "flows": len(payload["matches"]), "noise": payload["noise"],
        "suspects": payload["suspects"],
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
