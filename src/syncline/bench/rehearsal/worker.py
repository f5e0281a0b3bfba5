"""What each rank of a rehearsal runs: the operations of an order, one after the other, timed from a common start.

python -m syncline.bench.rehearsal.worker ORDER RESULT        (rank 0 writes RESULT)
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from syncline.bench.sweep import program_of
from syncline.errors import BenchError
from syncline.fabric import load
from syncline.program import place
from syncline.runtime.executor import Executor
from syncline.runtime.group import Group
from syncline.runtime.launch import detect
from syncline.runtime.trial import measure
from syncline.schedule import Kind


def work(order: dict[str, Any], group: Group) -> list[dict[str, Any]]:
    """Do everything in the order and return a row an operation."""
    placement = place("packed", load(order["cluster"]), int(order["ranks"]))
    rows = []
    with Executor(group) as executor:
        for item in order["operations"]:
            program = program_of(item["algorithm"], Kind(item["kind"]), placement, group.backend)
            trial = measure(executor, program, int(item["size_bytes"]), warm_up=2, repeats=int(item["repeats"]))
            times = trial.rank_s.max(axis=0)
            rows.append({**item, "times_s": times.tolist(), "num_wrong": trial.num_wrong})
    return rows


def main(arguments: list[str]) -> None:
    """Join the group that the environment describes, work, and let rank 0 write the result."""
    launch = detect(os.environ)
    if launch is None or len(arguments) != 2:
        raise BenchError("a rehearsal's rank is started by the lab, with an order and a place for its result.")
    with Group.join(launch, backend="gloo") as group:
        rows = work(json.loads(Path(arguments[0]).read_text("utf-8")), group)
        if group.rank == 0:
            Path(arguments[1]).write_text(json.dumps(rows), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
