"""What a framework of a year does when the job does not say: attention kernel, fusion, overlap, widths.

These are facts about software, not fitted numbers: Megatron got flash attention around the turn to 2023; NeMo's recipes
turn on tensor-parallel overlap since 2023 (Megatron-LM leaves it off) and capture routing in CUDA graphs since 2026;
PyTorch's scaled_dot_product_attention is FlashAttention-2; FSDP code is eager unless compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syncline.workload.job import Job


@dataclass(frozen=True)
class Facts:
    """Everything about a run that the job said or the software implies; `assumed` names the latter."""

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
    assumed: dict[str, object] = field(default_factory=dict)


def facts_of(job: Job) -> Facts:
    """Return the facts of a job with every gap filled."""
    assumed: dict[str, object] = {}

    def take(name: str, said: object, otherwise: object) -> object:
        if said is None or said == "auto":
            assumed[name] = otherwise
            return otherwise
        return said

    year, split = job.software.year, job.parallel
    sharded = split.sharded_params
    framework = str(take("framework", job.software.framework, "pytorch" if sharded else "megatron"))
    torch_like = framework == "pytorch"
    kernel = _kernel(framework, year)
    low = job.precision in ("fp8", "fp4")
    # Megatron accumulates weight gradients of bf16 into fp32 and keeps fp16; FSDP reduces every micro-batch.
    accumulate = 2.0 if torch_like or sharded else (4.0 if job.precision == "fp16" else 8.0)
    wide = job.precision in ("fp32", "tf32")
    return Facts(
        framework=framework,
        attention=str(take("attention", job.attention, kernel)),
        compiled=bool(
            take("compiled", job.compiled, framework in ("megatron", "nemo") or (torch_like and year >= 2025))
        ),
        tp_overlap=bool(take("overlap.tp", job.overlap.tp, framework == "nemo" and year >= 2023)),
        dp_overlap=bool(take("overlap.dp", job.overlap.dp, torch_like or year >= 2022)),
        reshard=bool(take("overlap.reshard", job.overlap.reshard, split.zero != "2")),
        fused_optimizer=take("optimizer", job.optimizer, "adam-unfused" if torch_like and year < 2024 else "adam")
        != "adam-unfused",
        gradient_bytes=float(str(take("gradient_bytes", job.gradient_bytes, 4 if wide else 2))),
        parameter_bytes=float(
            str(
                take(
                    "parameter_bytes",
                    job.parameter_bytes,
                    4 if wide else (1 if low and torch_like and year >= 2024 else 2),
                )
            )
        ),
        accumulate_bytes=float(
            str(take("accumulate_bytes", job.accumulate_bytes, 2 * accumulate if wide else accumulate))
        ),
        early_stop=bool(take("early_stop", job.early_stop, torch_like and year >= 2023)),
        sequence_parallel=bool(take("parallel.sp", split.sp, split.tp > 1 and year >= 2022)),
        sliced_p2p=framework != "deepspeed",
        cuda_graphs=bool(take("cuda_graphs", job.cuda_graphs, framework == "nemo" and year >= 2026)),
        # Pipelines of plain PyTorch reduce the gradients of every micro-batch; Megatron accumulates them first.
        scatter_each=torch_like and sharded,
        assumed=assumed,
    )


def _kernel(framework: str, year: int) -> str:
    if framework in ("megatron", "nemo"):
        return "unfused" if year < 2023 else ("fa2" if year == 2023 else "cudnn")
    if framework == "deepspeed":
        return "unfused" if year < 2023 else "fa2"
    return "unfused" if year < 2023 else ("triton" if year < 2024 else "fa2")
