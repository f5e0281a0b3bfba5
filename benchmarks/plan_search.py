"""Search of GPT-3 175B on 4,096 A100s over the full lossless space, and the same answers one by one.

The sample that is priced one by one is of the space with gradient widths and codecs too, six times as large.

The best public planner measured on a two-core machine (Calculon) evaluates 34-37 configurations per CPU second of a
space of 7,126,368 for this case; SimuMax 3-14. Those figures were measured apart, not in this run.
"""

from __future__ import annotations

import random
import resource
import time
from dataclasses import replace
from typing import Any

from tests.planning.one_configuration import evaluate

from syncline.describe.document import Document
from syncline.fabric.build import build
from syncline.fabric.load import parse_cluster
from syncline.planning.answer import ask
from syncline.planning.block import PlanQuestion, RowBlock, possible, price
from syncline.planning.decision import decision_of
from syncline.planning.named_job import named_job
from syncline.planning.search import search
from syncline.planning.space import FULL, LOSSY_CODECS, LOSSY_WIDTHS, Axes, rows_for, rows_of, switches_of

NUM_GPUS = 4096
EVERYTHING = replace(FULL, gradient_bytes=LOSSY_WIDTHS, codec=LOSSY_CODECS)
SAMPLES = 1000


def question() -> PlanQuestion:
    """Return GPT-3 175B, batch 4,096, on 512 DGX A100."""
    data = {"name": "a100-4096", "hosts": NUM_GPUS // 8, "host": "dgx-a100", "network": "fat-tree HDR"}
    return ask(build(parse_cluster(Document(data, {}, "benchmark"))), named_job("gpt3-175b"))[0]


def one_by_one(asked: PlanQuestion, axes: Axes) -> dict[str, Any]:
    """Price random configurations both ways; return how many differ, and the rate of the slow way."""
    dice = random.Random(6)  # noqa: S311 - a sample, not a secret
    rows, words = rows_of(asked.job, NUM_GPUS, asked.machine.domain), switches_of(asked.job, axes)
    differ = compared = 0
    spent = 0.0
    while compared < SAMPLES:
        chosen = dice.choice(words)
        mine = possible(rows_for(rows, chosen), chosen, asked.machine.domain)
        if not len(mine):
            continue
        block = price(asked, [RowBlock(chosen, mine)])
        for i in dice.sample(range(len(block.kept)), min(10, len(block.kept))):
            started = time.process_time()
            alone = evaluate(asked, decision_of(chosen, block.rows, int(block.kept[i])))
            spent += time.process_time() - started
            assert alone.cost is not None
            same = float(alone.cost.total) == block.step_s[i] and alone.memory_bytes["total"] == block.memory_bytes[i]
            differ += not same
            compared += 1
    return {"sampled": compared, "differ_from_one_by_one": differ, "one_by_one_per_cpu_s": compared / spent}


def run() -> dict[str, Any]:
    """Search with one process and with two, and compare a sample with one-by-one evaluation."""
    asked = question()
    figures: dict[str, Any] = {"case": "gpt3-175b, 4,096 A100, global batch 4,096, sequence 2,048, offload on and off"}
    for workers in (1, 2):
        before = _cpu_s()
        started = time.perf_counter()
        found = search(asked, NUM_GPUS, axes=FULL, workers=workers)
        wall, cpu = time.perf_counter() - started, _cpu_s() - before
        name = f"{workers}_process{'es' if workers > 1 else ''}"
        figures |= {
            f"wall_s_{name}": wall,
            f"cpu_s_{name}": cpu,
            f"configurations_per_cpu_s_{name}": found.num_considered / cpu,
        }
    figures |= {
        "configurations": found.num_considered,
        "fit_in_memory": found.num_fitting,
        "best_step_s": found.best[0].step_s,
        "best": found.best[0].decision.label,
        "targets": {"configurations_per_cpu_s": 20_000, "wall_s_2_processes": 180},
        "peers_measured_apart_per_cpu_s": {"calculon": [34, 37, 36], "simumax": "3-14"},
    }
    return figures | one_by_one(asked, EVERYTHING)


def _cpu_s() -> float:
    """Return CPU seconds of this process and of those it has waited for."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime
