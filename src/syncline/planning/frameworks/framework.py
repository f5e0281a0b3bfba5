"""Frameworks that start a planned job: which words they have, and the rules that every split must obey.

    named_framework("megatron").keep(rows, job)      # the rows it accepts
    named_framework("torchtitan").axes(USUAL)        # the words it has

Rules are stated with where the framework says so; `dialects` are its words for the fields of a model (`fields.py`), and
`launch.py` writes the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from syncline.errors import PlanError
from syncline.planning.frameworks.fields import Dialect, dialect_of
from syncline.planning.frameworks.launch_maxtext import MAXTEXT
from syncline.planning.frameworks.launch_megatron import MEGATRON
from syncline.planning.frameworks.launch_nemo import NEMO
from syncline.planning.frameworks.launch_torch import TITAN
from syncline.planning.space import Axes, Rows
from syncline.workload.job import Job
from syncline.workload.shape import Shape


@dataclass(frozen=True)
class Rule:
    """One demand on the numbers of a split: a name, what it says, who says so, and the rows that obey."""

    name: str
    text: str
    source: str
    obeys: Callable[[Rows, Job, Shape], Any]


@dataclass(frozen=True)
class Framework:
    """A framework as a planner sees it."""

    name: str
    title: str
    rules: tuple[Rule, ...]
    zero: tuple[str, ...]
    schedule: tuple[str, ...]
    recompute: tuple[str, ...]
    offload: tuple[str, ...]
    software: str
    """What a job's `software.framework` calls it; "auto": no word is its own."""
    dialects: tuple[Dialect, ...] = ()
    """How it names the fields of a model; none: it leaves the model to its user's script."""
    gradient_bytes: tuple[int, ...] = (2, 4)
    """Widths in which it can be told to send gradients."""

    def axes(self, axes: Axes) -> Axes:
        """Return the words of a search that this framework has."""
        words = {name: self._both(name, axes) for name in ("zero", "schedule", "recompute", "offload")}
        return replace(axes, **words)

    def _both(self, name: str, axes: Axes) -> Any:
        has: tuple[str, ...] = getattr(self, name)
        return tuple(word for word in getattr(axes, name) if word in has) or has[:1]

    def keep(self, rows: Rows, job: Job) -> Rows:
        """Return the rows that obey every rule."""
        shape = job.model
        if not isinstance(shape, Shape):
            raise PlanError(f"{job.model.name} is a list of layers; no framework is known for it.")
        self.dialect(shape)
        self.check_width(job)
        for rule in self.rules:
            mask = np.broadcast_to(rule.obeys(rows, job, shape), len(rows))
            if len(rows) and not mask.any():
                raise PlanError(
                    f"{self.title} cannot run {shape.name} with this batch on this number of GPUs.",
                    detail=f"Rule {rule.name}: {rule.text} ({rule.source}).",
                    hint="Change the batch or the number of GPUs, or plan for another framework.",
                )
            rows = rows.take(mask)
        return rows

    def dialect(self, shape: Shape) -> Dialect | None:
        """Return its words for a model, or raise with what it cannot express."""
        return dialect_of(self.title, self.dialects, shape) if self.dialects else None

    def check_width(self, job: Job) -> None:
        """Raise where the job states a width of gradients that this framework cannot send."""
        if job.gradient_bytes is not None and job.gradient_bytes not in self.gradient_bytes:
            raise PlanError(
                f"{self.title} sends gradients of {' or '.join(map(str, self.gradient_bytes))} bytes, "
                f"and the job's have {job.gradient_bytes}.",
                hint="Leave `gradient_bytes` out, or plan for another framework.",
            )

    def stated(self, job: Job) -> tuple[Job, str]:
        """Return the job as this framework runs it, and what that changes of what its file says."""
        if job.gradient_bytes is None and len(self.gradient_bytes) == 1:
            job = job.model_copy(update={"gradient_bytes": self.gradient_bytes[0]})
        if self.software == "auto" or job.software.framework == self.software:
            return job, ""
        named, note = job.software.framework, ""
        software = job.software.model_copy(update={"framework": self.software})
        if named != "auto":
            note = f"planned for {self.title}, not for {named}, which the job names as its software"
        return job.model_copy(update={"software": software}), note


def _experts(shape: Shape) -> int:
    return shape.moe.experts if shape.moe else 1


def _experts_divide(rows: Rows, job: Job, shape: Shape) -> Any:
    return (_experts(shape) % rows.ep == 0) & (rows.tp * rows.cp * rows.dp % rows.ep == 0)


def _even_chunks(rows: Rows, job: Job, shape: Shape) -> Any:
    chunks = rows.pp * rows.virtual
    return (rows.virtual == 1) | (shape.layers % chunks == 0) | ((shape.layers + 2) % chunks == 0)


def _widths_divide(rows: Rows, job: Job, shape: Shape) -> Any:
    shared = shape.moe.shared_ffn if shape.moe else 0
    return (shape.ffn_size % rows.tp == 0) & (shared % rows.tp == 0)


TABLE = Rule(
    "positions", "the table of learned positions is as long as the sequence",
    "megatron/bridge/models/gpt_provider.py, provide",
    lambda rows, job, shape: (shape.positions == 0) | (job.batch.sequence == shape.positions),
)  # fmt: skip
KV_HEADS = Rule(
    "kv-heads", "tp divides the attention heads and the KV heads",
    "megatron/core/transformer/transformer_config.py, __post_init__",
    lambda rows, job, shape: (shape.heads % rows.tp == 0) & (shape.num_kv_heads % rows.tp == 0),
)  # fmt: skip
WIDTHS = Rule(
    "widths", "tp divides the width of feed-forward blocks and of experts' shared part",
    "megatron/core/tensor_parallel", _widths_divide,
)  # fmt: skip
SEQUENCE = Rule(
    "sequence", "the sequence divides by tp (sequence parallelism) and by 2 cp (balanced ring attention)",
    "megatron/training/arguments.py; torchtitan/distributed/context_parallel.py",
    lambda rows, job, shape: job.batch.sequence % (rows.tp * np.where(rows.cp > 1, 2 * rows.cp, 1)) == 0,
)  # fmt: skip
GROUPS = Rule(
    "interleaved-micro-batches", "micro-batches of an interleaved pipeline are a multiple of its depth",
    "megatron/core/pipeline_parallel/schedules.py",
    lambda rows, job, shape: (rows.virtual == 1) | (rows.num_micro % rows.pp == 0),
)  # fmt: skip
CHUNKS = Rule(
    "virtual-stages", "chunks of an interleaved pipeline are even, embedding and output layer counted or not",
    "megatron/core/transformer/pipeline_parallel_layer_layout.py", _even_chunks,
)  # fmt: skip
EXPERTS = Rule(
    "experts", "ep divides the experts, and tp x cp x dp divides by ep", "megatron/core/parallel_state.py",
    _experts_divide,
)  # fmt: skip
STAGED = Rule(
    "stages", "a pipeline has at least as many micro-batches as stages", "torch.distributed.pipelining, schedules",
    lambda rows, job, shape: (rows.pp == 1) | (rows.num_micro >= rows.pp * rows.virtual),
)  # fmt: skip
TITAN_EXPERTS = Rule(
    "experts", "ep divides dp_shard x cp x tp and the experts", "torchtitan/distributed/parallel_dims.py",
    _experts_divide,
)  # fmt: skip
TIED = Rule(
    "tied", "tied embeddings are on one stage: pp is 1", "torchtitan/models/common/decoder.py",
    lambda rows, job, shape: (rows.pp == 1) | (not shape.tied),
)  # fmt: skip
ZERO_ONLY = Rule(
    "data-parallel", "a DeepSpeed config alone splits the state, not the model: tp, pp, cp and ep are 1",
    "deepspeed/runtime/config.py", lambda rows, job, shape: rows.tp * rows.pp * rows.cp * rows.ep == 1,
)  # fmt: skip
MESH = Rule(
    "mesh", "no pipeline, one micro-batch of each device a step (gradient accumulation aside)",
    "MaxText/configs/base.yml", lambda rows, job, shape: rows.pp == 1,
)  # fmt: skip
MESH_EXPERTS = Rule(
    "experts", "ep divides the experts and dp: experts are an axis of the mesh of their own",
    "MaxText/configs/base.yml, mesh_axes",
    lambda rows, job, shape: (_experts(shape) % rows.ep == 0) & (rows.dp % rows.ep == 0),
)  # fmt: skip

_MEGATRON = Framework(
    "megatron", "Megatron-LM", (KV_HEADS, WIDTHS, SEQUENCE, GROUPS, CHUNKS, EXPERTS), zero=("1", "none"),
    schedule=("1f1b", "interleaved"),
    recompute=("none", "selective", "partial-25", "partial-50", "partial-75", "full"), offload=("none", "optimizer"),
    software="megatron", dialects=(MEGATRON,),
)  # fmt: skip
FRAMEWORKS = {
    "megatron": _MEGATRON,
    "nemo": replace(
        _MEGATRON, name="nemo", title="NeMo (Megatron-Bridge)", software="nemo", dialects=(NEMO,),
        rules=(TABLE, *_MEGATRON.rules),
    ),
    "torchtitan": Framework(
        "torchtitan", "torchtitan", (KV_HEADS, WIDTHS, SEQUENCE, GROUPS, CHUNKS, STAGED, TITAN_EXPERTS, TIED),
        zero=("3", "hsdp"), schedule=("1f1b", "interleaved", "gpipe"), recompute=("none", "selective-op", "full"),
        offload=("none",), software="pytorch", dialects=TITAN,
        gradient_bytes=(4,),  # config/configs.py: mixed_precision_reduce is float32 alone
    ),
    "deepspeed": Framework(
        "deepspeed", "DeepSpeed", (ZERO_ONLY,), zero=("3", "2", "1", "none"), schedule=("1f1b",),
        recompute=("none", "full"), offload=("none", "optimizer"), software="deepspeed",
    ),
    "maxtext": Framework(
        "maxtext", "MaxText", (MESH, KV_HEADS, SEQUENCE, MESH_EXPERTS), zero=("3",), schedule=("1f1b",),
        recompute=("none", "full"), offload=("none",), software="auto", dialects=MAXTEXT,
    ),
}  # fmt: skip


def named_framework(name: str) -> Framework:
    """Return the framework of that name."""
    if name not in FRAMEWORKS:
        raise PlanError(
            f'`framework` "{name}" is none that syncline knows.', hint=f"It is one of {', '.join(FRAMEWORKS)}."
        )
    return FRAMEWORKS[name]
