"""The model that written launch files build, read off each framework's own configuration in the words of our fields.

Megatron-LM's argument parser and its model, torchtitan's registry, transformers' classes and MaxText's base.yml: each
is asked for every field that it has, given or by default, and builds the model on the meta device where it can. Sources
that are no packages lie under SOURCES: Megatron-LM (core_v0.16.1) as `megatron`, MaxText as `maxtext`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

SOURCES = Path(os.environ.get("FRAMEWORK_SOURCES", "sources"))
Read = dict[str, Any]


def megatron(files: Mapping[str, str]) -> tuple[Read, int]:
    """Return the fields that pretrain_gpt.py's parser gives, and the parameters of the GPTModel that it builds."""
    args = _parsed([word for line in files["arguments.txt"].splitlines() for word in shlex.split(line)])
    act = "silu" if args.swiglu else "quick_gelu" if args.quick_geglu else "relu2" if args.squared_relu else (
        "gelu_tanh" if args.bias_gelu_fusion and args.add_bias_linear else "gelu")  # fmt: skip
    latent, experts = args.multi_latent_attention, args.num_experts or 0
    rotary = args.position_embedding_type == "rope"
    llama, yarn = args.use_rope_scaling, latent and args.rope_type == "yarn"
    dense = args.moe_layer_freq.count(0) if isinstance(args.moe_layer_freq, list) else 0
    read: Read = {
        "layers": args.num_layers, "hidden": args.hidden_size, "heads": args.num_attention_heads,
        "vocab": args.vocab_size, "tied": not args.untie_embeddings_and_output_weights,
        "kv_heads": args.num_query_groups if args.group_query_attention else args.num_attention_heads,
        "head_size": args.qk_head_dim + args.qk_pos_emb_head_dim if latent
        else args.kv_channels or args.hidden_size // args.num_attention_heads,
        "norm": {"RMSNorm": "rms", "LayerNorm": "layer"}[args.normalization], "norm_eps": args.layernorm_epsilon,
        "norm_offset": args.layernorm_zero_centered_gamma, "norm_place": "before", "parallel": False, "norms": 2,
        "qk_norm": "head" if args.qk_layernorm and not latent else "",
        "bias_qkv": args.add_bias_linear or args.add_qkv_bias, "bias_out": args.add_bias_linear,
        "bias_ffn": args.add_bias_linear, "head_bias": False, "gated": args.swiglu or args.quick_geglu,
        "activation": act, "activation_limit": args.activation_func_clamp_value or 0.0,
        "positions": "rotary" if rotary else "learned",
        "rope_base": float(args.rotary_base) if rotary else 10000.0, "rope_share": args.rotary_percent,
        "rope_local_base": 0.0, "rope_skip": args.no_rope_freq or 0,
        "rope_kind": "llama3" if llama else "yarn" if yarn else "none",
        "rope_factor": 8.0 if llama else args.rotary_scaling_factor if yarn else 1.0,
        "rope_original": 8192 if llama else 4096 if yarn else 0,
        "rope_mscale_all": args.mscale_all_dim if yarn else 0.0,
        "window": args.window_size[0] + 1 if args.window_size else 0, "full_every": args.window_attn_skip_freq or 0,
        "sinks": args.softmax_type == "learnable", "attention_cap": 0.0, "logit_cap": 0.0, "query_size": 0.0,
        "embedding_scale": 1.0, "residual_scale": 1.0, "logit_scale": 1.0,
        "attention_dropout": args.attention_dropout, "hidden_dropout": args.hidden_dropout,
        "init_std": args.init_method_std, "kv_rank": args.kv_lora_rank if latent else 0,
        "q_rank": (args.q_lora_rank or 0) if latent else 0, "rope_size": args.qk_pos_emb_head_dim if latent else 0,
        "nope_size": args.qk_head_dim if latent else 0, "experts": experts, "top_k": args.moe_router_topk if experts
        else 0, "expert_ffn": args.moe_ffn_hidden_size if experts else 0, "dense_layers": dense,
        "ffn": args.moe_ffn_hidden_size if experts and not dense else args.ffn_hidden_size,
        "shared_ffn": args.moe_shared_expert_intermediate_size or 0, "router_score": args.moe_router_score_function,
        "router_normalised": args.moe_router_score_function == "sigmoid" or not args.moe_router_pre_softmax,
        "router_groups": args.moe_router_num_groups or 0, "router_top_groups": args.moe_router_group_topk or 0,
        "router_scale": args.moe_router_topk_scaling_factor or 1.0,
        "router_corrected": args.moe_router_enable_expert_bias, "shared_gate": args.moe_shared_expert_gate,
        "router_biased": bool(args.add_bias_linear and experts),
        "router_aux_loss": 0.0
        if _one(args.moe_router_load_balancing_type) == "none" else _one(args.moe_aux_loss_coeff),
        "predict_layers": args.mtp_num_layers or 0,
    }  # fmt: skip
    return read, _megatron_params(args)


def _one(value: Any) -> Any:
    """Return the value of an argument that takes several and got one."""
    return value[0] if isinstance(value, list) else value


def _parsed(words: list[str]) -> Any:
    if str(SOURCES / "megatron") not in sys.path:
        sys.path.insert(0, str(SOURCES / "megatron"))
    with mock.patch.object(sys, "argv", ["pretrain_gpt.py", *words]):
        from megatron.training.arguments import parse_args

        return parse_args()


def _megatron_params(args: Any) -> int:
    """Return the parameters of the model of parsed arguments, on one rank, in Megatron-Core's own modules."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.training import arguments, global_vars
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    unit = args.make_vocab_size_divisible_by
    alone = {
        "transformer_impl": "local", "moe_grouped_gemm": False, "use_cpu_initialization": True,
        "sequence_parallel": False,
        "perform_initialization": False, "params_dtype": torch.bfloat16, "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1, "context_parallel_size": 1, "expert_model_parallel_size": 1,
        "virtual_pipeline_model_parallel_size": None, "pipeline_model_parallel_layout": None, "tp_comm_overlap": False,
        "persist_layer_norm": False, "apply_rope_fusion": False, "bias_dropout_fusion": False, "fp8": None,
        "masked_softmax_fusion": False, "gradient_accumulation_fusion": False, "world_size": 1, "rank": 0,
        "account_for_embedding_in_pipeline_split": False,
        "padded_vocab_size": -(-args.vocab_size // unit) * unit,
    }  # fmt: skip
    for name, value in alone.items():
        setattr(args, name, value)
    made = DotProductAttention.__init__
    with (
        mock.patch.object(global_vars, "_GLOBAL_ARGS", args),
        mock.patch.object(torch.cuda, "current_device", lambda: "meta"),
        mock.patch.object(torch.cuda, "Stream", lambda *_, **__: None),
        # Without Transformer Engine latent attention asks for what it alone takes.
        mock.patch.object(multi_latent_attention, "TELinear", type("TELinear", (), {})),
        mock.patch.object(DotProductAttention, "__init__", lambda self, *a, k_channels=None, v_channels=None, **k:
                          made(self, *a, **k)),
        torch.device("meta"),
    ):  # fmt: skip
        from gpt_builders import gpt_builder

        model = gpt_builder(args, True, True, config=arguments.core_transformer_config_from_args(args))
    return sum(weight.numel() for weight in model.parameters())


def transformers(files: Mapping[str, str]) -> tuple[Read, int]:
    """Return the parameters of the model of a written description; its fields are what a config.json says."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from syncline.planning.frameworks.fields import fields_of
    from syncline.workload.family.config import shape_from_config

    config = AutoConfig.for_model(**yaml.safe_load(files["model.json"]))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return fields_of(shape_from_config(config.to_dict())), sum(weight.numel() for weight in model.parameters())


def torchtitan(files: Mapping[str, str]) -> tuple[Read, int]:
    """Return what the first and the last layer of the written model say, and its parameters."""
    import torch

    written: dict[str, Any] = {}
    exec(compile(files["planned_model.py"], "planned_model.py", "exec"), written)  # noqa: S102  (we wrote it)
    trainer = written["planned"]()
    model = trainer.model_spec.model
    with torch.device("meta"):
        params = sum(weight.numel() for weight in model.build().parameters())
    first, last = model.layers[0], model.layers[-1]
    attention, rope, moe = first.attention, first.attention.rope, getattr(last, "moe", None)
    dense = getattr(first, "feed_forward", None)
    latent = hasattr(attention, "kv_lora_rank")
    sinks = "gpt_oss" in type(model).__module__
    scaling = {"none": "none", "llama": "llama3", "yarn": "yarn"}[rope.scaling]
    inner = attention.inner_attention
    read: Read = {
        "layers": len(model.layers), "hidden": model.dim, "vocab": model.vocab_size, "tied": model.enable_weight_tying,
        "norm_eps": first.attention_norm.eps, "rope_base": float(rope.theta), "rope_kind": scaling,
        "rope_factor": {"none": 1.0, "llama3": rope.scaling_factor, "yarn": float(rope.rope_factor)}[scaling],
        "rope_original": {"none": 0, "llama3": rope.original_max_position_embeddings, "yarn": rope.original_seq_len}[
            scaling], "heads": attention.n_heads, "norm": "rms", "norm_offset": False, "norm_place": "before",
        "sinks": sinks, "window": (inner.window_size[0] + 1) if sinks and getattr(inner, "window_size", None) else 0,
        "gated": True, "attention_dropout": 0.0, "hidden_dropout": 0.0, "positions": "rotary", "init_std": 0.02,
        "experts": moe.num_experts if moe else 0, "top_k": moe.router.top_k if moe else 0,
        "router_score": moe.router.score_func if moe else "softmax",
        "router_normalised": moe.router.route_norm if moe else True,
        "router_scale": moe.router.route_scale if moe else 1.0, "router_biased": bool(moe and moe.router.gate.bias),
        "router_groups": (moe.router.num_expert_groups or 0) if moe else 0, "router_aux_loss": 0.0,
        "qk_norm": "head" if getattr(attention, "qk_norm", None) else "",
        "kv_rank": attention.kv_lora_rank if latent else 0,
        "dense_layers": sum(getattr(layer, "moe", None) is None for layer in model.layers) if moe else 0,
        "predict_layers": len(getattr(model, "mtp_layers", None) or ()),
    }  # fmt: skip
    if dense is not None:
        read["ffn"] = dense.w1.out_features
    if not latent:
        read["kv_heads"] = attention.n_kv_heads or attention.n_heads
        read["head_size"] = attention.head_dim or attention.dim // attention.n_heads
    return read, params


def maxtext(files: Mapping[str, str]) -> tuple[Read, int]:
    """Return what the config says where base.yml stands under it; nothing is built, for that needs JAX."""
    base = yaml.safe_load((SOURCES / "maxtext/src/maxtext/configs/base.yml").read_text())
    c = base | yaml.safe_load(files["config.yml"])
    block, latent, experts = (
        c["decoder_block"],
        c["attention_type"] == "mla",
        c["num_experts"] if c["num_experts"] > 1 else 0,
    )
    acts = c["mlp_activations"]
    named = {"silu": "silu", "gelu": "gelu_tanh", "sigmoid": "quick_gelu", "relu": "relu"}[acts[0]]
    deepseek = block == "deepseek"
    scaled = {"default": "none", "llama3.1": "llama3", "yarn": "yarn"}[c["rope_type"]]
    gemma = block.startswith("gemma")
    read: Read = {
        "layers": c["base_num_decoder_layers"] * (2 if block == "gemma2" else 1), "hidden": c["base_emb_dim"],
        "heads": c["base_num_query_heads"], "ffn": c["base_mlp_dim"], "vocab": c["vocab_size"],
        "tied": c["logits_via_embedding"], "norm_eps": c["normalization_layer_epsilon"],
        "norm": "layer" if block == "gpt3" else "rms", "norm_offset": gemma,
        "norm_place": "after" if block == "olmo3" else "around" if c["use_post_attn_norm"] else "before",
        "qk_norm": "" if latent or not c.get("use_qk_norm") else "head", "gated": len(acts) == 2, "activation": named,
        "activation_limit": max(c["mlp_activations_limit"], 0.0), "rope_kind": scaled,
        "rope_base": float(c["rope_max_timescale"]),
        "rope_factor": {"none": 1.0, "llama3": 8.0, "yarn": float(c["rope_factor"])}[scaled],
        "rope_original": {"none": 0, "llama3": 8192, "yarn": c["original_max_position_embeddings"]}[scaled],
        "window": c["sliding_window_size"], "sinks": c["attention_sink"],
        "full_every": 2 if block == "gemma2" else c["inhomogeneous_layer_cycle_interval"]
        if c["sliding_window_size"] else 0,
        "attention_cap": c["attn_logits_soft_cap"], "logit_cap": c["final_logits_soft_cap"],
        "embedding_scale": c["base_emb_dim"] ** 0.5 if gemma else 1.0,
        "hidden_dropout": c["dropout_rate"] if c["enable_dropout"] else 0.0,
        "bias_qkv": c["attention_bias"] or block == "gpt3", "bias_ffn": c["mlp_bias"] or block == "gpt3",
        "parallel": False, "positions": "learned" if block == "gpt3" else "rotary", "experts": experts,
        "head_bias": False, "rope_share": 1.0,
        "top_k": c["num_experts_per_tok"] if experts else 0, "expert_ffn": c["base_moe_mlp_dim"] if experts else 0,
        "shared_ffn": c["shared_experts"] * c["base_moe_mlp_dim"] if experts else 0,
        "dense_layers": c["first_num_dense_layers"] if experts else 0,
        "router_score": c["routed_score_func"] or "softmax",
        # moe.py: the way of DeepSeek-V3 by the model's name alone.
        "router_groups": max(c["n_routing_groups"], 0) if c["model_name"].startswith("deepseek3") else 0,
        "router_scale": c["routed_scaling_factor"],
        "router_corrected": deepseek and c["routed_bias"] and c["model_name"].startswith("deepseek3"),
        "router_biased": c["routed_bias"] and not deepseek, "router_aux_loss": c["load_balance_loss_weight"] if experts
        else 0.0, "kv_rank": c["kv_lora_rank"] if latent else 0, "q_rank": c["q_lora_rank"] if latent else 0,
        "predict_layers": c["mtp_num_layers"],
    }  # fmt: skip
    if not latent:
        read |= {"kv_heads": c["base_num_kv_heads"], "head_size": c["head_dim"]}
    return read, 0
