"""Low-rank adapters (LoRA): how many parameters they have beside the frozen ones of the model."""

from __future__ import annotations

from syncline.workload.job import Job
from syncline.workload.shape import Shape

#: Parameters of adapters over those of the model where no rank is given: rank 16 to 64 on every projection is 0.2 to
#: 1.5 %.
USUAL_SHARE = 0.01


def adapter_share(job: Job) -> float:
    """Return the parameters of a job's adapters over those of its model; those of all where nothing is frozen."""
    if not job.frozen:
        return 1.0
    if job.adapter_rank is None or not isinstance(job.model, Shape):
        return USUAL_SHARE
    return job.adapter_rank * _widths(job.model) / job.model.params


def _widths(shape: Shape) -> float:
    """Return inputs and outputs of every projection, summed: what adapters have for each of their rank."""
    heads, keys = shape.heads, shape.num_kv_heads
    queries, values = heads * shape.qk_size, heads * shape.v_size
    if shape.mla is None:
        attention = shape.hidden + queries + 2 * shape.hidden + keys * (shape.qk_size + shape.v_size)
    else:
        latent, m = shape.mla.q_rank, shape.mla
        attention = (shape.hidden + 2 * latent + queries) if latent else shape.hidden + queries
        attention += shape.hidden + 2 * m.kv_rank + m.rope_size + heads * (m.nope_size + shape.v_size)
    attention += values + shape.hidden
    each = 2 + shape.gated  # products of a block
    total = shape.num_attention_layers * attention + shape.dense_layers * each * (shape.hidden + shape.ffn_size)
    if shape.moe is not None:
        experts = shape.moe.experts * (shape.expert_hidden + shape.moe.ffn)
        shared = shape.hidden + shape.moe.shared_ffn if shape.moe.shared_ffn else 0
        total += shape.moe_layers * each * (experts + shared)
    return float(total)
