"""Arguments of Megatron-LM's pretrain_gpt.py and overrides of Megatron-Bridge for a planned job."""

from __future__ import annotations

from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.software import facts_of
from syncline.workload.stages import stage_layout


def megatron_arguments(job: Job, shape: Shape) -> list[str]:
    """Return the flags of pretrain_gpt.py: model, split, batch, precision and memory."""
    return [*_model(job, shape), *_split(job, shape), *_memory(job, shape)]


def _model(job: Job, shape: Shape) -> list[str]:
    words = {
        "--num-layers": shape.layers,
        "--hidden-size": shape.hidden,
        "--ffn-hidden-size": shape.ffn_size,
        "--num-attention-heads": shape.heads,
        "--kv-channels": shape.qk_size,
        "--seq-length": job.batch.sequence,
        "--max-position-embeddings": job.batch.sequence,
        "--micro-batch-size": job.batch.micro,
        "--global-batch-size": job.batch.global_,
        "--vocab-size": shape.vocab,
    }
    found = [text for name, value in words.items() for text in (name, str(value))]
    found += ["--bf16"] if job.precision in ("bf16", "fp8") else ["--fp16"] if job.precision == "fp16" else []
    found += ["--fp8-format", "hybrid"] if job.precision == "fp8" else []
    found += ["--swiglu"] * shape.gated + ["--untie-embeddings-and-output-weights"] * (not shape.tied)
    found += ["--disable-bias-linear"] * (not shape.biases) + ["--add-qkv-bias"] * shape.qkv_biases
    found += [] if shape.norm_biases else ["--normalization", "RMSNorm"]
    found += ["--position-embedding-type", "learned_absolute" if shape.positions else "rope"]
    if shape.num_kv_heads != shape.heads and not shape.mla:
        found += ["--group-query-attention", "--num-query-groups", str(shape.num_kv_heads)]
    if shape.mla:
        found += [
            "--multi-latent-attention",
            "--kv-lora-rank",
            str(shape.mla.kv_rank),
            "--qk-head-dim",
            str(shape.mla.nope_size),
            "--qk-pos-emb-head-dim",
            str(shape.mla.rope_size),
            "--v-head-dim",
            str(shape.v_size),
        ]
        found += ["--q-lora-rank", str(shape.mla.q_rank)] if shape.mla.q_rank else []
    if shape.moe:
        found += [
            "--num-experts",
            str(shape.moe.experts),
            "--moe-router-topk",
            str(shape.moe.top_k),
            "--moe-ffn-hidden-size",
            str(shape.moe.ffn),
            "--moe-token-dispatcher-type",
            "alltoall",
            "--moe-grouped-gemm",
        ]
        shared, dense = shape.moe.shared_ffn, shape.moe.dense_layers
        found += ["--moe-shared-expert-intermediate-size", str(shared)] if shared else []
        found += ["--moe-layer-freq", f"([0]*{dense}+[1]*{shape.moe_layers})"] if dense else []
    found += ["--mtp-num-layers", str(shape.predict_layers)] if shape.predict_layers else []
    return found


def _split(job: Job, shape: Shape) -> list[str]:
    split = job.parallel
    found = [
        "--tensor-model-parallel-size",
        str(split.tp),
        "--pipeline-model-parallel-size",
        str(split.pp),
        "--context-parallel-size",
        str(split.cp),
    ]
    if split.ep > 1:
        found += ["--expert-model-parallel-size", str(split.ep), "--expert-tensor-parallel-size", "1"]
    if split.pp > 1:
        found += _stages(shape, split.pp, split.virtual)
    facts = facts_of(job)
    found += ["--sequence-parallel"] * (facts.sequence_parallel and split.tp > 1)
    found += ["--tp-comm-overlap"] * (facts.tp_overlap and split.tp > 1)
    if split.sharded_state:
        found += ["--use-distributed-optimizer"]
    if facts.dp_overlap:
        found += ["--overlap-grad-reduce", *(["--overlap-param-gather"] if split.sharded_state else [])]
    return found


def _stages(shape: Shape, pp: int, virtual: int) -> list[str]:
    """Return the cut: layers of a virtual stage where it is even, else the whole layout written out."""
    if shape.layers % (pp * virtual) == 0:
        each = shape.layers // (pp * virtual)
        return ["--num-layers-per-virtual-pipeline-stage", str(each)] if virtual > 1 else []
    return ["--pipeline-model-parallel-layout", layout_text(shape.layers, pp, virtual)]


def layout_text(layers: int, pp: int, virtual: int) -> str:
    """Return Megatron's layout: E embedding, t a layer, L the loss; stages in the order of the model, with bars."""
    laid = stage_layout(layers, pp, virtual)
    parts = ["t" * laid[stage][chunk] for chunk in range(virtual) for stage in range(pp)]
    parts[0], parts[-1] = "E" + parts[0], parts[-1] + "L"
    return "|".join(parts)


def _memory(job: Job, shape: Shape) -> list[str]:
    split = job.parallel
    found = ["--grad-reduce-in-bf16"] * (job.gradient_bytes == 2 and job.software.framework == "nemo")
    if job.recompute == "selective":
        found += ["--recompute-granularity", "selective"]
    elif job.recompute == "full":
        found += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"]
    elif job.recompute.startswith("partial-"):
        layers = max(
            1, round(int(job.recompute.removeprefix("partial-")) / 100 * shape.layers / split.pp / split.virtual)
        )
        found += ["--recompute-granularity", "full", "--recompute-method", "block"]
        found += ["--recompute-num-layers", str(layers)]
    if job.offload in ("optimizer", "both"):
        found += ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]
    return found


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
