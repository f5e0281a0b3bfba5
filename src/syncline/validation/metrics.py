"""From a published metric to seconds a step, by the FLOP convention of its source.

megatron-hw      96 B s L h^2 (1 + s/6h + V/16Lh)      recomputed work counted (SC21, MT-NLG, BLOOM, OPT)
megatron-model   72 B s L h^2 (1 + s/6h + V/12Lh)      attention not halved (Korthikanti, NeMo 24, torchtitan)
palm             (6 N + 12 L h s) B s                  all parameters, attention not halved (llm-foundry)
causal           6 (matrices met + head) + causal attention (Megatron-Bridge, Llama 3): `Shape.flops_per_token`
6n               6 N B s                               no attention

What a metric is called decides whether recomputed work is counted (`hfu`, `hw_tflops`: yes; `mfu`, `model_tflops`: no),
so each row of a run is converted by the convention of its own metric; palm-hw, causal-hw and 6n-hw add a third forward.

The two Megatron formulas are written for GPT blocks; for gated blocks, shared keys and experts the matrices that a
token meets stand for 12 L h^2.
"""

from __future__ import annotations

import re

from syncline.errors import DescriptionError
from syncline.workload.job import Job
from syncline.workload.shape import Shape

CONVENTIONS = ("megatron-hw", "megatron-model", "palm", "causal", "6n", "palm-hw", "causal-hw", "6n-hw")
NOT_SPEEDS = {
    "time_to_train_min": "time to train includes evaluation and start-up; it is not a step time",
    "gpu_hours": "GPU-hours of a whole run include restarts and checkpoints; they are not a step time",
}


#: Spellings of metrics and the one that is used here, in the order in which they are replaced.
_WORDS = (
    (r"[()%\[\]]", ""),
    (r"^(?:avg|average|mean|median|achieved|elapsed|global|train|training)_", ""),
    (r"model_flops?_utili[sz]ation", "mfu"),
    (r"^tgs$", "tokens_per_s_per_gpu"),
    (r"peta_?flops?", "pflops"),
    (r"^pflops?(?:_per_s|/s)?$", "pflops_total"),
    (r"^(?:it|iters?)(?:_per_|/)(?=s)", "iterations_per_"),
    (r"(?:step|iteration)_duration|time_per_global_batch", "iteration_time"),
    (r"^seqs?(?=_|/)", "samples"),
    (r"^toks(?=_|/)", "tokens"),
    (r"^(?:seconds?|secs?|s)(?:_per_|_?/_?)(?=step|it)", "s_per_"),
    (r"^(?:milliseconds?|ms)(?:_per_|_?/_?)(?:step|it(?:er(?:ation)?)?)$", "iteration_time_ms"),
    (r"^s_per_it(?:er)?$", "s_per_iteration"),
    (r"^((?:tflops?|flops).*)_model$", r"model_\1"),
    (r"per_?sec(?:ond)?(?=_|/|$)|/_?s(?:ec(?:ond)?)?(?=_|/|$)", "_per_s"),
    (r"device|chip|accelerator|card", "gpu"),
    (r"_*/_*", "_per_"),
    (r"^(?:train_|training_)?throughput_", ""),
    (r"\btok_", "tokens_"),
    (r"images|sequences|examples", "samples"),
    (r"step_time|iter(?:ation)?_time|time_per_(?:step|iteration)", "iteration_time"),
    (r"_(?:seconds?|secs?)$", "_s"),
    (r"tflops?_per_s", "tflops"),
    (r"_per_gpu_per_s$", "_per_s_per_gpu"),
    (r"^gpu_throughput_tflops$|^tflop$", "tflops"),
    (r"_+", "_"),
    (r"_$", ""),
)


#: Metrics that become a step time, in their one spelling: seconds of a step by unit, steps a second, what is done by
#: unit, factor and whether of one GPU, and operations a second.
_SECONDS = {"iteration_time": 1.0, "iteration_time_s": 1.0, "s_per_step": 1.0, "s_per_iteration": 1.0,
            "iteration_time_ms": 1e-3}  # fmt: skip
_STEPS_PER_S = ("steps_per_s", "iterations_per_s")
_PER_STEP = {
    "tokens_per_s_total": ("tokens", 1.0, False), "tokens_per_s": ("tokens", 1.0, False),
    "tokens_per_s_per_gpu": ("tokens", 1.0, True), "tokens_per_day": ("tokens", 1 / 86_400, False),
    "samples_per_s": ("samples", 1.0, False), "samples_per_s_total": ("samples", 1.0, False),
    "samples_per_s_per_gpu": ("samples", 1.0, True),
}  # fmt: skip
_FLOPS = ("model_tflops_per_gpu", "hw_tflops_per_gpu", "tflops_per_gpu", "tflops", "model_tflops", "hw_tflops",
          "pflops_total", "aggregate_pflops", "model_pflops_total", "mfu_pct", "hfu_pct", "mfu", "hfu")  # fmt: skip
SPEEDS = frozenset((*_SECONDS, *_STEPS_PER_S, *_PER_STEP, *_FLOPS))


def plain_metric(metric: str) -> str:
    """Return a metric in one spelling: `tokens/sec/GPU`, `tokens_per_second_per_device` are tokens_per_s_per_gpu."""
    text = re.sub(r"[\s-]+", "_", metric.strip().lower())
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    return text


def usual_convention(metric: str, job: Job) -> str:
    """Return how operations are counted where a source does not say: by its metric's name, its software and year."""
    year, megatron = job.software.year, job.software.framework in ("megatron", "nemo", "deepspeed")
    plain = plain_metric(metric)
    if plain.startswith("mfu"):
        return "palm"
    if plain.startswith("tflops") and megatron and year < 2023 and job.recompute == "full":
        return "megatron-hw"  # what the logs of Megatron-LM and Megatron-DeepSpeed printed
    halved = (year, job.software.month) >= (2025, 6)  # NeMo's formulas counted the masked half until 25.04
    return "causal" if megatron and halved and not plain.startswith(("hw", "hfu")) else "megatron-model"


def convention_of(metric: str, of_source: str, job: Job) -> str:
    """Return the convention of one metric of a source: its name wins on whether recomputed work is counted."""
    plain = plain_metric(metric)
    base = of_source.removesuffix("-hw").removesuffix("-model")
    model = "megatron-model" if base == "megatron" else base
    if plain.startswith(("hw", "hfu")):
        return f"{base}-hw" if job.recompute == "full" else model
    return model if plain.startswith(("mfu", "model")) else of_source


def step_seconds(
    metric: str, value: float, job: Job, num_gpus: int, convention: str, peak_flops: float, params: float
) -> float:
    """Return the step time that a metric says."""
    plain, batch = plain_metric(metric), job.batch.global_
    if plain in _SECONDS:
        return value * _SECONDS[plain]
    if plain in _STEPS_PER_S:
        return 1 / value
    if plain in _PER_STEP:
        unit, per_s, of_gpu = _PER_STEP[plain]
        done = batch * job.batch.sequence if unit == "tokens" else batch
        return done / (value * per_s * (num_gpus if of_gpu else 1))
    if plain in _FLOPS:
        rate = value * 1e12
        if plain in ("mfu_pct", "hfu_pct", "mfu", "hfu"):
            # No run was ever reported at or below 1 %, so a smaller number is a share.
            rate = (value if value <= 1 else value / 100) * peak_flops * num_gpus
        elif plain.endswith(("pflops", "pflops_total")):
            rate = value * 1e15
        elif plain.endswith("_per_gpu") or rate <= peak_flops:
            rate *= num_gpus  # what one part can do or less is said of a part; what is more, of all of them
        return flops_of_step(job, convention, params) / rate
    for start, reason in NOT_SPEEDS.items():
        if plain.startswith(start):
            raise DescriptionError(reason)
    raise DescriptionError(f'metric "{metric}" is not one that can be converted to a step time')


def flops_of_step(job: Job, convention: str, params: float) -> float:
    """Return the operations of a step as a convention counts them."""
    shape = job.model
    if not isinstance(shape, Shape):
        if convention in CONVENTIONS:
            return shape.flops_per_sample * job.batch.global_
        raise DescriptionError(f"{shape.name} is not a transformer; TFLOP/s cannot be converted")
    s, tokens = job.batch.sequence, job.batch.global_ * job.batch.sequence
    layers, head = 6.0 * _layer_matrices(shape), 6.0 * shape.vocab * shape.hidden
    attention = 6.0 * shape.layers * shape.heads * (shape.qk_size + shape.v_size) * s
    if convention in ("palm-hw", "causal-hw", "6n-hw"):
        again = layers + {"palm-hw": attention, "causal-hw": attention / 2}.get(convention, 0.0)
        return flops_of_step(job, convention.removesuffix("-hw"), params) + again / 3 * tokens
    match convention:
        case "megatron-hw":
            return ((layers + attention) * 4 / 3 + head) * tokens
        case "megatron-model":
            return (layers + attention + head) * tokens
        case "palm":
            return (6.0 * params + attention) * tokens
        case "6n":
            return 6.0 * params * tokens
        case "causal":
            return shape.flops_per_token(s) * tokens
    raise DescriptionError(f'there is no FLOP convention "{convention}"; known: {", ".join(CONVENTIONS)}')


def _layer_matrices(shape: Shape) -> float:
    """Return the matrix elements that a token meets in all layers; 12 L h^2 for a GPT, biases and norms not counted."""
    bare = shape.model_copy(
        update={"biases": False, "qkv_biases": False, "norm_biases": False, "norms": 0, "qk_norm": False}
    )
    ends = bare.embedding_params + bare.head_params + bare.extra_params + bare.hidden
    return float(bare.active_params - ends)
