"""The space of a search: every way to split and run a job on so many GPUs, as columns.

A configuration is one `Switches` (choices in words) and one row of `Rows` (choices in numbers). Rows hold only what
divides: heads by tp, GPUs by tp x pp x cp, the batch by dp x micro, layers by pp x virtual, experts by ep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product

import numpy as np
import numpy.typing as npt

from syncline.errors import PlanError
from syncline.workload.job import Job
from syncline.workload.parallel import divisors
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of

Ints = npt.NDArray[np.int64]
#: A slice of a sequence shorter than this is not worth a rank of its own.
MIN_CONTEXT_SLICE = 1024
NUMBERS = ("tp", "pp", "dp", "cp", "ep", "virtual", "micro", "num_micro")
WORDS = ("zero", "schedule", "recompute", "sp", "tp_overlap", "dp_overlap", "reshard")


@dataclass(frozen=True)
class Switches:
    """Choices in words. `sp`, `tp_overlap` and `reshard` are False where they mean nothing."""

    zero: str = "1"
    schedule: str = "1f1b"
    recompute: str = "none"
    sp: bool = False
    tp_overlap: bool = False
    dp_overlap: bool = True
    reshard: bool = False
    tensor: bool = False  # tp > 1
    pipeline: bool = False  # pp > 1


@dataclass(frozen=True, eq=False)
class Rows:
    """Choices in numbers, one configuration a row."""

    tp: Ints
    pp: Ints
    dp: Ints
    cp: Ints
    ep: Ints
    virtual: Ints
    micro: Ints
    num_micro: Ints

    def __len__(self) -> int:
        return len(self.tp)

    def take(self, chosen: npt.NDArray[np.generic] | slice) -> Rows:
        """Return some of the rows, by mask, by number or by slice."""
        return Rows(**{f.name: getattr(self, f.name)[chosen] for f in fields(Rows)})


@dataclass(frozen=True)
class Axes:
    """Which choices in words are tried. `full` has all; the usual ones leave out what never wins."""

    zero: tuple[str, ...] = ("none", "1", "2", "3")
    schedule: tuple[str, ...] = ("1f1b", "interleaved")
    recompute: tuple[str, ...] = ("none", "selective", "selective-op", "full")
    sp: tuple[bool, ...] = (True,)
    tp_overlap: tuple[bool, ...] = (True,)
    dp_overlap: tuple[bool, ...] = (True,)
    reshard: tuple[bool, ...] = (True, False)


USUAL = Axes()
FULL = Axes(
    schedule=("1f1b", "interleaved", "gpipe"), sp=(True, False), tp_overlap=(True, False), dp_overlap=(True, False)
)  # fmt: skip


def rows_of(job: Job, num_gpus: int) -> Rows:
    """Return every split of a job over exactly so many GPUs, with its micro-batches and chunks."""
    shape = _shape(job)
    found = [row for split in _splits(shape, job, num_gpus) for row in _feeds(shape, job.batch.global_, *split)]
    table = np.array(found, dtype=np.int64).reshape(-1, len(NUMBERS))
    return Rows(*(np.ascontiguousarray(column) for column in table.T))


def switches_of(job: Job, axes: Axes) -> list[Switches]:
    """Return every meaningful combination of words; each is crossed with the rows it is for (`rows_for`)."""
    flash = facts_of(job).attention != "unfused"
    # A flash kernel repeats the attention core by itself: selective recomputation would be the same thing twice.
    recompute = [name for name in axes.recompute if not (flash and name == "selective")]
    found = dict.fromkeys(
        _plain(Switches(zero, schedule, redo, sp, tp_overlap, dp_overlap, reshard, tensor, pipeline))
        for zero, schedule, redo, sp, tp_overlap, dp_overlap, reshard, tensor, pipeline in product(
            axes.zero, axes.schedule, recompute, axes.sp, axes.tp_overlap, axes.dp_overlap, axes.reshard,
            (True, False), (True, False),
        )
    )  # fmt: skip
    # Without a pipeline all schedules are one; it is called 1f1b, and falls away where 1f1b was not asked for.
    return [words for words in found if words.pipeline or words.schedule == "1f1b"]


def rows_for(rows: Rows, words: Switches) -> Rows:
    """Return the rows that a combination of words applies to."""
    chunked = rows.virtual > 1
    mask = (rows.tp > 1) == words.tensor
    mask &= (rows.pp > 1) == words.pipeline
    mask &= chunked == (words.schedule == "interleaved")
    return rows.take(mask)


def chunks(rows: Rows, size: int) -> Iterator[Rows]:
    """Return the rows in pieces that stay in a cache."""
    for start in range(0, len(rows), size):
        yield rows.take(slice(start, start + size))


def _plain(words: Switches) -> Switches:
    """Return the words with those that mean nothing set to one value, so that no configuration counts twice."""
    sharded = words.zero in ("3", "fsdp", "hsdp") and not words.pipeline
    return Switches(
        zero=words.zero,
        schedule=words.schedule if words.pipeline else "1f1b",
        recompute=words.recompute,
        sp=words.sp and words.tensor,
        tp_overlap=words.tp_overlap and words.tensor,
        dp_overlap=words.dp_overlap or sharded,
        reshard=words.reshard and sharded,
        tensor=words.tensor,
        pipeline=words.pipeline,
    )


def _splits(shape: Shape, job: Job, num_gpus: int) -> Iterator[tuple[int, int, int, int, int]]:
    sequence, total = job.batch.sequence, job.batch.global_
    heads = [d for d in divisors(shape.heads) if num_gpus % d == 0]
    for tp in heads:
        for pp in (d for d in divisors(num_gpus // tp) if d <= shape.layers):
            for cp in _contexts(sequence, num_gpus // (tp * pp)):
                dp = num_gpus // (tp * pp * cp)
                if total % dp == 0:
                    for ep in _expert_groups(shape, tp * cp * dp):
                        yield tp, pp, dp, cp, ep


def _contexts(sequence: int, ranks: int) -> list[int]:
    # Causal ring attention gives each rank two slices, so a sequence divides by twice the ranks.
    sizes = (d for d in divisors(ranks) if d == 1 or sequence % (2 * d) == 0)
    return [d for d in sizes if d == 1 or sequence // d >= MIN_CONTEXT_SLICE]


def _expert_groups(shape: Shape, ranks: int) -> list[int]:
    if shape.moe is None:
        return [1]
    return [d for d in divisors(shape.moe.experts) if ranks % d == 0]


def _feeds(
    shape: Shape, total: int, tp: int, pp: int, dp: int, cp: int, ep: int
) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
    for micro in divisors(total // dp):
        num_micro = total // (dp * micro)
        for virtual in virtual_stages(shape.layers, pp):
            # Interleaving runs micro-batches in groups of the pipeline's depth.
            if virtual == 1 or num_micro % pp == 0:
                yield tp, pp, dp, cp, ep, virtual, micro, num_micro


def virtual_stages(layers: int, pp: int) -> Sequence[int]:
    """Return the chunks per rank that cut the layers evenly; embedding and head may count as layers."""
    if pp == 1:
        return (1,)
    most = (layers + 2) // pp
    even = [v for v in range(2, most + 1) if layers % (pp * v) == 0 or (layers + 2) % (pp * v) == 0]
    return (1, *even)


def _shape(job: Job) -> Shape:
    if not isinstance(job.model, Shape):
        raise PlanError(
            f"{job.model.name} is a list of layers; only data parallelism is known for it, so there is nothing to choose.",
            hint="`syncline step` prices it.",
        )
    return job.model
