"""The model that a framework builds of written launch files, read off its own configuration in the words of our fields.

`rig/entry.py` brings files to the framework's entry point; what that makes of them is asked here for every field that
it has, given or by default, and the model is built on the meta device, whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

Read = dict[str, Any]


def megatron(args: Any) -> tuple[Read, int]:
    """Return the fields of validated arguments of pretrain_gpt.py, and the parameters of the GPTModel of them."""
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


#: What a CPU has no kernels for, and the split: none of these changes what parameters a whole model has.
ALONE = {
    "moe_grouped_gemm": False, "use_cpu_initialization": True, "sequence_parallel": False,
    "perform_initialization": False, "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1, "expert_model_parallel_size": 1, "expert_tensor_parallel_size": 1,
    "virtual_pipeline_model_parallel_size": None, "pipeline_model_parallel_layout": None, "tp_comm_overlap": False,
    "persist_layer_norm": False, "no_persist_layer_norm": True, "apply_rope_fusion": False,
    "bias_dropout_fusion": False, "fp8": None, "masked_softmax_fusion": False, "gradient_accumulation_fusion": False,
}  # fmt: skip


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One rank that builds Megatron-Core's own modules on the meta device."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.transformer import multi_latent_attention, transformer_block
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    made, offload = DotProductAttention.__init__, (contextlib.nullcontext(), None)
    with (
        mock.patch.object(torch.cuda, "current_device", lambda: "meta"),
        mock.patch.object(torch.cuda, "Stream", lambda *_, **__: None),
        mock.patch.object(transformer_block, "get_cpu_offload_context", lambda *_, **__: offload),
        mock.patch.object(transformer_block, "LayerNormImpl", WrappedTorchNorm),
        # Without Transformer Engine latent attention asks for what it alone takes.
        mock.patch.object(multi_latent_attention, "TELinear", type("TELinear", (), {})),
        mock.patch.object(DotProductAttention, "__init__", lambda self, *a, k_channels=None, v_channels=None, **k:
                          made(self, *a, **k)),
        torch.device("meta"),
    ):  # fmt: skip
        try:
            yield
        finally:
            parallel_state.destroy_model_parallel()
            dist.destroy_process_group()


def _megatron_params(args: Any) -> int:
    import torch
    from megatron.training import arguments, global_vars

    alone = ALONE | {
        "transformer_impl": "local", "params_dtype": torch.bfloat16, "world_size": 1, "rank": 0,
        "account_for_embedding_in_pipeline_split": False, "padded_vocab_size": args.vocab_size,
    }  # fmt: skip
    for name, value in alone.items():
        setattr(args, name, value)
    with mock.patch.object(global_vars, "_GLOBAL_ARGS", args), _alone():
        from gpt_builders import gpt_builder

        model = gpt_builder(args, True, True, config=arguments.core_transformer_config_from_args(args))
    return sum(weight.numel() for weight in model.parameters())


def bridge(container: Any) -> tuple[Read, int]:
    """Return the fields of a validated ConfigContainer's model provider, and the parameters of what it provides."""
    import torch

    m = container.model
    latent, experts = bool(getattr(m, "multi_latent_attention", False)), m.num_moe_experts or 0
    kind = m.position_embedding_type
    act = {"silu": "silu", "quick_gelu": "quick_gelu", "squared_relu": "relu2", "gelu": "gelu",
           "openai_gelu": "gelu_tanh", "fast_gelu": "gelu_tanh"}[
        getattr(m.activation_func, "__name__", str(m.activation_func))]  # fmt: skip
    if act == "gelu" and not m.gated_linear_unit and m.bias_activation_fusion and m.add_bias_linear:
        act = "gelu_tanh"  # what the fused kernel computes
    yarn = kind == "yarn" or (latent and m.rope_type == "yarn")
    dense = list(m.moe_layer_freq).count(0) if not isinstance(m.moe_layer_freq, int) else 0
    read: Read = {
        "layers": m.num_layers, "hidden": m.hidden_size, "heads": m.num_attention_heads, "vocab": m.vocab_size,
        "tied": m.share_embeddings_and_output_weights, "kv_heads": m.num_query_groups or m.num_attention_heads,
        "head_size": m.qk_head_dim + m.qk_pos_emb_head_dim if latent else m.kv_channels,
        "norm": {"RMSNorm": "rms", "LayerNorm": "layer"}[m.normalization], "norm_eps": m.layernorm_epsilon,
        "norm_offset": m.layernorm_zero_centered_gamma, "qk_norm": "head" if m.qk_layernorm and not latent else "",
        "bias_qkv": m.add_bias_linear or m.add_qkv_bias, "bias_out": m.add_bias_linear, "bias_ffn": m.add_bias_linear,
        "gated": m.gated_linear_unit, "activation": act, "activation_limit": m.activation_func_clamp_value or 0.0,
        "positions": "learned" if kind == "learned_absolute" else "rotary", "rope_share": m.rotary_percent,
        "rope_base": float(m.rotary_base) if kind != "learned_absolute" else 10000.0,
        "rope_kind": "yarn" if yarn else "llama3" if m.rope_scaling and not latent else "none",
        "rope_factor": float(m.rotary_scaling_factor if latent else m.yarn_rotary_scaling_factor) if yarn
        else m.rope_scaling_factor if m.rope_scaling and not latent else 1.0,
        "window": m.window_size[0] + 1 if m.window_size else 0, "full_every": m.window_attn_skip_freq or 0,
        "sinks": m.softmax_type == "learnable", "attention_dropout": m.attention_dropout,
        "hidden_dropout": m.hidden_dropout, "init_std": m.init_method_std, "kv_rank": m.kv_lora_rank if latent else 0,
        "q_rank": (m.q_lora_rank or 0) if latent else 0, "experts": experts,
        "top_k": m.moe_router_topk if experts else 0, "expert_ffn": m.moe_ffn_hidden_size if experts else 0,
        "ffn": m.moe_ffn_hidden_size if experts and not dense else m.ffn_hidden_size, "dense_layers": dense,
        "shared_ffn": m.moe_shared_expert_intermediate_size or 0, "router_score": m.moe_router_score_function,
        "router_groups": m.moe_router_num_groups or 0, "router_scale": m.moe_router_topk_scaling_factor or 1.0,
        "router_corrected": m.moe_router_enable_expert_bias, "shared_gate": m.moe_shared_expert_gate,
        "router_aux_loss": 0.0 if m.moe_router_load_balancing_type == "none" or not experts else m.moe_aux_loss_coeff,
        "predict_layers": m.mtp_num_layers or 0,
    }  # fmt: skip
    if m.position_embedding_type == "learned_absolute":
        read["num_positions"] = m.seq_length
    for name, value in ALONE.items():
        setattr(m, name, value)
    m.params_dtype, m.should_pad_vocab = torch.bfloat16, False
    from megatron.core.models.gpt import gpt_layer_specs
    from megatron.core.process_groups_config import ProcessGroupCollection

    with _alone():
        m._pg_collection = ProcessGroupCollection.use_mpu_process_groups()
        if experts:
            spec = gpt_layer_specs.get_gpt_decoder_block_spec(
                m, use_transformer_engine=False, normalization=m.normalization)  # fmt: skip
        else:
            spec = gpt_layer_specs.get_gpt_layer_local_spec(
                qk_layernorm=m.qk_layernorm, multi_latent_attention=latent, normalization=m.normalization)  # fmt: skip
        m.transformer_layer_spec = lambda _: spec
        model = m.provide(pre_process=True, post_process=True)
    return read, sum(weight.numel() for weight in model.parameters())


def transformers(config: Any, model: Any) -> tuple[Read, int]:
    """Return what a config.json says, and the parameters of the model that is built of it."""
    from syncline.planning.frameworks.fields import fields_of
    from syncline.workload.family.config import shape_from_config

    return fields_of(shape_from_config(config.to_dict())), sum(weight.numel() for weight in model.parameters())


def torchtitan(model: Any) -> tuple[Read, int]:
    """Return what the first and the last layer of a model's configuration say, and its parameters."""
    import torch

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


def maxtext(config: Any, ranks: int, hosts: int) -> tuple[Read, int]:
    """Return what pyconfig says of a config, and the parameters of its model, evaluated by shape alone."""
    from maxtext.utils import max_utils

    c = config.get_keys()
    max_utils.fill_unspecified_mesh_axes(list(config.ici_parallelism), ranks // hosts, "ICI")
    max_utils.fill_unspecified_mesh_axes(list(config.dcn_parallelism), hosts, "DCN")
    block, latent, experts = (
        c["decoder_block"].value,
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
        "attention_cap": c["attn_logits_soft_cap"] or 0.0, "logit_cap": c["final_logits_soft_cap"] or 0.0,
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
    # The correction of a router is a buffer elsewhere: no gradient moves it.
    buffers = read["router_corrected"] * experts * (read["layers"] - read["dense_layers"])
    return read, _maxtext_params(config) - buffers


def _maxtext_params(config: Any) -> int:
    import jax
    import numpy as np
    from flax import nnx
    from maxtext.utils import model_creation_utils

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape((1,) * len(config.mesh_axes)), config.mesh_axes)
    _, model = model_creation_utils.create_nnx_abstract_model(config, mesh)
    return sum(int(np.prod(each.shape)) for each in jax.tree.leaves(nnx.state(model, nnx.Param)))
