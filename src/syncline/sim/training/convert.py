"""From a published metric to seconds a step, by the FLOP convention of its source.

megatron-hw      96 B s L h^2 (1 + s/6h + V/16Lh)      recomputed work counted (SC21, MT-NLG, BLOOM, OPT)
megatron-model   72 B s L h^2 (1 + s/6h + V/12Lh)      attention not halved (Korthikanti, Megatron-Core table)
palm             (6 N + 12 L h s) B s                  all parameters, attention not halved (llm-foundry)
causal           6 (matrices met + head) + causal attention (Megatron-Bridge, Llama 3): `Shape.flops_per_token`
6n               6 N B s                               no attention
"""

from __future__ import annotations

from syncline.errors import DescriptionError
from syncline.workload.job import Job
from syncline.workload.shape import Shape

CONVENTIONS = ("megatron-hw", "megatron-model", "palm", "causal", "6n")
NOT_SPEEDS = {
    "time_to_train_min": "time to train includes evaluation and start-up; it is not a step time",
    "gpu_hours": "GPU-hours of a whole run include restarts and checkpoints; they are not a step time",
}


def step_seconds(
    metric: str, value: float, job: Job, num_gpus: int, convention: str, peak_flops: float, params: float
) -> float:
    """Return the step time that a metric says."""
    batch, sequence = job.batch.global_, job.batch.sequence
    tokens = batch * sequence
    match metric:
        case "iteration_time_s" | "step_time_s":
            return value
        case "iteration_time_ms" | "step_time_ms":
            return value / 1e3
        case "tokens_per_s_total" | "tokens_per_s":
            return tokens / value
        case "tokens_per_s_per_gpu":
            return tokens / (value * num_gpus)
        case "samples_per_s" | "samples_per_s_total" | "sequences_per_s":
            return batch / value
        case "samples_per_s_per_gpu":
            return batch / (value * num_gpus)
        case "model_tflops_per_gpu" | "hw_tflops_per_gpu" | "tflops_per_gpu":
            return flops_of_step(job, convention, params) / (value * 1e12 * num_gpus)
        case "mfu_pct" | "hfu_pct":
            return flops_of_step(job, convention, params) / (value / 100 * peak_flops * num_gpus)
    for start, reason in NOT_SPEEDS.items():
        if metric.startswith(start):
            raise DescriptionError(reason)
    raise DescriptionError(f'metric "{metric}" is not one that can be converted to a step time')


def flops_of_step(job: Job, convention: str, params: float) -> float:
    """Return the operations of a step as a convention counts them."""
    shape = job.model
    if not isinstance(shape, Shape):
        raise DescriptionError(f"{shape.name} is not a transformer; TFLOP/s cannot be converted")
    b, s, layers, h, v = job.batch.global_, job.batch.sequence, shape.layers, shape.hidden, shape.vocab
    match convention:
        case "megatron-hw":
            return 96.0 * b * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
        case "megatron-model":
            return 72.0 * b * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
        case "palm":
            return (6.0 * params + 12.0 * layers * shape.heads * shape.qk_size * s) * b * s
        case "6n":
            return 6.0 * params * b * s
        case "causal":
            return shape.flops_per_token(s) * b * s
    raise DescriptionError(f'there is no FLOP convention "{convention}"; known: {", ".join(CONVENTIONS)}')
