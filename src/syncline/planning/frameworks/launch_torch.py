"""Arguments of torchtitan for a planned job, and the module that builds its model and its optimizer."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.errors import PlanError
from syncline.planning.frameworks.fields import (
    Arguments,
    Fields,
    Row,
    Value,
    dialect_of,
    dialects,
    fields_of,
    needed,
    shared_experts,
)
from syncline.planning.frameworks.updates import BETAS, DECAY, EPS, LEAST, updates_of
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.stages import stage_layout

WRITTEN = "planned_model"
"""The module that is written beside the script."""
_SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
_RECOMPUTE = {"none": "none", "selective-op": "selective", "full": "full"}


def _stretched(f: Fields) -> Arguments | None:
    if f["rope_kind"] == "llama3":
        return {
            "rope.scaling": "llama", "rope.scaling_factor": f["rope_factor"], "rope.low_freq_factor": f["rope_low"],
            "rope.high_freq_factor": f["rope_high"], "rope.original_max_position_embeddings": f["rope_original"],
        }  # fmt: skip
    if f["rope_kind"] == "yarn":
        return {
            "rope.scaling": "yarn", "rope.rope_factor": f["rope_factor"], "rope.beta_fast": f["rope_fast"],
            "rope.beta_slow": f["rope_slow"], "rope.original_seq_len": f["rope_original"],
            "rope.truncate": f["rope_rounded"],
        }  # fmt: skip
    return {} if f["rope_kind"] == "none" else None


def _equal_heads(f: Fields) -> Arguments | None:
    return {} if f["heads"] * f["head_size"] == f["hidden"] else None


_ROWS: Mapping[str, Row] = {
    "layers": "n_layers", "hidden": "dim", "rope_kind": _stretched, "rope_base": "rope.theta",
    "rope_factor": lambda f: {}, "rope_original": lambda f: {},
}  # fmt: skip
_GROUPED: Mapping[str, Row] = {**_ROWS, "heads": "n_heads", "kv_heads": "n_kv_heads"}
_MOE: Mapping[str, Row] = {
    "experts": needed("experts", "num_experts"), "expert_ffn": "moe_hidden_dim", "top_k": "top_k",
    "router_corrected": lambda f: {},
}  # fmt: skip
_LATENT: Mapping[str, Row] = {
    **_ROWS, **_MOE, "heads": "n_heads", "q_rank": "q_lora_rank", "kv_rank": needed("kv_rank", "kv_lora_rank"),
    "nope_size": "qk_nope_head_dim", "rope_size": "qk_rope_head_dim", "value_size": "v_head_dim",
    "rope_mscale_all": lambda f: {"mscale": f["rope_mscale_all"]}, "ffn": "dense_hidden_dim",
    "dense_layers": "n_dense_layers", "top_k": "router_top_k", "router_score": "router_score_func",
    "router_scale": "router_route_scale", "router_normalised": "router_route_norm",
    "router_groups": lambda f: {
        "router_num_expert_groups": f["router_groups"] or None,
        "router_num_limited_groups": f["router_top_groups"] or None,
    }, "shared_ffn": shared_experts("num_shared_experts"),
    "predict_layers": lambda f: {},
}  # fmt: skip
_UNTIED: Mapping[str, Value] = {"tied": False}

#: Kinds of layers of torchtitan 0.3, plain ones first: a module and the function of it that builds them.
TITAN = dialects(
    ("llama3 _build_llama3_layers",
     {**_GROUPED, "ffn": "hidden_dim", "head_size": _equal_heads, "tied": lambda f: {}}, {}),
    ("qwen3 _build_qwen3_layers",
     {**_GROUPED, "ffn": "hidden_dim", "head_size": "head_dim", "tied": lambda f: {}}, {"qk_norm": "head"}),
    ("qwen3 _build_qwen3_moe_layers",
     {**_GROUPED, **_MOE, "head_size": "head_dim", "tied": lambda f: {}}, {"qk_norm": "head"}),
    ("deepseek_v3 _build_dsv3_layers", _LATENT, _UNTIED),
    ("gpt_oss _build_gptoss_layers", {**_ROWS, **_MOE,
     "expert_ffn": lambda f: {"hidden_dim": f["expert_ffn"], "load_balance_coeff": 1e-3}},
     {**_UNTIED, "heads": 64, "kv_heads": 8, "head_size": 64, "window": 128, "full_every": 2, "sinks": True,
      "bias_qkv": True, "bias_out": True, "bias_ffn": True, "router_biased": True, "activation": "quick_gelu",
      "activation_limit": 7.0}),
)  # fmt: skip
#: Of each builder: the sizes that its module has, one of them, a trainer's configuration, and the rotary positions.
_MODULES = {
    "_build_llama3_layers": ("llama3_configs", "8B", "llama3_8b", "ComplexRoPE"),
    "_build_qwen3_layers": ("qwen3_configs", "8B", "qwen3_14b", "CosSinRoPE"),
    "_build_qwen3_moe_layers": ("qwen3_configs", "30B-A3B", "qwen3_30b_a3b", "CosSinRoPE"),
    "_build_dsv3_layers": ("deepseekv3_configs", "671B", "deepseek_v3_671b", "ComplexRoPE"),
    "_build_gptoss_layers": ("gptoss_configs", "120b", "gpt_oss_120b", "CosSinRoPE"),
}


def torchtitan_arguments(job: Job, shape: Shape) -> list[str]:
    """Return the options of `torchtitan.train`; pipelines name the modules of every chunk."""
    values = torchtitan_values(job, shape)
    found = ["--module", WRITTEN, "--config", "planned"]
    found += [text for name, value in values.items() for text in (f"--{name}", str(value))]
    if facts_of(job).compiled:
        found.append("--compile.enable")
    if job.parallel.pp > 1 or job.parallel.ep > 1:  # trainer.py, _validate_cuda_graphs: on by default, neither is taken
        found.append("--training.disable_cuda_graphs")
    # A policy is a subcommand of the option parser, so it comes last.
    return [*found, f"activation-checkpoint:{_RECOMPUTE[job.recompute]}"]


def torchtitan_module(job: Job, shape: Shape) -> str:
    """Return a config registry whose `planned` trains the model as its own fields say."""
    fields = fields_of(shape)
    dialect = dialect_of("torchtitan", TITAN, shape)
    (name, builder), given = dialect.name.split(), dialect.arguments(fields)
    if job.precision not in ("bf16", "fp8"):
        raise PlanError(
            f"torchtitan trains {shape.name} in bf16 or fp8, not in {job.precision}.", hint="Set `precision: bf16`."
        )
    sizes, like, trainer, rope = _MODULES[builder]
    cached = max(job.batch.sequence, int(fields["rope_factor"] * fields["rope_original"]))
    turned = fields["rope_size"] or fields["head_size"]
    rotary = {"dim": turned, "max_seq_len": cached} | _part(given, "rope.", True)
    converters = _converters(job, shape)
    dispatched = '    kwargs.setdefault("moe_comm_backend", "standard")\n' if shape.moe else ""
    imports = [f"from torchtitan.models.common import Embedding, Linear, RMSNorm, {rope}",
               f"from torchtitan.models.{name} import config_registry, model_registry"]  # fmt: skip
    if converters:
        used = ", ".join(sorted(text.split(".")[0] for text in converters))
        imports.insert(0, f"from torchtitan.components.quantization import {used}")
    extra = ", num_mtp_layers=0" if name == "deepseek_v3" else ""
    predicts = f", num_mtp_layers={shape.predict_layers}" if shape.predict_layers else ""
    registry = f'model_registry("planned", converters=[{", ".join(converters)}]{predicts})'
    built = f"family._build_mtp_layers(layers[-1], dim={shape.hidden}, num_mtp_layers=num_mtp_layers)"
    mtp = f"        mtp_layers={built},\n" if extra else ""
    return f'''"""{shape.name} in {job.precision} for torchtitan 0.3: its layers, and the optimizer."""

from dataclasses import replace

from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
{chr(10).join(imports)}
from torchtitan.models import {name} as family


def model(attn_backend{extra}, **kwargs):
{dispatched}    rope = {rope}.Config({_words(rotary)})
    layers = family.{builder}(rope=rope, attn_backend=attn_backend, **kwargs, {_words(_part(given, "rope.", False))})
    base = family.{sizes}["{like}"](attn_backend=attn_backend, **kwargs)
    model = replace(
        base,
        dim={shape.hidden},
        vocab_size={shape.vocab},
        enable_weight_tying={shape.tied},
        tok_embeddings=replace(base.tok_embeddings, num_embeddings={shape.vocab}, embedding_dim={shape.hidden}),
        norm=replace(base.norm, normalized_shape={shape.hidden}),
        lm_head=replace(base.lm_head, in_features={shape.hidden}, out_features={shape.vocab}),
        layers=layers,
{mtp}    )
    for _, norm, _, _ in model.traverse(RMSNorm.Config):
        norm.eps = {fields["norm_eps"]}
    return model


family.{sizes}["planned"] = model


def planned():
    config = config_registry.{trainer}()
    config.model_spec = {registry}
    config.loss.loss_fn.global_vocab_size = {shape.vocab}
{_optimizer(job, shape)}{_parts(job, shape)}    return config
'''


def _parts(job: Job, shape: Shape) -> str:
    """Return the lines that name the modules of every chunk, for torchtitan's counts cut few layouts.

    The chunked loss gathers and reduces the output layer of every micro-batch, whatever the pipeline puts off.
    """
    split = job.parallel
    if split.pp == 1:
        return ""
    laid = stage_layout(shape.layers, split.pp, split.virtual, shape.head_layers)
    sizes = [laid[stage][chunk] for chunk in range(split.virtual) for stage in range(split.pp)]
    ends = ["norm", "lm_head"] + ["mtp_layers"] * (shape.predict_layers > 0)
    return f"""    layers = iter(range({shape.layers}))
    parts = [[f"layers.{{next(layers)}}" for _ in range(size)] for size in {sizes}]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += {ends}
    config.parallelism.module_fqns_per_model_part = parts
    config.loss = config.loss.loss_fn
"""


def _part(given: Arguments, prefix: str, inside: bool) -> dict[str, object]:
    """Return the arguments that begin with a prefix, without it; or the others."""
    return {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix) == inside}


def _words(given: Arguments) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in given.items())


def _converters(job: Job, shape: Shape) -> list[str]:
    if job.precision != "fp8":
        return []
    skips = ["lm_head", "router.gate"] if shape.moe else ["lm_head"]
    how = f"model_compile_enabled={facts_of(job).compiled}"
    made = [f"Float8LinearConverter.Config(filter_fqns={skips}, {how})"]
    return made + [f"Float8GroupedExpertsConverter.Config({how})"] * (shape.moe is not None)


def _optimizer(job: Job, shape: Shape) -> str:
    updates = updates_of(job, shape)
    rate = "" if updates.peak is None else f"lr={updates.peak}, "
    lines = [f"config.optimizer = default_adamw({rate}betas={BETAS}, eps={EPS}, weight_decay={DECAY})"]
    if updates.iterations is not None:
        decay = f'warmup_steps={updates.warmup}, decay_type="cosine", min_lr_factor={LEAST}'
        lines += [f"config.training.steps = {updates.iterations}",
                  f"config.lr_scheduler = LRSchedulersContainer.Config({decay})"]  # fmt: skip
    return "".join(f"    {line}\n" for line in lines)


def torchtitan_values(job: Job, shape: Shape) -> dict[str, object]:
    """Return the numbers of `training` and `parallelism` by their dotted names."""
    split, dp = job.parallel, job.parallel.dp or 1
    shard = dp if split.zero != "hsdp" else max(split.shard_ranks // split.cp, 1)
    pipeline = split.pp > 1
    values: dict[str, object] = {
        "training.local_batch_size": job.batch.micro * (job.num_micro if pipeline else 1),
        "training.global_batch_size": job.batch.global_,
        "training.seq_len": job.batch.sequence,
        "parallelism.data_parallel_replicate_degree": dp // shard,
        "parallelism.data_parallel_shard_degree": shard,
        "parallelism.tensor_parallel_degree": split.tp,
        "parallelism.context_parallel_degree": split.cp,
        "parallelism.pipeline_parallel_degree": split.pp,
        "parallelism.expert_parallel_degree": split.ep,
    }
    if pipeline:
        values["parallelism.pipeline_parallel_schedule"] = _SCHEDULES[split.schedule]
        values["parallelism.pipeline_parallel_microbatch_size"] = job.batch.micro
    else:
        reshard = facts_of(job).reshard
        values["parallelism.fsdp_reshard_after_forward"] = "always" if reshard else "never"
    return values
