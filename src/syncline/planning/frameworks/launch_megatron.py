"""Arguments of Megatron-LM's pretrain_gpt.py and overrides of Megatron-Bridge for a planned job."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.stages import stage_layout

Flags = Mapping[str, object]


def megatron_arguments(job: Job, shape: Shape) -> list[str]:
    """Return the flags of pretrain_gpt.py: model, split, batch, precision and memory."""
    flags = {**_model(job, shape), **_attention(shape), **_experts(shape), **_split(job, shape), **_memory(job, shape)}
    return words_of(flags)


def words_of(flags: Flags) -> list[str]:
    """Return flags as words: True stands for a flag without a value, False and None for one that is left out."""
    given = {name: value for name, value in flags.items() if value is not None and value is not False}
    return [word for name, value in given.items() for word in ((name,) if value is True else (name, str(value)))]


def _model(job: Job, shape: Shape) -> Flags:
    return {
        "--num-layers": shape.layers, "--hidden-size": shape.hidden, "--ffn-hidden-size": shape.ffn_size,
        "--num-attention-heads": shape.heads, "--kv-channels": shape.qk_size, "--seq-length": job.batch.sequence,
        "--max-position-embeddings": job.batch.sequence, "--micro-batch-size": job.batch.micro,
        "--global-batch-size": job.batch.global_, "--vocab-size": shape.vocab,
        "--bf16": job.precision in ("bf16", "fp8"), "--fp16": job.precision == "fp16",
        "--fp8-format": "hybrid" if job.precision == "fp8" else None, "--swiglu": shape.gated,
        "--untie-embeddings-and-output-weights": not shape.tied, "--disable-bias-linear": not shape.biases,
        "--add-qkv-bias": shape.qkv_biases, "--normalization": None if shape.norm_biases else "RMSNorm",
        "--position-embedding-type": "learned_absolute" if shape.positions else "rope",
    }  # fmt: skip


def _attention(shape: Shape) -> Flags:
    if not shape.mla:
        grouped = shape.num_kv_heads != shape.heads
        return {"--group-query-attention": grouped, "--num-query-groups": shape.num_kv_heads if grouped else None}
    return {
        "--multi-latent-attention": True, "--kv-lora-rank": shape.mla.kv_rank, "--qk-head-dim": shape.mla.nope_size,
        "--qk-pos-emb-head-dim": shape.mla.rope_size, "--v-head-dim": shape.v_size,
        "--q-lora-rank": shape.mla.q_rank or None,
    }  # fmt: skip


def _experts(shape: Shape) -> Flags:
    flags: Flags = {}
    if shape.moe:
        dense = shape.moe.dense_layers
        flags = {
            "--num-experts": shape.moe.experts, "--moe-router-topk": shape.moe.top_k,
            "--moe-ffn-hidden-size": shape.moe.ffn, "--moe-token-dispatcher-type": "alltoall",
            "--moe-grouped-gemm": True, "--moe-shared-expert-intermediate-size": shape.moe.shared_ffn or None,
            "--moe-layer-freq": f"([0]*{dense}+[1]*{shape.moe_layers})" if dense else None,
        }  # fmt: skip
    return {**flags, "--mtp-num-layers": shape.predict_layers or None}


def _split(job: Job, shape: Shape) -> Flags:
    split, facts = job.parallel, facts_of(job)
    spread = split.ep > 1
    return {
        "--tensor-model-parallel-size": split.tp, "--pipeline-model-parallel-size": split.pp,
        "--context-parallel-size": split.cp, "--expert-model-parallel-size": split.ep if spread else None,
        "--expert-tensor-parallel-size": 1 if spread else None,
        **(_stages(shape, split.pp, split.virtual) if split.pp > 1 else {}),
        "--sequence-parallel": facts.sequence_parallel and split.tp > 1,
        "--tp-comm-overlap": facts.tp_overlap and split.tp > 1, "--use-distributed-optimizer": split.sharded_state,
        "--overlap-grad-reduce": facts.dp_overlap, "--overlap-param-gather": facts.dp_overlap and split.sharded_state,
    }  # fmt: skip


def _stages(shape: Shape, pp: int, virtual: int) -> Flags:
    """Return the cut: layers of a virtual stage where it is even, else the whole layout written out."""
    if shape.layers % (pp * virtual) == 0:
        each = shape.layers // (pp * virtual)
        return {"--num-layers-per-virtual-pipeline-stage": each if virtual > 1 else None}
    return {"--pipeline-model-parallel-layout": layout_text(shape.layers, pp, virtual)}


def layout_text(layers: int, pp: int, virtual: int) -> str:
    """Return Megatron's layout: E embedding, t a layer, L the loss; stages in the order of the model, with bars."""
    laid = stage_layout(layers, pp, virtual)
    parts = ["t" * laid[stage][chunk] for chunk in range(virtual) for stage in range(pp)]
    parts[0], parts[-1] = "E" + parts[0], parts[-1] + "L"
    return "|".join(parts)


def _memory(job: Job, shape: Shape) -> Flags:
    split, method, layers = job.parallel, None, None
    if job.recompute == "full":
        method, layers = "uniform", 1
    elif job.recompute.startswith("partial-"):
        share = int(job.recompute.removeprefix("partial-")) / 100
        method, layers = "block", max(1, round(share * shape.layers / split.pp / split.virtual))
    offloaded = job.offload in ("optimizer", "both")
    return {
        "--grad-reduce-in-bf16": facts_of(job).gradient_bytes == 2 and job.precision != "fp16",
        "--recompute-granularity": "full" if method else "selective" if job.recompute == "selective" else None,
        "--recompute-method": method, "--recompute-num-layers": layers, "--optimizer-cpu-offload": offloaded,
        "--use-precision-aware-optimizer": offloaded,
    }  # fmt: skip


#: Flags of Megatron-LM and the field of a Megatron-Bridge ConfigContainer that says the same.
_BRIDGE = {
    "--tensor-model-parallel-size": "model.tensor_model_parallel_size",
    "--pipeline-model-parallel-size": "model.pipeline_model_parallel_size",
    "--context-parallel-size": "model.context_parallel_size",
    "--expert-model-parallel-size": "model.expert_model_parallel_size",
    "--expert-tensor-parallel-size": "model.expert_tensor_parallel_size",
    "--pipeline-model-parallel-layout": "model.pipeline_model_parallel_layout",
    "--recompute-granularity": "model.recompute_granularity",
    "--recompute-method": "model.recompute_method",
    "--recompute-num-layers": "model.recompute_num_layers",
    "--micro-batch-size": "train.micro_batch_size",
    "--global-batch-size": "train.global_batch_size",
    "--seq-length": "model.seq_length",
}


def nemo_overrides(job: Job, shape: Shape) -> list[str]:
    """Return overrides `field=value` of a Megatron-Bridge recipe."""
    flags = megatron_arguments(job, shape)
    found = [f"{_BRIDGE[name]}={value}" for name, value in zip(flags, [*flags[1:], ""], strict=True) if name in _BRIDGE]
    split = job.parallel
    if split.virtual > 1 and "--pipeline-model-parallel-layout" not in flags:
        found.append(f"model.virtual_pipeline_model_parallel_size={split.virtual}")
    # Must equal the model's (ConfigContainer.validate); data of pre-training call it by Megatron-Core's name.
    found.append(f"dataset.{'seq' if job.frozen else 'sequence'}_length={job.batch.sequence}")
    found.append(f"model.sequence_parallel={str('--sequence-parallel' in flags).lower()}")
    found.append(f"ddp.use_distributed_optimizer={str(split.sharded_state).lower()}")
    found.append(f"ddp.grad_reduce_in_fp32={str(facts_of(job).main_grad_bytes == 4).lower()}")
    return found
