"""The space of a search: every way to split and run a job on so many GPUs, as columns.

A configuration is one `Switches` (choices in words) and one row of `Rows` (choices in numbers). Rows hold only what
divides: heads by tp, a scale-up domain by tp (or tp by it), the batch by dp x micro, layers by pp x virtual, experts by
ep. A few GPUs may stay idle where no split uses all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from syncline.codec.names import PLAIN
from syncline.errors import PlanError
from syncline.workload.job import PERIODIC, Job
from syncline.workload.parallel import SHARDED, divisors
from syncline.workload.shape import Shape
from syncline.workload.software import MEGATRON_LIKE, facts_of

Ints = npt.NDArray[np.int64]
#: A slice of a sequence shorter than this is not worth a rank of its own.
MIN_CONTEXT_SLICE = 256
#: Share of the GPUs that a split must use.
MIN_USED = 0.9


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
    gradient_bytes: int = 2
    codec: str = PLAIN
    algorithm: str = ""  # of the gradient exchange; empty: the best for each row
    bucket_bytes: int = 0  # 0: the best for each row
    offload: str = "none"
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


NUMBERS = tuple(f.name for f in fields(Rows))
WORDS = tuple(f.name for f in fields(Switches) if f.name not in ("tensor", "pipeline"))


@dataclass(frozen=True)
class Axes:
    """Which choices in words are tried. `FULL` has all; `USUAL` leaves out what never or rarely wins.

    An empty `sp`, `tp_overlap` or `dp_overlap` means: as the job says, else as its software does, which is what
    `syncline step` takes. An empty `gradient_bytes` or `codec` means: as the job says. They change the numbers that
    training sees, so only whoever asks for them gets them.
    """

    zero: tuple[str, ...] = ("none", "1", "2", "3", "hsdp")
    schedule: tuple[str, ...] = ("1f1b", "interleaved")
    recompute: tuple[str, ...] = ("none", "selective", "selective-op", "partial-50", "full")
    sp: tuple[bool, ...] = ()
    tp_overlap: tuple[bool, ...] = ()
    dp_overlap: tuple[bool, ...] = ()
    reshard: tuple[bool, ...] = (True, False)
    gradient_bytes: tuple[int, ...] = ()
    codec: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ("",)  # empty and 0: the best, by closed forms inside the price of each row
    bucket_bytes: tuple[int, ...] = (0,)
    offload: tuple[str, ...] = ("none",)

    def near(self) -> Axes:
        """Return the axes without what never wins and what changes training: enough to weigh a change."""
        return replace(
            self, sp=_at_best(self.sp), tp_overlap=_at_best(self.tp_overlap), dp_overlap=_at_best(self.dp_overlap),
            gradient_bytes=(), codec=(),
        )  # fmt: skip


def _at_best(tried: tuple[bool, ...]) -> tuple[bool, ...]:
    return (True,) if True in tried else tried


#: What may wait in the memory of the host: tried where nothing fits without, and in the full space.
OFFLOADS = ("optimizer", "activations", "both")
USUAL = Axes()
FULL = Axes(
    schedule=("1f1b", "interleaved", "gpipe", "zero-bubble"), sp=(True, False), tp_overlap=(True, False),
    dp_overlap=(True, False), offload=("none", *OFFLOADS),
)  # fmt: skip
#: What goes over the wire may differ from what is summed: 2- or 4-byte gradients, and codecs that lose something.
LOSSY_WIDTHS, LOSSY_CODECS = (2, 4), (PLAIN, "int8", "int4")


def rows_of(job: Job, num_gpus: int, domain: int = 8) -> Rows:
    """Return every split of a job over so many GPUs (or a few less), with its micro-batches and chunks."""
    shape = _shape(job)
    flash = facts_of(job).attention != "unfused"  # ring attention is a fused kernel
    experts = shape.moe.experts if shape.moe is not None else 0
    sizes = _Sizes(shape.layers, shape.num_kv_heads, experts, job.batch.global_, job.batch.sequence, flash)
    return _rows_of(sizes, num_gpus, domain, MIN_USED)


@cache  # a plan asks again for every change that it weighs
def _rows_of(sizes: _Sizes, num_gpus: int, domain: int, min_used: float) -> Rows:
    splits = _splits(sizes, num_gpus, domain, min_used)
    found = [row for split in splits for row in _feeds(sizes, *split)]
    table = np.array(found, dtype=np.int64).reshape(-1, len(NUMBERS))
    return Rows(*(np.ascontiguousarray(column) for column in table.T))


class _Sizes(NamedTuple):
    """What of a job decides how it can be split."""

    layers: int
    heads: int  # of keys and values; they divide the others
    experts: int
    sequences: int
    sequence: int
    flash: bool


def switches_of(job: Job, axes: Axes) -> list[Switches]:
    """Return every meaningful combination of words; each is crossed with the rows it is for (`rows_for`)."""
    facts = facts_of(job)
    # A flash kernel repeats the attention core by itself: selective recomputation would be the same thing twice.
    recompute = [name for name in axes.recompute if not (facts.attention != "unfused" and name == "selective")]
    widths = axes.gradient_bytes or (int(facts.gradient_bytes),)
    codecs = axes.codec or (job.sync.codec,)
    both = (True, False)
    sharding = [kind for kind in axes.zero if kind in job.sync.shardings]
    found: dict[Switches, None] = {}
    for kind in sharding:
        split = job.parallel.model_copy(update={"zero": kind, "tp": 2})
        usual = facts_of(job.model_copy(update={"parallel": split}))
        if kind == "2" and usual.framework in MEGATRON_LIKE:  # it shards no gradients
            continue
        # A plan writes the flag that overlaps gradients, whatever the framework does by itself.
        late = job.overlap.dp is False
        combinations: Iterator[Any] = product(
            (kind,), axes.schedule, recompute or ["none"], axes.sp or (usual.sequence_parallel,),
            axes.tp_overlap or (usual.tp_overlap,), axes.dp_overlap or (not late,), axes.reshard, widths,
            codecs, axes.algorithm, axes.bucket_bytes, axes.offload, both, both,
        )  # fmt: skip
        found |= dict.fromkeys(_plain(Switches(*words)) for words in combinations)
    # Without a pipeline all schedules are one; it is called 1f1b.
    usable = [words for words in found if words.pipeline or "1f1b" in axes.schedule]
    return [words for words in usable if job.sync.method not in PERIODIC or words.zero != "hsdp" or not words.pipeline]


def rows_for(rows: Rows, words: Switches) -> Rows:
    """Return the rows that a combination of words applies to."""
    chunked = rows.virtual > 1
    mask = (rows.tp > 1) == words.tensor
    mask &= (rows.pp > 1) == words.pipeline
    mask &= chunked == (words.schedule == "interleaved")
    return rows.take(mask)


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several as one."""
    if len(parts) == 1:
        return parts[0]
    return Rows(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Rows)})


def chunks(rows: Rows, size: int) -> Iterator[Rows]:
    """Return the rows in pieces that stay in a cache."""
    for start in range(0, len(rows), size):
        yield rows.take(slice(start, start + size))


def _plain(words: Switches) -> Switches:
    """Return the words with those that mean nothing set to one value, so that no configuration counts twice."""
    sharded = words.zero in SHARDED and not words.pipeline
    return replace(
        words,
        schedule=words.schedule if words.pipeline else "1f1b",
        sp=words.sp and words.tensor,
        tp_overlap=words.tp_overlap and words.tensor,
        dp_overlap=words.dp_overlap or sharded,
        reshard=words.reshard and sharded,
        # FSDP exchanges layer by layer, in rings: there is nothing to choose.
        algorithm="" if sharded else words.algorithm,
        bucket_bytes=0 if sharded else words.bucket_bytes,
    )


def _splits(sizes: _Sizes, num_gpus: int, domain: int, min_used: float) -> Iterator[tuple[int, int, int, int, int]]:
    replicas, experts = divisors(sizes.sequences), divisors(sizes.experts) if sizes.experts else [1]
    depths = stages(sizes.layers, num_gpus)
    # Each rank holds whole KV heads: all frameworks can do that, copies of a head only some.
    for tp in (d for d in divisors(sizes.heads) if d <= num_gpus and (domain % d == 0 or d % domain == 0)):
        for pp in (d for d in depths if tp * d <= num_gpus):
            for cp in contexts(sizes.sequence, num_gpus // (tp * pp)) if sizes.flash else [1]:
                model = tp * pp * cp
                for dp in (d for d in replicas if min_used * num_gpus <= model * d <= num_gpus):
                    for ep in (d for d in experts if tp * cp * dp % d == 0):
                        yield tp, pp, dp, cp, ep


def stages(layers: int, num_gpus: int) -> list[int]:
    """Return the depths of a pipeline: those that cut the layers evenly, and those that use all GPUs."""
    even = (d for d in range(1, layers + 1) if layers % d == 0 or (layers + 2) % d == 0)
    return sorted({*even, *(d for d in divisors(num_gpus) if d <= layers)})


def contexts(sequence: int, ranks: int) -> list[int]:
    """Return the sizes of context-parallel groups that a sequence allows."""
    # Causal ring attention gives each rank two slices, so a sequence divides by twice the ranks.
    sizes = (d for d in divisors(sequence) if d <= ranks and (d == 1 or sequence % (2 * d) == 0))
    return [d for d in sizes if d == 1 or sequence // d >= MIN_CONTEXT_SLICE]


def _feeds(
    sizes: _Sizes, tp: int, pp: int, dp: int, cp: int, ep: int
) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
    for micro in divisors(sizes.sequences // dp):
        num_micro = sizes.sequences // (dp * micro)
        for virtual in virtual_stages(sizes.layers, pp):
            # Interleaving runs micro-batches in groups of the pipeline's depth.
            if virtual == 1 or num_micro % pp == 0:
                yield tp, pp, dp, cp, ep, virtual, micro, num_micro


@cache  # asked again for every split and micro-batch
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
            f"{job.model.name} is a list of layers; only data parallelism is known for it: nothing to choose.",
            hint="`syncline step` prices it.",
        )
    return job.model
