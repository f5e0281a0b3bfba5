"""What a layer keeps of its forward for its backward, per token: tensors by name, as frameworks save them."""

from __future__ import annotations

import numpy as np

from syncline.sim.step.case import Case, Floats, pick


def kept_per_token(c: Case) -> tuple[Floats, Floats]:
    """Return the bytes of one token that a layer keeps for its backward, and what comes back while it is repeated."""
    shared = pick(c.sequence_parallel > 0, c.tp, 1.0)
    share = c.moe_layers / c.layers
    # Inputs and outputs of two normalisations; where there is dropout a mask of one byte after each block.
    normed = (c.mixing_share + c.ffn_share) / 2
    hidden = normed * (8.0 + 2.0 * c.dropout) * c.hidden / shared
    # Autocast: normalisations read fp32; uncompiled, each product of queries, keys, values (gate, up) casts for itself.
    hidden = hidden + c.autocast * normed * (4.0 + c.eager * (4.0 + 2.0 * c.gated)) * c.hidden / shared
    # Queries, keys, values and what attention returns; a flash kernel keeps a sum for each head instead of scores.
    attention = 2.0 * (c.heads * (1 + c.query_gate / 2) + c.kv_heads) * (c.qk_size + c.v_size) / c.tp
    unfused = (c.flash == 0) & (c.redo_attention == 0)
    scores = pick(unfused, (4.0 + c.dropout) * c.heads * c.sequence, 4.0 * c.heads * (c.flash > 0)) / c.tp
    widths = 2.0 * c.ffn_kept
    visited = c.top_k * (2.0 * c.expert_hidden + widths * c.expert_ffn) / shared
    block = (c.ffn_share - share) * widths * c.ffn / c.tp + share * (visited + widths * c.shared_ffn / c.tp)
    # Of other mixers: what enters the recurrence, its gate, and what it returns; states are made again chunk by chunk.
    mixed = 6.0 * c.mixer_width / c.tp
    whole = hidden + c.attention_share * (attention + scores) + mixed + block
    # What is repeated is not kept, except each layer's input, and one layer while it is being repeated.
    gone = c.redo_gemm * (whole - 2.0 * c.hidden / shared)
    return whole - gone, pick(c.redo_gemm > 0, whole - 2.0 * c.hidden / shared, 0.0)


def working_per_token(c: Case) -> Floats:
    """Return what one layer's backward needs besides: its gathered input with its gradient, and that of its block."""
    wide = np.maximum(c.ffn * (c.moe_layers < c.layers), c.shared_ffn)
    return 4.0 * c.hidden + 2.0 * (1 + c.gated) * wide / c.tp
