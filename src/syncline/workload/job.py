"""The job: a model, how it is split and fed, and the facts about the run that its speed depends on.

    model: llama3-70b
    parallel: {tp: 8, pp: 4, zero: 1}
    batch: {global: 1024, micro: 1, sequence: 8192}

Everything else has a default that depends on the framework and its year (`software.py`), and every default that was
taken is shown with the answer.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import ConfigDict, Field, field_validator, model_validator

from syncline.codec.names import PLAIN, canonical
from syncline.describe import units
from syncline.describe.quantity import Rate, Strict
from syncline.errors import CodecError, DescriptionError
from syncline.workload.goal import Goal
from syncline.workload.layer_list import LayerList
from syncline.workload.load import Load, ServingEngine, Slo
from syncline.workload.parallel import Parallel, Zero
from syncline.workload.shape import Shape

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
Recompute = Literal["none", "selective", "selective-op", "partial-25", "partial-50", "partial-75", "full", "auto"]
Offload = Literal["none", "optimizer", "activations", "both"]
Allocator = Literal["auto", "caching", "expandable", "planned"]
Recipe = Literal["tensorwise", "rowwise", "block", "mx", "nvfp4"]
Kernel = Literal["auto", "cudnn", "fa3", "fa2", "triton", "unfused"]
Framework = Literal["auto", "megatron", "deepspeed", "pytorch", "torchtitan", "nemo", "automodel"]
Algorithm = Literal["ring", "tree", "hierarchical"]
Method = Literal["allreduce", "parameter-server", "local-sgd", "diloco", "bounded-staleness", "one-bit-adam"]


#: Why a tree and a sharded optimizer exclude each other.
TREE_RULE = "tree all-reduces, but ZeRO and FSDP scatter and gather: `zero: none`, or ring or hierarchical"


#: What 1-bit Adam sends momenta in unless a codec is given, as the runtime's does.
ONE_BIT = "sign"

#: Methods that let replicas part for some steps.
PERIODIC = ("local-sgd", "diloco")

#: Keys of `sync` that only some methods have.
_OWN_KEYS = {
    "every": PERIODIC,
    "servers": ("parameter-server",),
    "staleness": ("bounded-staleness",),
    "warmup": ("one-bit-adam",),
}


class Batch(Strict):
    """How many sequences (or samples) a step takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)

    global_: int = Field(alias="global", ge=1, le=10**9)
    micro: int = Field(default=1, ge=1, le=10**6)
    sequence: int = Field(default=2048, ge=1, le=10**8)


class Sync(Strict):
    """How replicas agree: every step by all-reduce, or otherwise."""

    method: Method = "allreduce"
    every: int = Field(default=1, ge=1, le=10**6, description="steps between synchronisations (local-sgd, diloco)")
    codec: str = Field(default=PLAIN, description="plain, bf16, int8, int4, sign, powersgd:rank=4")
    warmup: int = Field(default=500, ge=1, le=10**9, description="dense steps before the first of one-bit-adam")
    servers: int = Field(default=1, ge=1, description="hosts that serve parameters")
    staleness: int = Field(default=0, ge=0, description="steps a replica may run ahead (bounded-staleness)")
    algorithm: Algorithm | None = Field(default=None, description="of the gradient exchange; default: the best")
    bucket: int | None = Field(default=None, ge=1, description="bytes exchanged at once, 25MiB; default: the best")

    @field_validator("codec")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            return canonical(value)
        except CodecError as error:
            raise ValueError(f"{error.message} {error.hint}") from None

    @model_validator(mode="before")
    @classmethod
    def _signs_of_momenta(cls, data: Any) -> Any:
        one_bit = isinstance(data, dict) and data.get("method") == "one-bit-adam"
        return {"codec": ONE_BIT, **data} if one_bit else data

    @field_validator("bucket", mode="before")
    @classmethod
    def _as_bytes(cls, value: Any) -> Any:
        return units.size(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _own_keys(self) -> Sync:
        for key, methods in _OWN_KEYS.items():
            if key in self.model_fields_set and self.method not in methods:
                raise ValueError(f"{key} is for {' and '.join(methods)}, and the method is {self.method}; leave it out")
        return self

    @property
    def period(self) -> int:
        """Steps between exchanges of the replicas."""
        return self.every if self.method in PERIODIC else 1

    @property
    def shardings(self) -> tuple[Zero, ...]:
        """How the state may be split over replicas: not at all where each must have all of it at any time."""
        if self.method == "allreduce":
            return get_args(Zero)
        return ("none", "hsdp") if self.method in PERIODIC else ("none",)


class Overlap(Strict):
    """What runs beside compute; left out means what the software does."""

    tp: bool | None = None
    dp: bool | None = None
    ep: bool | None = Field(default=None, description="dispatch and combine run beside compute of another micro-batch")
    reshard: bool | None = Field(default=None, description="FSDP frees parameters after the forward")


class Data(Strict):
    """Where samples come from."""

    sample_bytes: float | None = Field(default=None, gt=0, description="bytes read per sample; default 4 per token")
    storage_rate: Rate | None = Field(default=None, description="what the storage network gives the whole job")


class Checkpoint(Strict):
    """Writing the state."""

    every_steps: int = Field(default=0, ge=0, description="0: never")
    storage_rate: Rate | None = None
    asynchronous: bool = True


class Software(Strict):
    """What ran: its framework and year set the defaults of everything a job file does not say."""

    framework: Framework = "auto"
    year: int = Field(default=2025, ge=2015, le=2035)
    month: int = Field(default=6, ge=1, le=12, description="of its release; `releases.yaml` has what each does")


class Job(Goal):
    """A job as its file says, validated."""

    name: str = "job"
    kind: Literal["train", "decode", "serve"] = "train"
    model: Shape | LayerList
    parallel: Parallel = Parallel()
    batch: Batch
    gpus: int | None = Field(default=None, ge=1, le=10_000_000, description="ranks used; default: the whole cluster")
    precision: Precision = "bf16"
    recipe: Recipe | None = Field(default=None, description="how fp8 or fp4 is scaled; default: by part and framework")
    recompute: Recompute = "none"
    offload: Offload = Field(default="none", description="what waits in the memory of the host")
    offload_share: float = Field(default=1.0, gt=0, le=1, description="of the activations that are offloaded at all")
    fused_act: bool | None = Field(default=None, description="a gated block's product is remade, not kept (xformers)")
    fused_loss: bool | None = Field(default=None, description="the loss writes its gradient over the logits (Liger)")
    allocator: Allocator = Field(default="auto", description="expandable: PyTorch's expandable_segments")
    early_stop: bool | None = Field(default=None, description="the last product of a repeated block is not repeated")
    attention: Kernel = "auto"
    compiled: bool | None = None
    overlap: Overlap = Overlap()
    optimizer: Literal["adam", "adam-unfused", "sgd", "adafactor", "muon"] | None = None
    gradient_bytes: Literal[1, 2, 4] | None = None
    parameter_bytes: Literal[1, 2, 4] | None = Field(default=None, description="as gathered")
    accumulate_bytes: float | None = Field(default=None, ge=1, le=16)
    token_drop: bool = Field(
        default=False, description="experts drop tokens over their capacity: no host synchronisation"
    )
    frozen: bool = Field(default=False, description="weights are frozen and only adapters are trained (LoRA)")
    adapter_rank: int | None = Field(
        default=None, ge=1, le=65536, description="of adapters on every projection (frozen); default: 1 % of the model"
    )
    cuda_graphs: bool | None = Field(default=None, description="CUDA graphs capture the routing of tokens")
    dispatcher: Literal["alltoall", "deepep"] | None = Field(
        default=None, description="of tokens to experts: a copy an expert, or one a rank (DeepEP, HybridEP)"
    )
    power_w: float | None = Field(default=None, gt=0, description="power cap of one GPU")
    sync: Sync = Sync()
    data: Data = Data()
    checkpoint: Checkpoint = Checkpoint()
    elastic: bool = Field(default=False, description="goes on with fewer replicas while hosts are repaired")
    software: Software = Software()
    load: Load | None = Field(default=None, description="requests a second and their lengths (serve)")
    slo: Slo = Slo()
    engine: ServingEngine = Field(default=ServingEngine(), description="vllm, sglang or trtllm, tuned or not (serve)")
    cache_bytes: Literal[1, 2] | None = Field(
        default=None, description="of keys and values (serve); 1 beside fp8 weights"
    )
    context: int = Field(default=2048, ge=1, description="tokens in the cache (decode)")

    @field_validator("precision", mode="before")
    @classmethod
    def _plain_precision(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _batch_divides(self) -> Job:
        dp = self.parallel.dp
        if self.kind == "train" and dp is not None and self.batch.global_ % (dp * self.batch.micro):
            raise ValueError(batch_problem(self.batch.global_, dp, self.batch.micro))
        return self

    @model_validator(mode="before")
    @classmethod
    def _whole_state(cls, data: Any) -> Any:
        """Leave the state whole where the method needs that and the file does not say otherwise."""
        if not isinstance(data, dict) or not isinstance(sync := data.get("sync"), dict):
            return data
        split = data.get("parallel", {})
        if not isinstance(split, dict) or "zero" in split or sync.get("method", "allreduce") == "allreduce":
            return data
        return {**data, "parallel": {**split, "zero": "none"}}

    @model_validator(mode="after")
    def _adapters_are_of_frozen_weights(self) -> Job:
        if self.adapter_rank is not None and not self.frozen:
            raise ValueError("adapter_rank is for weights that are frozen; write `frozen: true` beside it")
        return self

    @model_validator(mode="after")
    def _sequence_divides(self) -> Job:
        split, length = self.parallel, self.batch.sequence
        # Causal ring attention gives each rank two slices, one early and one late, so that all have the same work.
        unit = split.cp * (2 if split.context == "ring" else 1)
        if self.kind == "train" and split.cp > 1 and length % unit:
            near = f"{length // unit * unit:,} or {(length // unit + 1) * unit:,}"
            raise ValueError(
                f"a sequence of {length:,} does not divide into {unit} slices, cp {split.cp} with {split.context} "
                f"attention; the nearest that works is `sequence: {near}`"
            )
        return self

    @model_validator(mode="after")
    def _positions_reach(self) -> Job:
        reach, length = getattr(self.model, "positions", 0), self.batch.sequence
        if self.kind == "train" and 0 < reach < length:
            raise ValueError(
                f"a sequence of {length:,} is longer than the table of {reach:,} positions of {self.model.name}"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _served(cls, data: Any) -> Any:
        """Say what a job that generates needs, instead of leaving keys of training unread."""
        if not isinstance(data, dict):
            return data
        kind = data.get("kind", "train")
        if kind == "decode" and isinstance(batch := data.get("batch"), dict) and "sequence" in batch:
            raise ValueError(
                "a decode job has no batch.sequence: `context: 4096` says how many tokens are in the cache"
            )
        if kind == "serve" and "load" not in data:
            raise ValueError("kind serve needs a load: `load: {rate: 20, prompt: 1500, answer: 300}`")
        if kind != "serve" and (extra := {"load", "slo", "engine"} & set(data)):
            raise ValueError(f"{min(extra)} is for kind serve, and the kind is {kind}")
        return {"batch": {"global": 1}, **data} if kind == "serve" else data

    @model_validator(mode="after")
    def _trees_reduce_wholes(self) -> Job:
        if self.sync.algorithm == "tree" and self.parallel.sharded_state:
            raise ValueError(f"sync.algorithm {TREE_RULE}")
        return self

    @model_validator(mode="after")
    def _software_shards_so(self) -> Job:
        if self.parallel.zero == "2" and self.software.framework in ("megatron", "nemo"):
            raise ValueError(f"zero: 2 is not one of {self.software.framework}'s, which shards state alone: `zero: 1`")
        return self

    @model_validator(mode="after")
    def _methods_have_wholes(self) -> Job:
        sync, split = self.sync, self.parallel
        if split.zero not in sync.shardings:
            groups = ", or `zero: hsdp`, whose groups then part" if "hsdp" in sync.shardings else ""
            raise ValueError(f"sync.method {sync.method} needs whole parameters on every rank: `zero: none`{groups}")
        if sync.method in PERIODIC and split.zero == "hsdp" and split.pp > 1:
            raise ValueError(f"sync.method {sync.method} with `zero: hsdp` is not priced for pipelines: `zero: none`")
        if sync.method == "one-bit-adam" and self.optimizer not in (None, "adam", "adam-unfused"):
            raise ValueError(f"sync.method one-bit-adam is a form of adam, and the optimizer is {self.optimizer}")
        return self

    @property
    def num_micro(self) -> int:
        """Micro-batches of one replica in one step."""
        return self.batch.global_ // ((self.parallel.dp or 1) * self.batch.micro)

    def on(self, num_gpus: int) -> Job:
        """Return the job with `dp` filled in for so many GPUs (or for the number it states)."""
        if self.gpus is not None and self.gpus > num_gpus:
            raise DescriptionError(
                f"the job asks for {self.gpus:,} GPUs, but the cluster has {num_gpus:,}.",
                hint=f"gpus: {num_gpus} fits.",
            )
        split = self.parallel.fill(self.gpus or num_gpus)
        dp = split.dp or 1
        if self.kind == "train" and self.batch.global_ % (dp * self.batch.micro):
            raise DescriptionError(f"{batch_problem(self.batch.global_, dp, self.batch.micro)}.")
        return self.model_copy(update={"parallel": split})


def batch_problem(total: int, dp: int, micro: int) -> str:
    """Say why a batch does not divide, and the nearest that does."""
    unit = dp * micro
    lower, upper = total // unit * unit, (total // unit + 1) * unit
    near = f"`batch: {{global: {lower}}}` or {upper}" if lower else f"`batch: {{global: {upper}}}`"
    smaller = [m for m in range(micro - 1, 0, -1) if total % (dp * m) == 0]
    other = f", or `micro: {smaller[0]}`" if smaller else ""
    return (
        f"a global batch of {total:,} does not divide over dp {dp} x micro-batch {micro} = {unit:,}; "
        f"the nearest that works is {near}{other}"
    )
