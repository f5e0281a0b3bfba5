"""A Megatron-Bridge job: a script that names a recipe, and overrides of its fields."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.errors import PlanError
from syncline.planning.frameworks.fields import Arguments, Dialect, Fields, dialect_of, fields_of
from syncline.planning.frameworks.launch_megatron import ROWS, flags_of, stretched
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of

SCRIPT = "pretrain.py"
#: Flags of Megatron-LM and the field of a ConfigContainer that says the same.
BRIDGE: Mapping[str, str] = {
    "--num-layers": "num_layers", "--hidden-size": "hidden_size", "--ffn-hidden-size": "ffn_hidden_size",
    "--num-attention-heads": "num_attention_heads", "--num-query-groups": "num_query_groups",
    "--kv-channels": "kv_channels", "--vocab-size": "vocab_size", "--normalization": "normalization",
    "--norm-epsilon": "layernorm_epsilon", "--apply-layernorm-1p": "layernorm_zero_centered_gamma",
    "--qk-layernorm": "qk_layernorm", "--add-qkv-bias": "add_qkv_bias", "--glu-linear-offset": "glu_linear_offset",
    "--activation-func-clamp-value": "activation_func_clamp_value",
    "--position-embedding-type": "position_embedding_type", "--rotary-base": "rotary_base",
    "--rotary-percent": "rotary_percent", "--rotary-seq-len-interpolation-factor": "seq_len_interpolation_factor",
    "--no-rope-freq": "no_rope_freq", "--window-attn-skip-freq": "window_attn_skip_freq",
    "--softmax-type": "softmax_type", "--attention-dropout": "attention_dropout", "--hidden-dropout": "hidden_dropout",
    "--init-method-std": "init_method_std", "--kv-lora-rank": "kv_lora_rank", "--q-lora-rank": "q_lora_rank",
    "--qk-head-dim": "qk_head_dim", "--qk-pos-emb-head-dim": "qk_pos_emb_head_dim", "--v-head-dim": "v_head_dim",
    "--rope-type": "rope_type", "--rotary-scaling-factor": "rotary_scaling_factor", "--mscale": "mscale",
    "--mscale-all-dim": "mscale_all_dim", "--num-experts": "num_moe_experts", "--moe-router-topk": "moe_router_topk",
    "--moe-ffn-hidden-size": "moe_ffn_hidden_size", "--moe-token-dispatcher-type": "moe_token_dispatcher_type",
    "--moe-grouped-gemm": "moe_grouped_gemm", "--moe-router-dtype": "moe_router_dtype",
    "--moe-shared-expert-intermediate-size": "moe_shared_expert_intermediate_size",
    "--moe-shared-expert-gate": "moe_shared_expert_gate", "--moe-latent-size": "moe_latent_size",
    "--moe-router-pre-softmax": "moe_router_pre_softmax", "--moe-router-score-function": "moe_router_score_function",
    "--moe-router-num-groups": "moe_router_num_groups", "--moe-router-group-topk": "moe_router_group_topk",
    "--moe-router-topk-scaling-factor": "moe_router_topk_scaling_factor",
    "--moe-router-enable-expert-bias": "moe_router_enable_expert_bias",
    "--moe-router-load-balancing-type": "moe_router_load_balancing_type",
    "--moe-aux-loss-coeff": "moe_aux_loss_coeff", "--mtp-num-layers": "mtp_num_layers",
    "--make-vocab-size-divisible-by": "make_vocab_size_divisible_by",
    "--tensor-model-parallel-size": "tensor_model_parallel_size",
    "--pipeline-model-parallel-size": "pipeline_model_parallel_size",
    "--context-parallel-size": "context_parallel_size", "--expert-model-parallel-size": "expert_model_parallel_size",
    "--expert-tensor-parallel-size": "expert_tensor_parallel_size",
    "--pipeline-model-parallel-layout": "pipeline_model_parallel_layout", "--sequence-parallel": "sequence_parallel",
    "--tp-comm-overlap": "tp_comm_overlap", "--recompute-granularity": "recompute_granularity",
    "--recompute-method": "recompute_method", "--recompute-num-layers": "recompute_num_layers",
    "--seq-length": "seq_length",
}  # fmt: skip
#: Flags of what is no field of the model.
_BESIDE: Mapping[str, str] = {
    "--micro-batch-size": "train.micro_batch_size", "--global-batch-size": "train.global_batch_size",
    "--train-iters": "train.train_iters", "--lr": "optimizer.lr", "--min-lr": "optimizer.min_lr",
    "--adam-beta1": "optimizer.adam_beta1", "--adam-beta2": "optimizer.adam_beta2", "--adam-eps": "optimizer.adam_eps",
    "--weight-decay": "optimizer.weight_decay", "--clip-grad": "optimizer.clip_grad",
    "--lr-decay-style": "scheduler.lr_decay_style", "--lr-decay-iters": "scheduler.lr_decay_iters",
    "--lr-warmup-iters": "scheduler.lr_warmup_iters", "--overlap-grad-reduce": "ddp.overlap_grad_reduce",
    "--overlap-param-gather": "ddp.overlap_param_gather", "--optimizer-cpu-offload": "optimizer.optimizer_cpu_offload",
    "--use-precision-aware-optimizer": "optimizer.use_precision_aware_optimizer",
}  # fmt: skip
#: Flags that say a value by being there.
_SAYS: Mapping[str, Arguments] = {
    "--swiglu": {"model.gated_linear_unit": True, "model.activation_func": "silu"},
    "--quick-geglu": {"model.gated_linear_unit": True, "model.activation_func": "quick_gelu"},
    "--squared-relu": {"model.activation_func": "squared_relu"}, "--no-bias-gelu-fusion": {},
    "--disable-bias-linear": {"model.add_bias_linear": False},
    "--multi-latent-attention": {"model.multi_latent_attention": True},
    "--untie-embeddings-and-output-weights": {"model.share_embeddings_and_output_weights": False},
    "--use-rope-scaling": {"model.rope_scaling": True, "model.rope_scaling_factor": 8.0},
}  # fmt: skip
_PRECISIONS = {"bf16": "bf16_mixed", "fp16": "fp16_mixed", "tensorwise": "bf16_with_fp8_current_scaling_mixed",
               "block": "bf16_with_fp8_subchannel_scaling_mixed", "mx": "bf16_with_mxfp8_mixed",
               "nvfp4": "bf16_with_nvfp4_mixed", "fp8": "bf16_with_fp8_current_scaling_mixed"}  # fmt: skip


def _stretched(f: Fields) -> Arguments | None:
    """Return what Megatron-LM has, and besides it llama3 scaling of any factor and yarn without latent attention."""
    if f["rope_kind"] == "llama3" and (f["rope_original"], f["rope_low"], f["rope_high"]) == (8192, 1.0, 4.0):
        return {"model.rope_scaling": True, "model.rope_scaling_factor": f["rope_factor"]}
    if f["rope_kind"] == "yarn" and not f["kv_rank"]:
        return {
            "--position-embedding-type": "yarn", "model.yarn_rotary_scaling_factor": f["rope_factor"],
            "model.yarn_original_max_position_embeddings": f["rope_original"],
            "model.yarn_beta_fast": f["rope_fast"], "model.yarn_beta_slow": f["rope_slow"],
            "model.yarn_correction_range_round_to_int": f["rope_rounded"],
        }  # fmt: skip
    return stretched(f)


NEMO = Dialect("nemo", {**ROWS, "rope_kind": _stretched}, {})


def nemo_overrides(job: Job, shape: Shape) -> list[str]:
    """Return overrides `field=value` of the recipe that the script names."""
    flags = flags_of(job, shape, dialect_of("NeMo (Megatron-Bridge)", [NEMO], shape))
    found: dict[str, object] = {}
    for name, value in flags.items():
        if value is None or value is False:
            continue
        if name in BRIDGE:
            found[f"model.{BRIDGE[name]}"] = value
        elif name in _BESIDE:
            found[_BESIDE[name]] = value
        else:
            found |= _SAYS.get(name, {name: value} if not name.startswith("--") else {})
    # Megatron-LM fuses the bias into gelu unless told otherwise; the provider has to be told.
    if fields_of(shape)["activation"] == "gelu_tanh":
        found["model.bias_activation_fusion"] = True
    if window := flags.get("--window-size"):
        found["model.window_size"] = f"[{window}]"
    if "--moe-layer-freq" in flags:
        moe = ("0",) * shape.dense_layers + ("1",) * shape.moe_layers
        found["model.moe_layer_freq"] = f"[{','.join(moe)}]"
    split = job.parallel
    if split.virtual > 1 and "--pipeline-model-parallel-layout" not in flags:
        found["model.virtual_pipeline_model_parallel_size"] = split.virtual
    found["dataset.seq_length"] = job.batch.sequence  # must equal the model's
    found["ddp.use_distributed_optimizer"] = split.sharded_state
    found["mixed_precision.grad_reduce_in_fp32"] = facts_of(job).main_grad_bytes == 4  # it overwrites that of `ddp`
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in found.items()]


def nemo_script(job: Job, shape: Shape) -> str:
    """Return the script: the recipe without assumptions on a model, the kind of its attention, and the precision."""
    precision = _PRECISIONS.get(job.recipe or job.precision)
    if precision is None:
        raise PlanError(f"Megatron-Bridge does not train in {job.precision}.", hint="Set `precision: bf16`.")
    kind = ("mla_provider", "MLAModelProvider") if shape.mla else ("gpt_provider", "GPTModelProvider")
    return f'''"""{shape.name}: a recipe of Megatron-Bridge 0.6 in {job.precision}; arguments.txt overrides it."""

import sys

from megatron.bridge.models.{kind[0]} import {kind[1]}
from megatron.bridge.recipes.gpt import vanilla_gpt_pretrain_config
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import {precision}
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

config = vanilla_gpt_pretrain_config()
config.model = {kind[1]}()
config.mixed_precision = {precision}()
pretrain(process_config_with_overrides(config, cli_overrides=sys.argv[1:]), forward_step)
'''
