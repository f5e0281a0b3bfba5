"""What a framework's release does when the job does not say: attention kernel, fusion, overlap, widths.

These are facts about software, not fitted numbers. Those that changed with a release are in `data/releases.yaml`, dated
and with their sources: attention kernels, compilation, overlap, CUDA graphs, how tokens are routed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syncline.workload.job import Job
from syncline.workload.releases import release_of

#: Exposed share of dispatch and combine, against what is usual, where they run beside another micro-batch's compute:
#: DualPipe hides all but its first and last (arXiv 2412.19437 section 3.2.1); a quarter is left to imbalance.
EP_HIDDEN = 0.25
#: Frameworks that train by PyTorch's own FSDP and pipelines.
TORCH_LIKE = ("pytorch", "torchtitan", "automodel")
#: Frameworks whose gradient buffer is both what is summed into and what is sent.
MEGATRON_LIKE = ("megatron", "nemo")
Assumed = bool | int | float | str | None
"""What a job leaves open and its software's release decides."""


@dataclass(frozen=True)
class Facts:
    """Everything about a run that the job states or the software implies; `assumed` names the latter."""

    framework: str
    attention: str
    compiled: bool
    tp_overlap: bool
    dp_overlap: bool
    reshard: bool
    fused_optimizer: bool
    gradient_bytes: float
    parameter_bytes: float
    accumulate_bytes: float
    early_stop: bool
    sequence_parallel: bool
    sliced_p2p: bool
    cuda_graphs: bool
    scatter_each: bool
    main_grad_bytes: float  # as gradients are kept and summed, which may be wider than on the wire
    logit_bytes: float  # of one logit while the loss is at its fullest
    dropout: bool
    fused_act: bool
    allocator: str
    fused_casts: bool = False
    routing: float = 1.0  # host time of routing tokens, that of Megatron-Core in 2025 = 1
    expert_passes: float = 5.0
    cast_passes: float = 4.0
    bias_passes: float = 2.0
    ep_exposed: float = 1.0
    dispatch_once: bool = False
    cudnn_on: tuple[str, ...] = ()  # architectures on which the software picks cuDNN's attention
    assumed: dict[str, Assumed] = field(default_factory=dict)


def facts_of(job: Job) -> Facts:
    """Return the facts of a job with every gap filled."""
    assumed: dict[str, Assumed] = {}

    def take(name: str, stated: Assumed, otherwise: Assumed) -> Assumed:
        if stated is None or stated == "auto":
            assumed[name] = otherwise
            return otherwise
        return stated

    def width(name: str, stated: float | None, otherwise: float) -> float:
        return float(str(take(name, stated, otherwise)))

    year, split = job.software.year, job.parallel
    sharded = split.sharded_params
    # Megatron has no ZeRO 2: its distributed optimizer shards state alone.
    usual = "pytorch" if sharded else "deepspeed" if split.zero == "2" else "megatron"
    named = str(take("framework", job.software.framework, usual))
    framework = "pytorch" if named in TORCH_LIKE else named
    torch_like = framework == "pytorch"
    # A step that is captured cannot wait for the counts of tokens, as an all-to-all of PyTorch does.
    dispatcher = job.dispatcher or ("deepep" if torch_like and job.cuda_graphs else None)
    # AutoModel with another dispatcher than its own moves tokens as PyTorch does.
    plain = named == "automodel" and dispatcher == "alltoall"
    does = release_of("automodel" if named == "automodel" and not plain else framework, year, job.software.month,
                      dispatcher or "alltoall")  # fmt: skip
    narrow = job.precision in ("fp8", "fp4") and torch_like and year >= 2024
    # Megatron accumulates weight gradients of bf16 into fp32 and keeps fp16; FSDP reduces every micro-batch.
    accumulate = 2.0 if torch_like or sharded else (4.0 if job.precision == "fp16" else 8.0)
    wide = job.precision in ("fp32", "tf32")
    compiled = bool(take("compiled", job.compiled, does.compiled))
    # Megatron reduces bf16 gradients in fp32 unless told `--grad-reduce-in-bf16`, which NeMo's recipes tell it.
    summed_wide = wide or (framework == "megatron" and job.precision != "fp16")
    gradient_bytes = width("gradient_bytes", job.gradient_bytes, 4 if summed_wide else 2)
    # A job that names no framework is priced as a plan would start it: with Megatron's overlap switched on.
    dp_overlap = does.dp_overlap or (job.software.framework == "auto" and year >= 2022)
    return Facts(
        framework=framework,
        attention=str(take("attention", job.attention, does.attention)),
        compiled=compiled,
        tp_overlap=bool(take("overlap.tp", job.overlap.tp, does.tp_overlap)),
        dp_overlap=bool(take("overlap.dp", job.overlap.dp, dp_overlap)),
        reshard=bool(take("overlap.reshard", job.overlap.reshard, split.zero != "2")),
        fused_optimizer=take("optimizer", job.optimizer, "adam-unfused" if torch_like and year < 2024 else "adam")
        != "adam-unfused",
        gradient_bytes=gradient_bytes,
        parameter_bytes=width("parameter_bytes", job.parameter_bytes, 4 if wide else 1 if narrow else 2),
        accumulate_bytes=width("accumulate_bytes", job.accumulate_bytes, 2 * accumulate if wide else accumulate),
        early_stop=bool(take("early_stop", job.early_stop, torch_like and year >= 2023)),
        sequence_parallel=bool(take("parallel.sp", split.sp, split.tp > 1 and year >= 2022)),
        sliced_p2p=framework != "deepspeed",
        cuda_graphs=bool(take("cuda_graphs", job.cuda_graphs, does.cuda_graphs)),
        # Pipelines of plain PyTorch reduce the gradients of every micro-batch; Megatron accumulates them first.
        scatter_each=torch_like and sharded,
        main_grad_bytes=_main_grad_bytes(job, framework, gradient_bytes),
        logit_bytes=_logit_bytes(
            bool(take("fused_loss", job.fused_loss, not torch_like or (compiled and year >= 2025))), split.tp
        ),
        # GPT-2, GPT-3 and their kin trained with dropout; models since Llama do not.
        dropout=framework in ("megatron", "deepspeed") and year < 2023,
        fused_act=bool(take("fused_act", job.fused_act, False)),
        # torchtitan's launcher and NeMo's containers set expandable segments; Megatron-LM does not.
        allocator=str(take("allocator", job.allocator, "expandable" if torch_like and year >= 2024 else "caching")),
        fused_casts=does.fused_casts,
        routing=does.routing if does.local_wait or split.ep > 1 else 0.0,
        expert_passes=does.expert_passes,
        cast_passes=does.cast_passes,
        bias_passes=does.bias_passes,
        cudnn_on=does.cudnn_on,
        dispatch_once=does.dispatch_once if dispatcher is None else dispatcher == "deepep",
        ep_exposed=does.ep_exposed if job.overlap.ep is None else (EP_HIDDEN if job.overlap.ep else 1.0),
        assumed=assumed,
    )


def _logit_bytes(fused: bool, tp: int) -> float:
    """Return what a logit and its loss take: bf16 and fp32 probabilities, and gradients.

    PyTorch's own loss makes two fp32 gradients one from the other (14 in all), and over a split vocabulary a third;
    Megatron's is in place, and torchtitan compiles it since 2025.
    """
    return 8.0 if fused else (18.0 if tp > 1 else 14.0)


def _main_grad_bytes(job: Job, framework: str, wire: float) -> float:
    """Return the width in which gradients of micro-batches are summed.

    Megatron's buffer is both what is summed and what is sent: fp32, or bf16 where NeMo's tuned recipes set
    `grad_reduce_in_fp32: false`. DeepSpeed's BF16 optimizer sums in fp32 whatever goes over the wire; FSDP shards fp32
    parameters with fp32 gradients.
    """
    zero = job.parallel.zero
    if job.precision in ("fp32", "tf32") or job.parallel.sharded_params:
        return 4.0
    if job.precision == "fp16":
        return wire
    if framework in MEGATRON_LIKE or (framework == "deepspeed" and zero == "2"):
        return wire
    return 4.0
