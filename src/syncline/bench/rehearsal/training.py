"""What each rank of a rehearsed training runs: a small GPT under several synchronisations, and what its work costs.

python -m syncline.bench.rehearsal.training ORDER RESULT        (rank 0 writes RESULT)

Times of work are the thread's own processor time, so that they do not depend on who else wanted the processor.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from syncline.bench.rehearsal.worker import everyone, own_rate, run_once
from syncline.errors import BenchError
from syncline.program.overlap import piece_sizes
from syncline.runtime.group import Group
from syncline.runtime.launch import detect
from syncline.runtime.rehearsal import OwnWork, Trainer, codec_of, network_time, post_time, stage_times


def work(order: dict[str, Any], group: Group) -> dict[str, Any]:
    """Measure what the work costs, then train under each synchronisation in turn."""
    limit = own_rate(order, group)
    trainer = Trainer(order["model"], rank=group.rank, send_Bps=limit)
    shown: dict[str, Any] = {"programs": run_once(order, group)}
    own = [trainer.work()]
    costs = {**network_time(group, int(order.get("probe_bytes", 8 << 20))), "post_s": post_time(group)}
    codecs = {}
    for name in order["synchronisations"]:
        codec = codec_of(name, limit)
        if codec is not None:
            codecs[name] = _codec_costs(trainer, codec, own[0].elements, group)
    before = trainer.cores(group)
    rows = []
    for name in order["synchronisations"]:
        began = time.monotonic()
        steps = trainer.train(name, int(order["steps"]), int(order.get("warm_up", 3)))
        shown["training_s"] = [began, time.monotonic()]
        # Who begins a step early waits the longer in it; the mean over the ranks is what a step adds to the run.
        times = group.numbers(steps.times_s).mean(axis=0).tolist()
        loss = group.numbers(steps.losses).mean(axis=0)
        rows.append({
            "synchronisation": name, "times_s": times, "step_s": statistics.median(times),
            "losses": loss.tolist(), "wire_bytes": steps.wire_bytes,
        })  # fmt: skip
        shown["step"] = everyone(steps.timeline, group)
    own.append(trainer.work())
    # With fewer ranks than processors each has one to itself, however many there are.
    cores = max(1.0, min(float(os.cpu_count() or 1), (before + trainer.cores(group)) / 2))
    costs |= _mean_work(own, group)
    return {"costs": costs, "elements": list(own[0].elements), "codecs": codecs, "rows": rows, "cores": cores,
            "shown": shown}  # fmt: skip


def _mean_work(own: Sequence[OwnWork], group: Group) -> dict[str, Any]:
    """Return the work on average over the ranks and the moments it was measured: processors are not always as fast."""
    rows = [[*each.backward_s, each.forward_s, each.optimizer_s] for each in own]
    mean = group.numbers(np.mean(rows, axis=0).tolist()).mean(axis=0).tolist()
    return {"backward_s": mean[:-2], "forward_s": mean[-2], "optimizer_s": mean[-1]}


def _codec_costs(trainer: Trainer, codec: str, buckets: Sequence[int], group: Group) -> dict[str, Any]:
    """Return what a codec costs in each piece, and the optimizer after it, on average over the ranks."""
    sizes = sorted({size for elements in buckets for size in piece_sizes(elements)})
    stages = stage_times(codec, sizes, group.size)
    rows = [seconds for each in stages for seconds in (each.send_s, each.reduce_s, each.collect_s)]
    *means, optimizer_s = group.numbers([*rows, trainer.optimizer_time(codec)]).mean(axis=0).tolist()
    pieces = [[size, *means[3 * k : 3 * k + 3]] for k, size in enumerate(sizes)]
    return {"pieces": pieces, "optimizer_s": optimizer_s}


def main(arguments: list[str]) -> None:
    """Join the group that the environment describes, work, and let rank 0 write the result."""
    launch = detect(os.environ)
    if launch is None or len(arguments) != 2:
        raise BenchError("a rehearsal's rank is started by the lab, with an order and a place for its result.")
    with Group.join(launch, backend="gloo") as group:
        began = time.monotonic()
        found = work(json.loads(Path(arguments[0]).read_text("utf-8")), group)
        if group.rank == 0:
            Path(arguments[1]).write_text(json.dumps({**found, "took_s": time.monotonic() - began}), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
