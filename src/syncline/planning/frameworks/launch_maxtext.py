"""What MaxText reads: a config that stands on its base.yml, with the block, the experts and the mesh of a job."""

from __future__ import annotations

import math
from collections.abc import Mapping

from syncline.workload.job import Job
from syncline.workload.shape import Shape

Values = Mapping[str, object]


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
    split = job.parallel
    values: Values = {
        "base_config": "base.yml",
        "run_name": job.name,
        "hardware": "gpu",
        "attention": "cudnn_flash_te",
        "max_segments_per_seq": 32,  # documents packed into one sequence, which TransformerEngine's attention must know
        **_layers(shape),
        **_attention(shape),
        **_experts(shape),
        "max_target_length": job.batch.sequence,
        "per_device_batch_size": job.batch.micro / (split.tp * split.cp),
        "gradient_accumulation_steps": job.num_micro,
        "remat_policy": "full" if job.recompute == "full" else "minimal_flash",
        **mesh_of(job, gpus_per_host),
        "dtype": "bfloat16",
        "weight_dtype": "float32",
    }
    return "".join(f"{name}: {_text(value)}\n" for name, value in values.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _layers(shape: Shape) -> Values:
    # Where every layer has experts there is no other block, and MaxText wants one width of both.
    width = shape.moe.ffn if shape.moe and not shape.dense_layers else shape.ffn_size
    return {
        "decoder_block": _block(shape),
        "base_num_decoder_layers": shape.layers,
        "base_emb_dim": shape.hidden,
        "base_mlp_dim": width,
        "mlp_activations": "[silu, linear]" if shape.gated else "[gelu]",
        "vocab_size": shape.vocab,
        "logits_via_embedding": shape.tied,
    }


def _block(shape: Shape) -> str:
    """Return the kind of layer, by what tells MaxText's apart: latent keys, experts, norms of the heads, biases."""
    if shape.mla or (shape.moe and shape.dense_layers):
        return "deepseek"
    if shape.moe:
        return "qwen3_moe" if shape.qk_norm else "mixtral"
    if shape.biases:
        return "gpt3"
    return "qwen3" if shape.qk_norm else "llama2"


def _attention(shape: Shape) -> Values:
    found: dict[str, object] = {"base_num_query_heads": shape.heads, "base_num_kv_heads": shape.num_kv_heads}
    if not shape.mla:
        return found | {"head_dim": shape.qk_size, "use_qk_norm": shape.qk_norm}
    return found | {
        "attention_type": "mla",
        "q_lora_rank": shape.mla.q_rank,
        "kv_lora_rank": shape.mla.kv_rank,
        "qk_nope_head_dim": shape.mla.nope_size,
        "qk_rope_head_dim": shape.mla.rope_size,
        "v_head_dim": shape.v_size,
    }


def _experts(shape: Shape) -> Values:
    if not shape.moe:
        return {}
    return {
        "num_experts": shape.moe.experts,
        "num_experts_per_tok": shape.moe.top_k,
        "base_moe_mlp_dim": shape.moe.ffn,
        "first_num_dense_layers": shape.dense_layers,
        "shared_experts": -(-shape.moe.shared_ffn // shape.moe.ffn),
    }
