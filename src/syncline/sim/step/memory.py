"""Memory of the fullest rank: parameters, gradients, optimizer, activations by schedule, buffers, fragmentation.

In columns, like the price: a search asks both of thousands of configurations at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from syncline.sim.step.case import Case, Floats
from syncline.sim.step.cost import expert_holders, layer_params, owned_params, stage_expert_params, stage_params
from syncline.sim.step.experts import expert_params

#: CUDA context, cuBLAS and cuDNN workspaces, NCCL channels of a few communicators; nvidia-smi of small jobs.
FIXED_BYTES = 2.0 * 2**30
#: Caching allocators leave holes; peak reserved over peak allocated is a few per cent.
FRAGMENTATION = 0.04
#: What of a part's memory the driver leaves to a process.
USABLE = 0.985


@dataclass(frozen=True, eq=False)
class Memory:
    """Bytes on the fullest rank; the parts add up to `total`."""

    parameters: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    buffers: Floats
    fragmentation: Floats
    total: Floats
    fits: Floats  # 1 where it does

    def as_dict(self) -> dict[str, float]:
        """Return the parts of a single case in bytes."""
        return {f.name: float(getattr(self, f.name)) for f in fields(Memory) if f.name != "fits"}


def memory(c: Case) -> Memory:
    """Return the memory of the fullest rank in every column."""
    dense, routed = stage_params(c), stage_expert_params(c)
    ranks, expert_ranks = c.shard_ranks, expert_holders(c)
    sharded = dense / ranks + routed / expert_ranks
    held = np.where(c.shard_params > 0, sharded, dense + routed)
    # Layers in flight: the one in use and the one being fetched; with a pipeline the stage stays gathered.
    fetched = np.where(expert_ranks > 1, expert_params(c), 0.0)  # experts that every rank holds whole are not fetched
    ends = (c.embedding_params + c.head_params) / c.tp
    gathered = np.where(c.pp > 1, dense + routed, 2 * (layer_params(c) + fetched) + ends)
    parameters = c.weight_bytes * (held + np.where(c.shard_params > 0, gathered, 0.0))
    gradients = c.main_grad_bytes * np.where(c.shard_grads > 0, sharded, dense + routed)
    # FSDP holds the whole gradient of what is being reduced: a layer, or the stage of a pipeline.
    layer = layer_params(c) + fetched
    whole = np.where(c.pp > 1, dense, layer)
    gradients = gradients + np.where(c.shard_params > 0, c.grad_bytes * whole, 0.0)
    # PyTorch's sharded optimizer keeps the fp32 parameter itself: no low-precision copy beside the master.
    optimizer = c.optimizer_bytes * owned_params(c) - np.where(c.shard_params > 0, c.weight_bytes * sharded, 0.0)
    activations = activation_bytes(c)
    logits = np.where(c.pp > 1, 0.0, 8.0 * c.tokens * c.vocab / c.tp)
    buffers = FIXED_BYTES + 0.1 * gathered * (c.dp * c.cp > 1)
    # So does ZeRO 2 with a layer, which it scatters as soon as the backward is through.
    buffers = buffers + c.grad_bytes * layer * ((c.shard_grads > 0) & (c.shard_params == 0))
    moving = activations + logits
    fragmentation = FRAGMENTATION * moving
    total = parameters + gradients + optimizer + moving + buffers + fragmentation
    fits = (total <= USABLE * c.memory_bytes).astype(np.float64)
    return Memory(parameters, gradients, optimizer, activations, logits, buffers, fragmentation, total, fits)


def activation_bytes(c: Case) -> Floats:
    """Return what is kept of the forward for the backward, on the stage that keeps most."""
    shared = np.where(c.sequence_parallel > 0, c.tp, 1.0)
    share = c.moe_layers / c.layers
    # Per token: two normalisation inputs and two layer inputs of the hidden size, q, k, v and their output.
    hidden = 8.0 * c.hidden / shared
    attention = 2.0 * (c.heads * (c.qk_size + c.v_size) + c.kv_heads * (c.qk_size + c.v_size)) / c.tp
    scores = np.where((c.flash > 0) | (c.redo_attention > 0), 0.0, 5.0 * c.heads * c.sequence / c.tp)
    dense = 2.0 * (2 + c.gated) * c.ffn / c.tp
    visited = (
        c.top_k * (2.0 * c.hidden + 2.0 * (2 + c.gated) * c.expert_ffn) / np.where(c.sequence_parallel > 0, c.tp, 1.0)
    )
    rich = visited + 2.0 * (2 + c.gated) * c.shared_ffn / c.tp
    block = (1 - share) * dense + share * rich
    whole = hidden + attention + scores + block
    # What is repeated is not kept, except each layer's input, and one layer while it is being repeated.
    kept = whole - c.redo_gemm * (whole - 2.0 * c.hidden / shared)
    layers = c.layers / c.pp
    in_flight = np.where(c.gpipe > 0, c.num_micro, np.minimum(c.num_micro, c.pp * (1 + (c.pp - 1) / c.pp / c.virtual)))
    in_flight = np.where(c.virtual > 1, in_flight, np.where(c.gpipe > 0, c.num_micro, np.minimum(c.num_micro, c.pp)))
    stored = c.tokens * (kept * layers * np.where(c.pp > 1, in_flight, 1.0) + 2.0 * c.hidden / shared)
    return stored + np.where(c.redo_gemm > 0, c.tokens * (whole - kept), 0.0)
