"""A DeepSpeed config, and the config.json from which transformers builds the model that it trains."""

from __future__ import annotations

import json
from collections.abc import Mapping

from syncline.describe.plain import JsonObject
from syncline.planning.frameworks.fields import (
    Arguments,
    Dialect,
    Fields,
    Row,
    Value,
    dialects,
    fields_of,
    needed,
    scaled_by_root,
    shared_experts,
)
from syncline.planning.frameworks.updates import BETAS, CLIP, DECAY, EPS, updates_of
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of

MODEL = "model.json"
_NAMES = {"gelu_tanh": "gelu_pytorch_tanh"}


def _scaling(f: Fields) -> Arguments | None:
    """Return `rope_parameters`, with the keys that each kind of stretch reads."""
    found: dict[str, object] = {"rope_type": "default", "rope_theta": f["rope_base"]}
    if f["rope_share"] != 1:
        found["partial_rotary_factor"] = f["rope_share"]
    if f["rope_kind"] != "none":
        found |= {"rope_type": f["rope_kind"], "factor": f["rope_factor"]}
    if f["rope_kind"] in ("llama3", "yarn"):
        found["original_max_position_embeddings"] = f["rope_original"]
    if f["rope_kind"] == "llama3":
        found |= {"low_freq_factor": f["rope_low"], "high_freq_factor": f["rope_high"]}
    if f["rope_kind"] == "yarn":
        found |= {"beta_fast": f["rope_fast"], "beta_slow": f["rope_slow"], "truncate": f["rope_rounded"]}
        scales = {"mscale": f["rope_mscale"], "mscale_all_dim": f["rope_mscale_all"]}
        found |= {key: value for key, value in scales.items() if value}
    return {"rope_parameters": found} if f["rope_kind"] in ("none", "linear", "llama3", "yarn") else None


_ROWS: Mapping[str, Row] = {
    "layers": "num_hidden_layers", "hidden": "hidden_size", "ffn": "intermediate_size", "vocab": "vocab_size",
    "heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "tied": "tie_word_embeddings",
    "norm_eps": "rms_norm_eps", "init_std": "initializer_range", "attention_dropout": "attention_dropout",
    "activation": lambda f: {"hidden_act": _NAMES.get(str(f["activation"]), f["activation"])},
    "rope_base": _scaling, "rope_kind": _scaling, "rope_factor": lambda f: {}, "rope_original": lambda f: {},
}  # fmt: skip
_HEAD: Mapping[str, Row] = {"head_size": "head_dim"}
_BIASED: Mapping[str, Row] = {
    "bias_qkv": lambda f: {"attention_bias": f["bias_qkv"]} if f["bias_qkv"] == f["bias_out"] else None,
    "bias_out": lambda f: {},
}
_WINDOW: Mapping[str, Row] = {
    "window": lambda f: {"sliding_window": f["window"] or None},
    "full_every": lambda f: None if f["full_every"] < 0 else {"layer_types": [
        "full_attention" if f["full_every"] and (layer + 1) % f["full_every"] == 0 else "sliding_attention"
        for layer in range(f["layers"])
    ]},
}  # fmt: skip
_MOE: Mapping[str, Row] = {"top_k": "num_experts_per_tok", "router_aux_loss": "router_aux_loss_coef"}
_QWEN_MOE: Mapping[str, Row] = {
    **_ROWS, **_MOE, "experts": needed("experts", "num_experts"), "expert_ffn": "moe_intermediate_size",
    "router_normalised": "norm_topk_prob",
    "dense_layers": lambda f: {"decoder_sparse_step": 1, "mlp_only_layers": list(range(f["dense_layers"]))},
}  # fmt: skip
_LATENT: Mapping[str, Row] = {
    **_ROWS, "kv_heads": lambda f: {"num_key_value_heads": f["heads"]}, "kv_rank": needed("kv_rank", "kv_lora_rank"),
    "q_rank": lambda f: {"q_lora_rank": f["q_rank"] or None}, "rope_size": "qk_rope_head_dim",
    "nope_size": "qk_nope_head_dim", "value_size": "v_head_dim", "experts": needed("experts", "n_routed_experts"),
    "top_k": "num_experts_per_tok", "expert_ffn": "moe_intermediate_size", "dense_layers": "first_k_dense_replace",
    "shared_ffn": shared_experts("n_shared_experts"),
    "router_scale": "routed_scaling_factor", "router_normalised": "norm_topk_prob",
    "router_groups": lambda f: {"n_group": f["router_groups"] or 1, "topk_group": f["router_top_groups"] or 1},
}  # fmt: skip
_GEMMA: Mapping[str, Row] = {
    **_ROWS, **_HEAD, "activation": lambda f: {"hidden_activation": _NAMES.get(str(f["activation"]), f["activation"])},
}  # fmt: skip
_AROUND: Mapping[str, Value] = {"norm_offset": True, "norm_place": "around", "activation": "gelu_tanh"}
_LAYER: Mapping[str, Value] = {
    "norm": "layer", "gated": False, "bias_qkv": True, "bias_out": True, "bias_ffn": True, "positions": "rotary",
}  # fmt: skip


def _query(f: Fields) -> Arguments:
    return {"query_pre_attn_scalar": f["query_size"] or f["head_size"]}


#: Kinds of models of transformers, plain ones first: the first that expresses a model is written.
TRANSFORMERS = dialects(
    ("llama", {**_ROWS, **_HEAD, **_BIASED, "bias_ffn": "mlp_bias"}, {}),
    ("mistral", {**_ROWS, **_HEAD, "window": "sliding_window"}, {}),
    ("qwen2", _ROWS, {"bias_qkv": True}),
    ("qwen3", {**_ROWS, **_HEAD, **_BIASED}, {"qk_norm": "head"}),
    ("smollm3", {**_ROWS, "rope_skip": "no_rope_layer_interval"}, {}),
    ("granite", {**_ROWS, "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
                 "logit_scale": lambda f: {"logits_scaling": 1 / f["logit_scale"]},
                 "query_size": lambda f: {"attention_multiplier": float(f["query_size"] or f["head_size"]) ** -0.5}},
     {}),
    ("olmo2", _ROWS, {"norm_place": "after", "qk_norm": "all heads at once"}),
    ("olmo3", {**_ROWS, **_WINDOW}, {"norm_place": "after", "qk_norm": "all heads at once"}),
    ("mixtral", {**_ROWS, **_HEAD, **_MOE, "experts": needed("experts", "num_local_experts"),
                 "expert_ffn": "intermediate_size"}, {}),
    ("qwen2_moe", {**_QWEN_MOE, "shared_ffn": "shared_expert_intermediate_size"},
     {"bias_qkv": True, "shared_gate": True}),
    ("qwen3_moe", {**_QWEN_MOE, **_HEAD}, {"qk_norm": "head"}),
    ("olmoe", {**_ROWS, **_MOE, "experts": needed("experts", "num_experts"), "expert_ffn": "intermediate_size",
               "router_normalised": "norm_topk_prob"}, {"qk_norm": "all heads at once"}),
    ("deepseek_v3", _LATENT, {"router_score": "sigmoid", "router_corrected": True}),
    ("gpt_oss", {**_ROWS, **_HEAD, **_MOE, **_WINDOW, "experts": needed("experts", "num_local_experts"),
                 "expert_ffn": "intermediate_size"},
     {"bias_qkv": True, "bias_out": True, "bias_ffn": True, "router_biased": True, "sinks": True,
      "activation": "quick_gelu", "activation_limit": 7.0}),
    ("gemma", {**_GEMMA, "embedding_scale": scaled_by_root}, {"norm_offset": True, "activation": "gelu_tanh"}),
    ("gemma2", {**_GEMMA, **_WINDOW, "embedding_scale": scaled_by_root, "query_size": _query,
                "attention_cap": "attn_logit_softcapping", "logit_cap": "final_logit_softcapping"}, _AROUND),
    ("starcoder2", {**_ROWS, "norm_eps": "norm_epsilon", "hidden_dropout": "residual_dropout"}, _LAYER),
    ("phi", {**_ROWS, "norm_eps": "layer_norm_eps", "rope_share": _scaling, "hidden_dropout": "resid_pdrop"},
     {**_LAYER, "parallel": True, "head_bias": True, "norms": 1}),
    ("gpt_neox", {**_ROWS, "norm_eps": "layer_norm_eps", "rope_share": _scaling,
                  "hidden_dropout": "hidden_dropout"}, {**_LAYER, "parallel": True}),
    ("gpt2", {"layers": "n_layer", "hidden": "n_embd", "ffn": "n_inner", "vocab": "vocab_size", "heads": "n_head",
              "tied": "tie_word_embeddings", "norm_eps": "layer_norm_epsilon", "init_std": "initializer_range",
              "attention_dropout": "attn_pdrop", "num_positions": "n_positions",
              "hidden_dropout": lambda f: {"resid_pdrop": f["hidden_dropout"], "embd_pdrop": f["hidden_dropout"]},
              "activation": lambda f: {"activation_function": _NAMES.get(str(f["activation"]), f["activation"])}},
     {**_LAYER, "positions": "learned"}),
)  # fmt: skip


def transformers_kind(shape: Shape) -> Dialect | None:
    """Return the kind of model of transformers that expresses a model; None where it has none."""
    fields = None if shape.traits is None else fields_of(shape)
    return None if fields is None else next((kind for kind in TRANSFORMERS if not kind.lacks(fields)), None)


def transformers_config(job: Job, shape: Shape) -> Mapping[str, object] | None:
    """Return a config.json of the model; None where transformers has no kind of model that expresses it."""
    if (kind := transformers_kind(shape)) is None:
        return None
    fields = fields_of(shape)
    given = kind.arguments(fields)
    if fields["positions"] == "rotary":
        reach = int(fields["rope_factor"] * fields["rope_original"])
        given["max_position_embeddings"] = max(job.batch.sequence, reach)
    return {"model_type": kind.name, **given, "dtype": "bfloat16"}


def deepspeed_config(job: Job, shape: Shape) -> JsonObject:
    """Return a DeepSpeed config; its batch sizes multiply out, which DeepSpeed checks."""
    split, stage = job.parallel, {"none": 0, "1": 1, "2": 2, "3": 3, "fsdp": 3}.get(job.parallel.zero, 3)
    zero: JsonObject = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True}
    if stage in (1, 2):  # each bucket to the rank that keeps it, not an all-reduce of twice its bytes
        zero["use_multi_rank_bucket_allreduce"] = False
    if job.offload in ("optimizer", "both"):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    config: JsonObject = {
        "train_batch_size": job.batch.global_,
        "train_micro_batch_size_per_gpu": job.batch.micro,
        "gradient_accumulation_steps": job.batch.global_ // (job.batch.micro * (split.dp or 1)),
        "zero_optimization": zero,
        "gradient_clipping": CLIP,
        "bf16": {"enabled": job.precision in ("bf16", "fp8")},
        "fp16": {"enabled": job.precision == "fp16"},
        "communication_data_type": {4: "fp32", 2: "fp16" if job.precision == "fp16" else "bf16"}[
            int(facts_of(job).gradient_bytes)
        ],
    }
    adam: JsonObject = {"betas": list(BETAS), "eps": EPS, "weight_decay": DECAY}
    updates = updates_of(job, shape)
    if updates.iterations is not None:
        adam["lr"] = updates.peak
        cosine: JsonObject = {
            "total_num_steps": updates.iterations, "warmup_num_steps": updates.warmup, "warmup_min_ratio": 0.0,
            "cos_min_ratio": 0.1,
        }  # fmt: skip
        config["scheduler"] = {"type": "WarmupCosineLR", "params": cosine}
    config["optimizer"] = {"type": "AdamW", "params": adam}
    if job.recompute == "full":
        config["activation_checkpointing"] = {"partition_activations": False, "contiguous_memory_optimization": False}
    return config


def deepspeed_files(job: Job, shape: Shape) -> dict[str, str]:
    """Return the config and, where transformers has the model, its description."""
    files = {"ds_config.json": json.dumps(deepspeed_config(job, shape), indent=2) + "\n"}
    if model := transformers_config(job, shape):
        files[MODEL] = json.dumps(model, indent=2) + "\n"
    return files
