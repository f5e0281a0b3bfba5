"""Faults of the library in running labs: each is made to happen, looked at, and must be named where it is.

    python benchmarks/run.py fault_library

Each fault gets a lab of its own (six hosts, three leaves, two spines, links of 200 Mb/s) and is looked at with what
users have: the audit with packets between hosts, processes that keep a core busy, a job whose logs are diagnosed, or a
tournament. Recall counts faults that are named by a rule meant for them at the right place; precision counts findings
that name another place. Clean labs come first: whatever is found there is a false alarm.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.drill.in_lab import LOOKS, audited, drill, spun
from tests.drill.known_fault import KnownFault, known_faults

from syncline.errors import LabError
from syncline.fabric import load
from syncline.finding import Finding, Severity
from syncline.lab import Lab

CLUSTER = """hosts: 6
host: {gpu: T4, gpus: 1, nics: 1, nic: i350, link: 1GbE}
network: {topology: leaf-spine, link: 1GbE, hosts_per_leaf: 2, spines: 2}
"""
SCALE = 0.2
LEAST_CONFIDENCE = 0.5
"""Suspects of a tournament below this are told to users as guesses."""


def tournament(lab: Lab, cluster: Path, fault: KnownFault | None = None, host: str = "") -> list[Finding]:
    """Play a tournament in the lab and return its suspects."""
    table = cluster.with_name("paths.json")
    table.write_text(json.dumps(lab.paths().to_json()))
    command = [
        sys.executable,
        "-m",
        "syncline",
        "bench",
        "tournament",
        "--cluster",
        str(cluster),
        "--paths",
        str(table),
    ]
    done = lab.run([*command, "--size", "512KiB", "--json"], ranks_per_host=1, timeout_s=300)
    if done.exit_code not in (0, 1):
        raise LabError(f"the tournament failed: {done.ranks[0].stderr[-300:]}")
    rows = json.loads(done.ranks[0].stdout)["findings"]
    return [
        Finding(row["rule"], Severity.WARNING, _place(row), row["observed"], confidence=row["confidence"])
        for row in rows
        if row["confidence"] >= LEAST_CONFIDENCE
    ]


def _place(row: dict[str, Any]) -> str:
    """Return the part that is named, and those that the finding says no flow can tell from it."""
    others = [text for text in row["evidence"] if text.startswith("cannot be told from ")]
    return "; ".join((row["place"], *others))


def run() -> dict[str, Any]:
    """Return recall and precision, and a row for each fault."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.yaml"
        cluster.write_text(CLUSTER)
        try:
            with Lab(load(cluster), scale=SCALE) as lab:
                clean = {"audit": audited(lab, cluster), "spin": spun(lab), "bench": tournament(lab, cluster)}
        except LabError as error:
            return {"not_run": str(error)}
        rows = [_row(cluster, fault) for fault in known_faults().values() if fault.lab is not None]
    named = sum(bool(row["named_by"]) for row in rows)
    made_up = sum(len(row["false_alarms"]) for row in rows)
    library = known_faults().values()
    return {
        "faults_in_the_library": len(library),
        "in_a_lab": len(rows),
        "in_a_captured_tree": sum(bool(fault.plant) for fault in library),
        "in_neither": [fault.id for fault in library if fault.lab is None and not fault.plant],
        "recall": named / len(rows),
        "precision": named / max(1, named + made_up),
        "false_alarms_in_clean_labs": [f"{how}: {_shown(f)}" for how, found in clean.items() for f in found],
        "faults": rows,
    }


def _row(cluster: Path, fault: KnownFault) -> dict[str, Any]:
    assert fault.lab is not None
    with Lab(load(cluster), scale=SCALE) as lab:
        found = drill(lab, cluster, fault, look=LOOKS.get(fault.lab.by, tournament))
    return {
        "fault": fault.id,
        "place": found.place,
        "looked_by": fault.lab.by,
        "named_by": sorted({finding.rule for finding in found.named}),
        "false_alarms": [_shown(finding) for finding in found.others],
        "seconds": round(found.seconds, 1),
    }


def _shown(finding: Finding) -> str:
    return f"{finding.rule} at {finding.place}: {finding.observed}"


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
