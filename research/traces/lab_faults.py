"""Eight traced runs of DDP in the lab: a slow link, a straggler or small buckets planted, found by `explain`.

    python -m research traces.lab_faults            under a minute on an idle machine

What must be found was written down first: a straggler is a late rank, the right one, and its wait is no transfer; a
slow link is a slow transfer and nobody is late by more than a fifth of it; small buckets are collectives of less than
1 MiB that nothing hides; and of the runs without a fault none is blamed on a rank.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "examples/lab-flat.yaml"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Planted(NamedTuple):
    """One run: who is slow by how much, the link of which host has what share of its rate, and the size of buckets."""

    cause: str
    slow_rank: int = -1
    slow_ms: float = 0.0
    slow_host: int = -1
    rate: float = 1.0
    bucket_mb: float = 25.0


RUNS = {
    "nothing": Planted("nothing"),
    "straggler, rank 2": Planted("straggler", slow_rank=2, slow_ms=600),
    "straggler, rank 0": Planted("straggler", slow_rank=0, slow_ms=400),
    "straggler, rank 3, small buckets": Planted("straggler", slow_rank=3, slow_ms=600, bucket_mb=0.5),
    "slow link of host 1": Planted("slow link", slow_host=1, rate=0.04),
    "slow link of host 3": Planted("slow link", slow_host=3, rate=0.06),
    "small buckets": Planted("small buckets", bucket_mb=0.2),
    "small buckets of one layer": Planted("small buckets", bucket_mb=0.05),
}


def traced(name: str, planted: Planted, folder: Path) -> Path:
    """Run one case in the lab and return the folder of its traces."""
    from syncline.fabric import load
    from syncline.lab import Lab

    out = folder / name.replace(" ", "-").replace(",", "")
    out.mkdir()
    rank = [sys.executable, "research/traces/lab_script.py", str(out), str(planted.slow_rank), str(planted.slow_ms),
            str(planted.bucket_mb)]  # fmt: skip
    with Lab(load(CLUSTER)) as lab:
        if planted.slow_host >= 0:
            host = lab.host_names[planted.slow_host]
            cables = {lab.blueprint.link_names[link]: planted.rate * cable.rate_Bps
                      for cable in lab.blueprint.cables for link in (cable.link, cable.link ^ 1)}  # fmt: skip
            lab.reshape({link: rate_Bps for link, rate_Bps in cables.items() if host in link})
        ran = lab.run(rank, ranks_per_host=1, timeout_s=200.0, env=THREADS)
    if not list(out.glob("rank*.json")):
        raise SystemExit(f"{name}: no trace was written: {ran.ranks[0].stderr[-500:]}")
    return out


def judged(planted: Planted, folder: Path) -> dict[str, Any]:
    """Return what `explain` says of a run, and whether that is what was planted."""
    from syncline.explaining.explain import explain_recordings
    from syncline.explaining.reading import read_recordings
    from syncline.timeline.account import StepCause

    found = explain_recordings(read_recordings([folder]))
    step_s = found.account.step_s
    waits = max(one.total.seconds(StepCause.LATE) / len(one.windows) for one in found.attributions)
    moves = max(one.total.seconds(StepCause.NETWORK) / len(one.windows) for one in found.attributions)
    late = found.late[0] if found.late else None
    small = any("less than" in one.reason for one in found.lost_overlap)
    blamed = late is not None and late.waited_s > 0.2 * step_s
    right = {
        "nothing": not blamed,
        "straggler": late is not None and late.rank == planted.slow_rank and late.waited_s > 0.5e-3 * planted.slow_ms,
        "slow link": moves > 0.5 * step_s and waits < 0.5 * moves,
        "small buckets": small,
    }[planted.cause]
    return {
        "planted": planted.cause, "found": bool(right), "step_s": step_s, "late_rank": late.rank if late else None,
        "late_s": late.waited_s if late else 0.0, "transfer_s": moves, "waits_s": waits, "small": small,
        "collectives": len(found.collectives),
    }  # fmt: skip


def run() -> dict[str, Any]:
    """Run and judge all eight."""
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="syncline-traced-") as scratch:
        rows = {name: judged(planted, traced(name, planted, Path(scratch))) for name, planted in RUNS.items()}
    return {"runs": rows, "found": sum(row["found"] for row in rows.values()), "of": len(rows)}
