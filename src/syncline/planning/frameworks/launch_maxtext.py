"""What MaxText reads: a config that stands on its base.yml, with the block, the experts and the mesh of a job."""

from __future__ import annotations

import math
from collections.abc import Mapping

from syncline.planning.frameworks.fields import (
    Arguments,
    Fields,
    Row,
    Value,
    dialect_of,
    dialects,
    fields_of,
    needed,
    scaled_by_root,
    shared_experts,
)
from syncline.planning.frameworks.updates import BETAS, CLIP, DECAY, EPS, LEAST, updates_of
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of

_ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu", "relu": "relu"}  # its gelu is the approximation


def _activation(f: Fields) -> Arguments | None:
    name = _ACTIVATIONS.get(str(f["activation"]), "")
    return {"mlp_activations": f"[{name}, linear]" if f["gated"] else f"[{name}]"} if name else None


def _stretched(f: Fields) -> Arguments | None:
    if f["rope_kind"] == "llama3":  # its factor and bounds are constants (embeddings.py)
        llama = (f["rope_factor"], f["rope_original"], f["rope_low"], f["rope_high"]) == (8.0, 8192, 1.0, 4.0)
        return {"rope_type": "llama3.1", "rope_use_scale": True} if llama else None
    if f["rope_kind"] == "linear":
        return {"rope_linear_scaling_factor": f["rope_factor"]}
    return {} if f["rope_kind"] == "none" else None


def _yarn(f: Fields) -> Arguments | None:
    if f["rope_kind"] != "yarn":
        return _stretched(f)
    return {
        "rope_type": "yarn", "rope_factor": f["rope_factor"], "original_max_position_embeddings": f["rope_original"],
        "max_position_embeddings": int(f["rope_factor"] * f["rope_original"]),
        "beta_fast": f["rope_fast"], "beta_slow": f["rope_slow"], "rope_truncate": f["rope_rounded"],
        "rope_interleave": bool(f["kv_rank"]), "rope_attention_scaling": not f["kv_rank"],
        "mscale": f["rope_mscale"] or 1.0,
    }  # fmt: skip


def _cycle(f: Fields) -> Arguments | None:
    every = f["full_every"]
    return None if every < 1 or f["layers"] % every else {"inhomogeneous_layer_cycle_interval": every}


_ROWS: Mapping[str, Row] = {
    "layers": "base_num_decoder_layers", "hidden": "base_emb_dim", "ffn": "base_mlp_dim", "vocab": "vocab_size",
    "tied": lambda f: {"logits_via_embedding": f["tied"], "normalize_embedding_logits": False},
    "heads": "base_num_query_heads", "kv_heads": "base_num_kv_heads", "head_size": "head_dim",
    "norm_eps": "normalization_layer_epsilon", "activation": _activation, "gated": lambda f: {},
    "rope_base": lambda f: {"rope_max_timescale": round(f["rope_base"])}, "rope_kind": _stretched,
    "rope_factor": lambda f: {}, "rope_original": lambda f: {},
    "hidden_dropout": lambda f: {"enable_dropout": f["hidden_dropout"] != 0, "dropout_rate": f["hidden_dropout"]},
}  # fmt: skip
_MOE: Mapping[str, Row] = {
    "experts": needed("experts", "num_experts"), "top_k": "num_experts_per_tok", "expert_ffn": "base_moe_mlp_dim",
    "router_aux_loss": "load_balance_loss_weight",
}  # fmt: skip
_LATENT: Mapping[str, Row] = {
    **_ROWS, **_MOE, "rope_kind": _yarn, "kv_heads": lambda f: {"base_num_kv_heads": f["heads"]},
    "head_size": lambda f: {"attention_type": "mla"}, "q_rank": "q_lora_rank",
    "kv_rank": needed("kv_rank", "kv_lora_rank"),
    "nope_size": "qk_nope_head_dim", "rope_size": "qk_rope_head_dim", "value_size": "v_head_dim",
    "dense_layers": "first_num_dense_layers",
    "shared_ffn": shared_experts("shared_experts"),
    "router_score": "routed_score_func", "router_scale": "routed_scaling_factor", "router_corrected": "routed_bias",
    "router_groups": lambda f: {"n_routing_groups": f["router_groups"], "topk_routing_group": f["router_top_groups"]}
    if f["router_groups"] else {}, "predict_layers": "mtp_num_layers",
    # It routes as DeepSeek-V3 does where this name says so (moe.py), and takes our fields over that model's.
    "router_normalised": lambda f: {"model_name": "deepseek3-671b", "override_model_config": True}
    if f["router_normalised"] and f["router_score"] == "sigmoid" else None,
}  # fmt: skip
_GEMMA: Mapping[str, Value] = {"norm_offset": True, "activation": "gelu_tanh"}

#: Kinds of layers (`decoder_block`), plain ones first: the first that expresses a model is written.
MAXTEXT = dialects(
    ("llama2", _ROWS, {}),
    ("qwen2", {**_ROWS, "bias_qkv": "attention_bias"}, {"bias_qkv": True}),
    ("qwen3", {**_ROWS, "qk_norm": lambda f: {"use_qk_norm": True} if f["qk_norm"] == "head" else None}, {}),
    ("mixtral", {**_ROWS, **_MOE}, {}),
    ("qwen3_moe", {**_ROWS, **_MOE, "router_normalised": "norm_topk_prob",
                   "qk_norm": lambda f: {"use_qk_norm": True} if f["qk_norm"] == "head" else None}, {}),
    ("deepseek", _LATENT, {}),
    ("gpt_oss", {**_ROWS, **_MOE, "rope_kind": _yarn, "bias_qkv": "attention_bias", "bias_ffn": "mlp_bias",
                 "sinks": "attention_sink", "window": "sliding_window_size", "full_every": _cycle,
                 "activation": lambda f: {"mlp_activations": "[sigmoid, linear]"} if f["activation"] == "quick_gelu"
                 else None, "activation_limit": "mlp_activations_limit", "router_biased": "routed_bias"},
     {"bias_out": True}),
    ("gemma", {**_ROWS, "embedding_scale": scaled_by_root}, _GEMMA),
    ("gemma2", {**_ROWS, "embedding_scale": scaled_by_root, "attention_cap": "attn_logits_soft_cap",
                "logit_cap": "final_logits_soft_cap", "window": "sliding_window_size",
                # One of its layers is two of the model's: with a window, and without.
                "layers": lambda f: {"base_num_decoder_layers": f["layers"] // 2},
                "full_every": lambda f: {} if f["full_every"] == 2 and f["layers"] % 2 == 0 else None,
                "norm_place": lambda f: {"use_post_attn_norm": True, "use_post_ffw_norm": True}
                if f["norm_place"] == "around" else None}, _GEMMA),
    ("olmo3", {**_ROWS, "rope_kind": _yarn, "qk_norm": lambda f: {"use_qk_norm": True}
               if f["qk_norm"] == "all heads at once" else None, "window": "sliding_window_size",
               "full_every": _cycle}, {"norm_place": "after"}),
    ("gpt3", {**_ROWS, "num_positions": "trainable_position_size"},
     {"norm": "layer", "positions": "learned", "bias_qkv": True, "bias_out": True, "bias_ffn": True}),
)  # fmt: skip


def mesh_of(job: Job, gpus_per_host: int) -> dict[str, int]:
    """Return MaxText's mesh: axes within a host (`ici_`) multiply to its GPUs, those across (`dcn_`) to the hosts.

    No axis is left to be filled in: base.yml leaves `dcn_data_parallelism` so, and MaxText takes one at most.
    """
    split = job.parallel
    sizes = {"tensor": split.tp, "context": split.cp, "expert": split.ep, "fsdp": (split.dp or 1) // split.ep}
    room, inside, across = gpus_per_host, dict[str, int](), {"data": 1}
    for axis, size in sizes.items():
        inside[axis] = math.gcd(size, room)
        across[axis], room = size // inside[axis], room // inside[axis]
    return {f"{where}_{axis}_parallelism": size
            for where, axes in (("ici", inside), ("dcn", across)) for axis, size in axes.items()}  # fmt: skip


def maxtext_config(job: Job, shape: Shape, gpus_per_host: int) -> str:
    """Return a MaxText config that stands on its base.yml."""
    split, dialect = job.parallel, dialect_of("MaxText", MAXTEXT, shape)
    values: dict[str, object] = {
        "base_config": "base.yml",
        "run_name": job.name,
        "hardware": "gpu",
        "attention": "cudnn_flash_te",
        "max_segments_per_seq": 32,  # documents packed into one sequence, which TransformerEngine's attention must know
        "decoder_block": dialect.name,
        **dialect.arguments(fields_of(shape)),
        "max_target_length": job.batch.sequence,
        "per_device_batch_size": job.batch.micro / (split.tp * split.cp),
        "gradient_accumulation_steps": job.num_micro,
        "remat_policy": "full" if job.recompute == "full" else "minimal_flash",
        **mesh_of(job, gpus_per_host),
        "dtype": "bfloat16",
        "weight_dtype": "float32",
        "grad_dtype": "float32" if facts_of(job).gradient_bytes == 4 else "bfloat16",
        **_updates(job, shape),
    }
    return "".join(f"{name}: {_text(value)}\n" for name, value in values.items())


def _updates(job: Job, shape: Shape) -> Arguments:
    updates = updates_of(job, shape)
    known: Arguments = {} if updates.iterations is None or updates.warmup is None else {
        "steps": updates.iterations, "learning_rate": updates.peak,
        "warmup_steps_fraction": round(updates.warmup / updates.iterations, 6), "learning_rate_final_fraction": LEAST,
    }  # fmt: skip
    return {
        **known, "adam_b1": BETAS[0], "adam_b2": BETAS[1], "adam_eps": EPS, "adam_weight_decay": DECAY,
        "gradient_clipping_threshold": CLIP,
    }  # fmt: skip


def _text(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    # YAML 1.1 reads 1e-05 as a word and 1.0e-05 as a number.
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text
