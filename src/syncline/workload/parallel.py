"""How a job is split over ranks: tensor, context, expert, data and pipeline parallelism, and their rules."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator, model_validator

from syncline.describe.quantity import Strict
from syncline.errors import DescriptionError
from syncline.workload.shape import Shape
from syncline.workload.stages import stage_layout

Zero = Literal["none", "1", "2", "3", "fsdp", "hsdp"]
#: Those that gather parameters layer by layer.
SHARDED = ("3", "fsdp", "hsdp")
Schedule = Literal["1f1b", "gpipe", "interleaved", "zero-bubble"]
Placed = Literal["packed", "spread", "stages", "scattered"]
PLACEMENTS: tuple[str, ...] = get_args(Placed)


class Parallel(Strict):
    """The split. `dp` left out means: all the GPUs that the rest leaves."""

    tp: int = Field(default=1, ge=1, le=65_536)
    pp: int = Field(default=1, ge=1, le=65_536)
    dp: int | None = Field(default=None, ge=1, le=10_000_000)
    cp: int = Field(default=1, ge=1, le=65_536)
    ep: int = Field(default=1, ge=1, le=65_536)
    sp: bool | None = Field(default=None, description="sequence parallelism; default: with tensor parallelism")
    zero: Zero = "1"
    shard: int | None = Field(default=None, ge=1, description="ranks of one FSDP shard group (hsdp)")
    schedule: Schedule = "1f1b"
    virtual: int = Field(default=1, ge=1, le=1024, description="model chunks per rank (interleaved)")
    context: Literal["ring", "ulysses"] = "ring"
    order: tuple[Literal["tp", "cp", "ep", "dp", "pp"], ...] = ("tp", "cp", "dp", "pp")
    placement: Placed = Field(default="packed", description="where ranks sit on racks and sites (sim/step/reach.py)")

    @field_validator("zero", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return "none" if value in (0, None) else str(value)

    @model_validator(mode="after")
    def _chunks_need_a_pipeline(self) -> Parallel:
        if self.virtual > 1 and self.pp == 1:
            raise ValueError(f"virtual is {self.virtual}, but there is no pipeline (pp is 1); leave virtual out")
        if self.virtual > 1 and self.schedule in ("gpipe", "zero-bubble"):
            raise ValueError(
                f"{self.schedule} has one chunk a rank; leave virtual out, or write `schedule: interleaved`"
            )
        return self

    @property
    def sharded_params(self) -> bool:
        """Whether parameters are gathered layer by layer."""
        return self.zero in SHARDED

    @property
    def sharded_state(self) -> bool:
        """Whether each rank owns a part of the optimizer's state."""
        return self.zero != "none"

    @property
    def shard_ranks(self) -> int:
        """Ranks over which parameters are sharded: all replicas, or for HSDP what fits a host of 8 unless given."""
        every = (self.dp or 1) * self.cp
        if self.zero != "hsdp":
            return every
        return min(self.shard or max(d for d in divisors(every) if d <= max(1, 8 // self.tp)), every)

    @property
    def model_ranks(self) -> int:
        """Ranks that one replica of the model takes."""
        return self.tp * self.pp * self.cp

    def fill(self, num_gpus: int | None, where: str = "") -> Parallel:
        """Return the split with `dp` filled in from the number of GPUs, or raise where they do not fit."""
        if num_gpus is None:
            return self if self.dp is not None else self.model_copy(update={"dp": 1})
        if self.dp is None:
            if num_gpus % self.model_ranks:
                near = [n for n in range(max(num_gpus - self.model_ranks, 1), num_gpus) if n % self.model_ranks == 0]
                raise DescriptionError(
                    f"{num_gpus} GPUs do not divide into replicas of {self.model_ranks} "
                    f"(tp {self.tp} x cp {self.cp} x pp {self.pp}).",
                    where=where,
                    hint=f"Use {near[-1]} GPUs (gpus: {near[-1]})."
                    if near
                    else f"It takes {self.model_ranks} at least.",
                )
            return self.model_copy(update={"dp": num_gpus // self.model_ranks})
        if self.dp * self.model_ranks > num_gpus:
            most = num_gpus // self.model_ranks
            raise DescriptionError(
                f"tp {self.tp} x cp {self.cp} x pp {self.pp} x dp {self.dp} needs {self.dp * self.model_ranks:,} GPUs, "
                f"but there are {num_gpus:,}.",
                where=where,
                hint=f"dp: {most} fits." if most else "One replica alone does not fit: lower tp, cp or pp.",
            )
        return self


def nearest(options: list[int], wanted: int) -> int:
    """Return the option closest to what was asked for."""
    return min(options, key=lambda option: (abs(option - wanted), option))


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def _refused(message: str, key: str, options: list[int], wanted: int, *, detail: str = "", also: str = "") -> Exception:
    """Return the error about a number of a split, with the nearest that works."""
    works = f"The nearest that works is {key}: {nearest(options, wanted)}{also}."
    return DescriptionError(message, detail=detail, hint=works)


def check_split(shape: Shape, split: Parallel) -> None:
    """Raise if this model cannot be split so; the text says what, why and the nearest split that works."""
    tp, heads, keys = split.tp, shape.heads, shape.num_kv_heads
    if tp > heads or heads % tp:
        why = "more than" if tp > heads else "which does not divide"
        message = f"tp is {tp}, {why} the {heads} attention heads of {shape.name}."
        raise _refused(message, "tp", divisors(heads), tp, detail="Tensor parallelism gives each rank whole heads.")
    if keys % tp and tp % keys:
        message = f"tp is {tp}, neither a divisor nor a multiple of the {keys} KV heads of {shape.name}."
        rule = "Rule kv-heads: each rank holds whole KV heads, or a copy of one."
        raise _refused(message, "tp", divisors(keys), tp, detail=rule)
    if split.context == "ulysses" and split.cp > 1 and (heads // tp) % split.cp:
        message = f"cp is {split.cp}, which does not divide the {heads // tp} heads of a tensor-parallel rank."
        rule = "Ulysses exchanges heads for sequence, whole heads only."
        raise _refused(message, "cp", divisors(heads // tp), split.cp, detail=rule, also=", or `context: ring`")
    if split.pp > shape.layers:
        raise DescriptionError(
            f"pp is {split.pp}, but {shape.name} has {shape.layers} layers.",
            detail="A pipeline stage needs at least one layer.",
            hint=f"The deepest pipeline is pp: {shape.layers}.",
        )
    if split.virtual > 1 and split.pp * split.virtual > shape.layers + 2:
        raise DescriptionError(
            f"{split.pp} stages of {split.virtual} chunks are {split.pp * split.virtual} chunks, "
            f"but {shape.name} has {shape.layers} layers.",
            hint=f"virtual: {max(1, shape.layers // split.pp)} is the most.",
        )
    if split.virtual > 1:
        stage_layout(shape.layers, split.pp, split.virtual)
    replicas = (split.dp or 1) * split.cp
    if split.zero == "hsdp" and split.dp is not None and replicas % split.shard_ranks:
        message = f"shard is {split.shard}, which does not divide the dp x cp = {replicas} replicas."
        rule = "HSDP splits the replicas into groups of one size."
        raise _refused(message, "shard", divisors(replicas), split.shard_ranks, detail=rule)
    if split.ep > 1:
        _check_experts(shape, split)


def check_feed(split: Parallel, num_micro: int) -> None:
    """Raise if so many micro-batches cannot be interleaved."""
    if split.virtual > 1 and num_micro % split.pp:
        near = [n for n in (num_micro // split.pp * split.pp, -(-num_micro // split.pp) * split.pp) if n]
        raise DescriptionError(
            f"{num_micro} micro-batches do not divide into groups of pp {split.pp}.",
            detail="Rule interleaved-micro-batches: an interleaved pipeline works on micro-batches in groups of its "
            "depth.",
            hint=f"Choose a batch that gives {' or '.join(str(n) for n in dict.fromkeys(near))} micro-batches, "
            "or `virtual: 1`.",
        )


def _check_experts(shape: Shape, split: Parallel) -> None:
    if shape.moe is None:
        raise DescriptionError(f"ep is {split.ep}, but {shape.name} has no experts.", hint="Leave ep out.")
    experts = shape.moe.experts
    if experts % split.ep:
        message = f"ep is {split.ep}, which does not divide the {experts} experts of {shape.name}."
        raise _refused(message, "ep", divisors(experts), split.ep)
    ranks = split.tp * split.cp * (split.dp or 0)  # dp is known once the job meets a cluster, and checked then
    if ranks % split.ep:
        message = (
            f"ep is {split.ep}, but the experts of a stage are spread over tp x cp x dp = {ranks} ranks, "
            "which it does not divide."
        )
        raise _refused(message, "ep", [d for d in divisors(ranks) if experts % d == 0], split.ep)
