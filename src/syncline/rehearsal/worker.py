"""One rank of a rehearsal: the operations of an order, or training.

python -m syncline.rehearsal.worker operations|network|training ORDER RESULT        (rank 0 writes RESULT)
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from syncline.errors import BenchError
from syncline.rehearsal.operations import Tell, run_all, time_network
from syncline.rehearsal.order import PROGRESS
from syncline.rehearsal.training import train
from syncline.runtime.group import Group
from syncline.runtime.launch import detect


def main(arguments: list[str]) -> None:
    """Join the group that the environment describes, do the task, and let rank 0 write the result."""
    launch = detect(os.environ)
    if launch is None or len(arguments) != 3:
        raise BenchError("a rehearsal's rank is started by the lab, with a task, an order and a place for its result.")
    task, order, result = arguments
    with Group.join(launch, backend="gloo") as group:
        work = {"operations": run_all, "network": time_network, "training": train}[task]
        progress = Path(result).with_suffix(PROGRESS)
        tell: Tell = progress.write_text if group.rank == 0 else lambda text: None
        answer = work(json.loads(Path(order).read_text("utf-8")), group, tell)
        if group.rank == 0:
            Path(result).write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
    # A thread of gloo may still let go of a hook, which needs the interpreter: one that is being torn down aborts.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
