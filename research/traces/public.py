"""Public traces that nobody here made: each read or refused, its account beside what two other tools say.

    python -m research.traces.public FOLDER [HTA.jsonl] [TRACELENS.jsonl] > research/traces/public.csv

FOLDER holds the traces as their repositories have them (`research/traces/origins.yaml` names each with its repository);
the traces are not kept. The two other files are what `research/traces/peers.py` printed. Columns of the whole recording
are over what the device recorded, as the other tools count; the account is the median step's.
"""

from __future__ import annotations

import csv
import json
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from syncline.errors import SynclineError
from syncline.explaining.attribution import attribute
from syncline.explaining.explain import Explanation, explain_recordings
from syncline.explaining.reading import read_recordings
from syncline.explaining.steps import StepWindows
from syncline.timeline.account import StepCause
from syncline.timeline.account.account import COMMUNICATION
from syncline.timeline.recording.recording import Recording

ORIGINS = Path(__file__).with_name("origins.yaml")
IDLE = (StepCause.INPUT, StepCause.HOST, StepCause.IDLE)
SHARES = {"kernels": (StepCause.KERNELS, StepCause.COPIES), "network": (StepCause.NETWORK, StepCause.STAGE),
          "late": (StepCause.LATE,), "host": (StepCause.HOST, StepCause.INPUT), "idle": (StepCause.IDLE,)}  # fmt: skip
COLUMNS = ("origin", "trace", "verdict", "tool", "ranks", "steps", "step_ms", "sum_off", "kernels", "network", "late",
           "host", "idle", "exposed_ms", "idle_ms", "hta_exposed_ms", "hta_idle_ms", "lens_exposed_ms", "lens_idle_ms",
           "cpu_s", "why")  # fmt: skip
Row = dict[str, object]


def told_by(path: str | None) -> dict[str, dict[str, float | str | None]]:
    """Return what a tool said, by the end of a trace's path."""
    if path is None:
        return {}
    return {row["path"]: row for row in map(json.loads, Path(path).read_text().splitlines())}


def whole(recording: Recording) -> tuple[float, float]:
    """Return exposed communication and idle time over all that the device recorded, in seconds."""
    begin, end = float(recording.device.start_s.min()), float(recording.device.end_s.max())
    window = StepWindows(("all",), np.array([begin]), np.array([end]))
    account = attribute(recording, window, np.full(len(recording.device), np.nan)).total
    return account.seconds(*COMMUNICATION), account.seconds(*IDLE)


def explained(row: Row, recordings: Sequence[Recording], found: Explanation) -> Row:
    """Return the row of a trace that was read."""
    account, step_s = found.account, max(found.account.step_s, 1e-12)
    shares = {name: f"{account.seconds(*causes) / step_s:.3f}" for name, causes in SHARES.items()}
    total = sum(line.seconds for line in account.lines)
    exposed, idle = whole(replace(recordings[0], steps=()))
    return row | shares | {
        "verdict": "read", "tool": found.tool, "ranks": found.ranks, "steps": found.steps,
        "step_ms": f"{1e3 * account.step_s:.4g}", "sum_off": f"{abs(total / step_s - 1):.1e}",
        "exposed_ms": f"{1e3 * exposed:.4g}", "idle_ms": f"{1e3 * idle:.4g}",
    }  # fmt: skip


def scored(origin: str, name: str, path: Path, peers: Sequence[dict[str, dict[str, float | str | None]]]) -> Row:
    """Return one row of the table."""
    row: Row = {**dict.fromkeys(COLUMNS, ""), "origin": origin, "trace": name}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    try:
        recordings = read_recordings([path])
        row = explained(row, recordings, explain_recordings(recordings))
    except SynclineError as error:
        why = str(error).splitlines()[0].replace(f"{path}: ", "").replace(str(path), name)
        row |= {"verdict": "refused", "why": why}
    row["cpu_s"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before, 2)
    for word, told in zip(("hta", "lens"), peers, strict=False):
        found = next((each for at, each in told.items() if at.startswith(str(path.resolve()))), {})
        for key in ("exposed", "idle"):
            seconds = found.get(f"{key}_s")
            row[f"{word}_{key}_ms"] = f"{1e3 * seconds:.4g}" if isinstance(seconds, float) else "fails" if found else ""
    return row


def main() -> None:
    """Print the table."""
    folder, peers = Path(sys.argv[1]), [told_by(path) for path in sys.argv[2:4]]
    table = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    table.writeheader()
    for origin, traces in yaml.safe_load(ORIGINS.read_text()).items():
        for name in traces:
            table.writerow(scored(origin, name, folder / origin.rpartition("/")[2] / name, peers))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
