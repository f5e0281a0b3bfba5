"""What each rank of a rehearsed training runs: a small GPT under several synchronisations, and what its work costs.

Times of work are the thread's own processor time, so that they do not depend on who else wanted the processor.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Sequence

from syncline.program.overlap import Work
from syncline.program.pieces import piece_sizes, shard_sizes
from syncline.rehearsal.job import PLAIN
from syncline.rehearsal.operations import Tell, everyone, own_rate, run_once
from syncline.rehearsal.order import CodecTimes, RehearsalOrder, ShownSpans, SyncTimes, TrainingTimes, WorkTimes
from syncline.runtime.group import Group
from syncline.runtime.rehearsal import Moment, Trainer, codec_of, dense_time, network_time, post_time, stage_times

PROBE_BYTES, WARM_UP = 8 << 20, 3


def train(order: RehearsalOrder, group: Group, tell: Tell) -> TrainingTimes:
    """Measure what the work costs, then train under each synchronisation in turn.

    Processors are not always as fast, nor always ours: the work is measured before and after each synchronisation.
    """
    limit = own_rate(order, group)
    levels = tuple(order.get("levels", ()))
    trainer = Trainer(order["model"], rank=group.rank, send_Bps=limit, levels=levels)
    shown: ShownSpans = {"programs": run_once(order, group), "step": [], "training_s": (0.0, 0.0)}
    tell("timing the work of a step, the network and the codecs")
    first = trainer.work(group)
    costs = {**network_time(group, PROBE_BYTES), "post_s": post_time(group)}
    codecs: dict[str, CodecTimes] = {}
    for name in order["synchronisations"]:
        codec = codec_of(name, limit)
        if codec is not None:
            codecs[name] = _codec_costs(codec, first.work.elements, group, () if name == PLAIN else levels)
    if levels:
        largest = max(size for elements in first.work.elements for size in piece_sizes(elements))
        costs["dense_s"] = float(group.numbers([dense_time(largest, levels[0])]).mean())
    rows: list[SyncTimes] = []
    moments = [_everyones(first, group), _everyones(trainer.work(group), group)]
    for number, name in enumerate(order["synchronisations"], start=1):
        tell(f"{order['steps']} steps under {name}: {number} of {len(order['synchronisations'])}")
        began = time.monotonic()
        steps = trainer.train(name, int(order["steps"]), WARM_UP)
        shown["training_s"] = (began, time.monotonic())
        # Who begins a step early waits the longer in it; the mean over the ranks is what a step adds to the run.
        times = group.numbers(steps.times_s).mean(axis=0).tolist()
        loss = group.numbers(steps.losses).mean(axis=0)
        moments.append(_everyones(trainer.work(group), group))
        rows.append({
            "synchronisation": name, "times_s": times, "step_s": statistics.median(times),
            "losses": loss.tolist(), "wire_bytes": steps.wire_bytes, "work": _between(moments[-2:]),
        })  # fmt: skip
        shown["step"] = everyone(steps.timeline, group)
    # What codecs and messages cost was measured between the first two moments.
    return {"costs": costs, "work": _between(moments[:2]), "elements": list(first.work.elements), "codecs": codecs,
            "rows": rows, "shown": shown}  # fmt: skip


def _everyones(own: Moment, group: Group) -> Moment:
    """Return the work on average over the ranks."""
    row = [own.work.forward_s, *own.work.backward_s, own.work.optimizer_s]
    forward, *backward, last = group.numbers(row).mean(axis=0).tolist()
    return Moment(Work(forward, tuple(backward), own.work.elements, last), own.cores)


def _between(moments: Sequence[Moment]) -> WorkTimes:
    """Return what the work was between two moments: their mean."""
    before, after = (moment.work for moment in moments)
    backward = [statistics.fmean(pair) for pair in zip(before.backward_s, after.backward_s, strict=True)]
    # With fewer ranks than processors each has one to itself, however many there are.
    cores = max(1.0, min(float(os.cpu_count() or 1), statistics.fmean(moment.cores for moment in moments)))
    return {
        "forward_s": (before.forward_s + after.forward_s) / 2, "backward_s": backward,
        "optimizer_s": (before.optimizer_s + after.optimizer_s) / 2, "cores": cores,
    }  # fmt: skip


def _codec_costs(codec: str, buckets: Sequence[int], group: Group, levels: Sequence[int]) -> CodecTimes:
    """Return what a codec costs in each piece, on average over the ranks.

    With levels it codes what is left of a piece at the outermost one.
    """
    sizes = sorted({outermost(size, levels) for elements in buckets for size in piece_sizes(elements)})
    stages = stage_times(codec, sizes, group.size // math.prod(levels))
    rows = [seconds for each in stages for seconds in (each.send_s, each.reduce_s, each.collect_s)]
    means = group.numbers(rows).mean(axis=0).tolist()
    return [(size, means[3 * k], means[3 * k + 1], means[3 * k + 2]) for k, size in enumerate(sizes)]


def outermost(elements: int, levels: Sequence[int]) -> int:
    """Return the elements of the first rank's shard of a piece at the outermost level."""
    for size in levels:
        elements = shard_sizes(elements, size)[0]
    return elements
