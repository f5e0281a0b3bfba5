"""A block: one combination of words and many rows, as the case that the step model prices.

The words go through the same `build_case` as a single job; only the columns that rows decide are replaced. So a block
gets the answer that its configurations would get one by one. Small blocks are priced together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from syncline.planning.space import Rows, Switches, joined_rows
from syncline.sim.step.build import build_case
from syncline.sim.step.case import Case, join, take
from syncline.sim.step.constants import Constants
from syncline.sim.step.cost import step_cost
from syncline.sim.step.machine import Machine
from syncline.sim.step.memory import LIKELY, fit_chance, memory
from syncline.sim.step.reach import Reach
from syncline.workload.job import Job, Overlap
from syncline.workload.parallel import Parallel
from syncline.workload.software import facts_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PlanQuestion:
    """What is planned: a job, what it runs on, and the constants of the model."""

    job: Job
    machine: Machine
    reach: Reach
    constants: Constants
    headroom: float = 0.0  # share of a GPU's memory that stays free beyond what the driver takes
    framework: str = ""  # whose rules every split must obey; empty: those that all have
    least_chance: float = LIKELY  # how likely what is kept must fit in memory


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows that one combination of words applies to."""

    words: Switches
    rows: Rows


@dataclass(frozen=True, eq=False)
class PricedBlocks:
    """Blocks with their price: all rows, which block each is of, and of those that fit their time and memory."""

    rows: Rows
    block: Ints
    kept: Ints  # the rows that fit
    step_s: Floats  # of those
    memory_bytes: Floats
    least_bytes: float  # the smallest need of a row that does not fit
    least: int  # which row that is, or -1


def worded(job: Job, words: Switches) -> Job:
    """Return a job with the choices in words; its numbers are still its own."""
    split = job.parallel.model_copy(
        update={"zero": words.zero, "schedule": words.schedule, "sp": words.sp if words.tensor else None}
    )
    return job.model_copy(
        update={
            "parallel": split,
            "recompute": words.recompute,
            "offload": words.offload,
            "overlap": _overlap(job, split, words),
            "gradient_bytes": words.gradient_bytes,
            "sync": job.sync.model_copy(
                update={
                    "codec": words.codec,
                    "algorithm": words.algorithm or None,
                    "bucket": words.bucket_bytes or None,
                }
            ),
        }
    )


def _overlap(job: Job, split: Parallel, words: Switches) -> Overlap:
    """Return what runs beside compute; what the software does anyway stays unstated, as in the job's own file."""
    usual, own = facts_of(job.model_copy(update={"parallel": split})), job.overlap
    return Overlap(
        tp=own.tp if not words.tensor or words.tp_overlap == usual.tp_overlap else words.tp_overlap,
        dp=own.dp if words.dp_overlap == usual.dp_overlap else words.dp_overlap,
        ep=own.ep,
        reshard=words.reshard if split.sharded_params and not words.pipeline else None,
    )


def template(question: PlanQuestion, words: Switches) -> Case:
    """Return the case of one job with these words, whose numbers a block replaces."""
    job = worded(question.job, words)
    sizes = {"tp": 2 if words.tensor else 1, "pp": 2 if words.pipeline else 1, "dp": 1, "cp": 1, "ep": 1, "virtual": 1}
    machine = replace(question.machine, reach=question.reach)
    return build_case(
        job.model_copy(update={"parallel": job.parallel.model_copy(update=sizes | {"shard": None})}), machine
    )


def block_case(question: PlanQuestion, block: RowBlock) -> Case:
    """Return the case of many rows."""
    base, words, rows = template(question, block.words), block.words, block.rows
    columns = {name: getattr(rows, name).astype(np.float64) for name in vars(rows)}
    layers = base.layers
    parts = rows.pp * rows.virtual
    even = (rows.pp > 1) & (layers % parts != 0) & ((layers + 2) % parts == 0)
    return replace(
        base,
        **columns,
        shard_ranks=shard_ranks(words.zero, rows, question.machine.domain).astype(np.float64),
        even_head=even.astype(np.float64),
    )


def shard_ranks(zero: str, rows: Rows, domain: int) -> npt.NDArray[np.int64]:
    """Return over how many ranks parameters are sharded: all replicas, or with HSDP those of one domain."""
    everyone = rows.dp * rows.cp
    if zero != "hsdp":
        return everyone
    found: npt.NDArray[np.int64] = np.clip(domain // rows.tp, 1, everyone)
    return found


def possible(rows: Rows, words: Switches, domain: int) -> Rows:
    """Return the rows that these words allow: HSDP needs whole groups, and more than one of them."""
    if words.zero == "hsdp":
        shard = shard_ranks("hsdp", rows, domain)
        return rows.take((shard > 1) & (rows.dp * rows.cp % shard == 0) & (rows.dp * rows.cp > shard))
    return rows


def price(question: PlanQuestion, blocks: Sequence[RowBlock]) -> PricedBlocks:
    """Return the rows of some blocks that fit in memory, with their step time. Memory first: exact, and little work."""
    lengths = [len(block.rows) for block in blocks]
    case = join([block_case(question, block) for block in blocks], lengths)
    rows = joined_rows([block.rows for block in blocks])
    which = np.repeat(np.arange(len(blocks)), lengths)
    held = memory(case)
    total = np.broadcast_to(held.total, len(rows))
    likely = fit_chance(case, held) >= question.least_chance
    fits = np.broadcast_to(likely & (held.total <= (1 - question.headroom) * case.memory_bytes), len(rows))
    worst = int(np.argmin(np.where(fits, np.inf, total))) if not fits.all() else -1
    kept = np.flatnonzero(fits)
    least = float(total[worst]) if worst >= 0 else np.inf
    times: Floats = np.empty(0)
    if len(kept):
        cost = step_cost(take(case, kept) if len(kept) < len(rows) else case, question.constants)
        times = np.array(np.broadcast_to(cost.total, len(kept)), dtype=np.float64)
    return PricedBlocks(rows, which, kept, times, total[kept], least, worst)
