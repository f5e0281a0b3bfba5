"""The parameters that a rank holds: of a layer, of a stage, of experts, and those whose optimizer state is its own."""

from __future__ import annotations

import numpy as np

from syncline.sim.step.case import Case, Floats, pick, remembered
from syncline.sim.step.experts import expert_params


@remembered
def layer_params(c: Case) -> Floats:
    """Return the parameters that one rank holds of a mean layer, routed experts not among them."""
    attention = pick(
        c.kv_rank == 0,
        c.hidden * ((c.heads * (1 + c.query_gate) + c.kv_heads) * c.qk_size + c.kv_heads * c.v_size),
        c.hidden * (c.q_rank + c.kv_rank + c.rope_size)
        + pick(c.q_rank > 0, c.q_rank, c.hidden) * c.heads * c.qk_size
        + c.kv_rank * c.heads * (c.qk_size - c.rope_size + c.v_size),
    )
    attention = attention + c.heads * c.v_size * c.hidden
    share = c.moe_layers / c.layers
    block = (2 + c.gated) * c.hidden * ((c.ffn_share - share) * c.ffn + share * c.shared_ffn)
    return (c.attention_share * attention + block + c.mixer_params) / c.tp + share * c.experts * c.hidden + 2 * c.hidden


@remembered
def stage_params(c: Case) -> Floats:
    """Return the parameters of the heaviest stage on one rank, routed experts not among them."""
    ends = c.embedding_params + c.head_params
    heavier = np.maximum(c.embedding_params, pick(c.head_params > 0, c.head_params, c.embedding_params))
    further = c.predict_layers * predict_params(c)
    return layer_params(c) * c.layers / c.pp + pick(c.pp > 1, heavier, ends) / c.tp + further


@remembered
def predict_params(c: Case) -> Floats:
    """Return what one rank holds of a layer that predicts a further token, its routed experts not among them."""
    return layer_params(c) + 2 * c.hidden**2 / c.tp


@remembered
def expert_holders(c: Case) -> Floats:
    """Return how many ranks of a stage hold the same routed experts."""
    return np.maximum(c.dp * c.cp * c.tp / c.ep, 1.0)


@remembered
def stage_expert_params(c: Case) -> Floats:
    """Return the routed parameters of one stage on one rank."""
    return expert_params(c) * (c.moe_layers / c.pp + c.predict_layers)


def owned_params(c: Case) -> Floats:
    """Return the parameters whose optimizer state one rank owns."""
    # HSDP shards inside a group and keeps whole copies between groups; otherwise the group is all replicas.
    ranks = pick(c.sharded_state > 0, c.shard_ranks, 1.0)
    expert_ranks = pick(c.sharded_state > 0, expert_holders(c), 1.0)
    return stage_params(c) / ranks + stage_expert_params(c) / expert_ranks
