"""Previews of scripts beside what a GPU measured.

    python research/preview/score.py predict FILE NAME ...    predict them for an H200 and add them to FILE
    python research/preview/score.py FILE MEASURED            put FILE beside what `real.py` wrote: median, p90, inside
    python research/preview/score.py h200-kinds.json          what was measured with what had been predicted

A prediction that stands in FILE is kept: what was said before a script's kernels were seen stays as it was said.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parent))  # as a script and as a module of the studies alike
from real import files

HOST = "{gpus: 1, gpu: H200-SXM5-141GB, nics: 1, nic: ConnectX-7}"
CLUSTER = f"name: one H200\nhosts: 2\nhost: {HOST}\nnetwork: rail-optimized NDR\n"
WIDE, NEAR = 1.8, 0.03  # what a range and an error of memory should not be over


def predict(out: Path, names: list[str]) -> None:
    """Preview each script as its user would, and keep what was said."""
    kept = json.loads(out.read_text()) if out.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        cluster = Path(scratch) / "h200.yaml"
        cluster.write_text(CLUSTER)
        for name in names:
            if name in kept:
                continue
            command = [
                "syncline",
                "preview",
                str(cluster),
                "--json",
                "--world",
                "1",
                "--",
                "python",
                files()[name],
                name,
            ]
            told = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
            kept[name] = (
                brief(json.loads(told.stdout))
                if told.returncode == 0
                else {"error": (told.stderr or told.stdout)[-1500:]}
            )
            print(name, json.dumps(kept[name])[:300], flush=True)
            out.write_text(json.dumps(kept, indent=1) + "\n")


def brief(said: dict) -> dict:
    """Return what of a preview can be measured."""
    low, high = said["interval_s"]
    return {
        "step_s": said["step_time_s"], "low_s": low, "high_s": high, "peak_bytes": said["memory"]["peak_bytes"],
        "kernels_s": sum(said["kernels_s"].values()), "operations": said["operations"],
    }  # fmt: skip


def score(said: dict, measured: dict) -> None:
    """Print the rows, and what they come to."""
    rows = []
    print(f"{'script':28}{'said ms':>9}{'took':>9}{'off':>8}{'range':>7}  {'busy':>9}{'said':>9}{'host':>9}  memory")
    for name, row in said.items():
        real = measured.get(name, {"error": "not measured"})
        if "error" in row or "error" in real:
            print(f"{name:28}{(row if 'error' in row else real)['error'].strip()[-90:]}")
            continue
        off, inside = row["step_s"] / real["step_s"] - 1, row["low_s"] <= real["step_s"] <= row["high_s"]
        wide, memory = row["high_s"] / row["low_s"], row["peak_bytes"] / real["peak_bytes"] - 1
        rows.append((abs(off), inside, wide, abs(memory)))
        said_ms, took_ms, busy_ms, kernels_ms, host_ms = (
            f"{1e3 * seconds:9.2f}"
            for seconds in (row["step_s"], real["step_s"], real["gpu_busy_s"], row["kernels_s"], real["host_s"])
        )
        print(
            f"{name:28}{said_ms}{took_ms}{off:+8.1%}{wide:6.2f}{'' if inside else '!':2}"
            f"{busy_ms}{kernels_ms}{host_ms}  {memory:+.1%}"
        )
    off, inside, wide, memory = zip(*rows, strict=True)
    print(
        f"{len(rows)} scripts: median {median(off):.1%}, p90 {quantiles(off, n=10)[-1]:.1%}, inside {sum(inside)},"
        f" ranges x{math.exp(median(map(math.log, wide))):.2f} ({sum(each <= WIDE for each in wide)} at most x{WIDE}),"
        f" memory within {NEAR:.0%} in {sum(each <= NEAR for each in memory)}"
    )


if __name__ == "__main__":
    if sys.argv[1] == "predict":
        predict(Path(sys.argv[2]), sys.argv[3:])
    else:
        first, *other = (json.loads(Path(path).read_text()) for path in sys.argv[1:])
        score(first if other else {name: row["predicted"] for name, row in first.items()}, *(other or [first]))
