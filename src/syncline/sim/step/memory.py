"""Memory of the fullest rank as frameworks allocate it: state, activations by schedule, logits, buffers, fragmentation.

In columns, like the price: a search asks both of thousands of configurations at once. Every stage of a pipeline is one
of three: the first (embedding, most micro-batches in flight), the second (no embedding, two fewer chunks in flight) and
the last (output layer and logits, fewest in flight). The fullest of them decides; `docs/method/memory.md` derives it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from syncline.sim.step.arithmetic.params import expert_holders, layer_params, predict_params
from syncline.sim.step.case import Case, Floats, anywhere, pick
from syncline.sim.step.experts import expert_params
from syncline.sim.uncertainty import chance_between, memory_spread
from syncline.workload.stages import stage_layers

#: CUDA context and loaded kernels (0.5 GiB on Hopper), cuBLAS and cuDNN workspaces (32 MiB a stream and more).
CONTEXT_BYTES = 0.7 * 2**30
#: Of one NCCL communicator: 16 to 24 channels with 4 MiB a connection (NCCL_BUFFSIZE) and buffers of LL and LL128.
COMMUNICATOR_BYTES = 0.3 * 2**30
#: What of a part's memory the driver leaves to processes: 79.1 GiB of an "80 GB" H100, as PyTorch's errors print it.
USABLE = 0.9885

#: Parts that follow from parameters and split alone; the others are known as well as published peaks agree with them.
COUNTED = ("parameters", "gradients", "optimizer", "buffers")
#: How likely a recommended layout must fit: the half of all peaks around the model's lies below the GPU's memory.
LIKELY = 0.75
#: Parameters of one bucket that Megatron reduces at once: at least 40 million.
BUCKET = 40e6


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


@dataclass(frozen=True, eq=False)
class StageShare:
    """What one stage holds: layers, parameters of its ends on one rank, and layers times micro-batches in flight."""

    layers: Floats
    ends: Floats
    in_flight: Floats
    embedded: Floats  # micro-batches whose embedding output is in flight too
    head: Floats  # 1 where it has the output layer
    routed: Floats  # of its layers, those with experts


def memory(c: Case) -> Memory:
    """Return the memory of the fullest rank in every column."""
    per_layer, routed = layer_params(c), expert_params(c) * c.moe_layers / c.layers
    kept, remade = kept_per_token(c)
    working = c.tokens * working_per_token(c)
    found = [_held(c, stage, per_layer, routed, kept, remade, working) for stage in stages(c)]
    parts: tuple[Floats, ...] = found[0]
    if len(found) > 1:
        totals = [sum(each) for each in found]
        fullest = np.maximum(np.maximum(totals[0], totals[1]), totals[2])
        parts = tuple(
            pick(totals[0] == fullest, first, pick(totals[1] == fullest, second, last))
            for first, second, last in zip(*found, strict=True)
        )
    parameters, gradients, optimizer, activations, logits = parts
    buffers = _buffers(c, per_layer + routed)
    fragmentation = c.fragmentation * (activations + logits)
    total = parameters + gradients + optimizer + activations + logits + buffers + fragmentation
    fits = (total <= USABLE * c.memory_bytes).astype(np.float64)
    return Memory(parameters, gradients, optimizer, activations, logits, buffers, fragmentation, total, fits)


def fit_chance(c: Case, held: Memory) -> Floats:
    """Return how likely the memory of the fullest rank suffices in every column: published peaks around the model's.

    A search keeps what is likely to fit (`LIKELY`); `StepResult.fit_chance` says the same of one step.
    """
    counted = sum((getattr(held, name) for name in COUNTED), np.zeros(()))
    ends = [memory_spread("megatron"), memory_spread("pytorch")]
    of_torch = c.torch_state > 0
    factors = [
        pick(of_torch, getattr(ends[1], name), getattr(ends[0], name))
        for name in ("low_90", "low_50", "high_50", "high_90")
    ]
    quantiles = [np.maximum(factor * held.total, counted) for factor in factors]
    return chance_between(quantiles, USABLE * c.memory_bytes)


Parts = tuple[Floats, Floats, Floats, Floats, Floats]


def _held(
    c: Case, stage: StageShare, per_layer: Floats, routed: Floats, kept: Floats, remade: Floats, working: Floats
) -> Parts:
    """Return parameters, gradients, optimizer state, activations and logits of one stage."""
    dense, experts = stage.layers * per_layer + stage.ends, stage.routed * expert_params(c)
    if anywhere(c.predict_layers > 0):
        further = stage.head * c.predict_layers
        dense, experts = dense + further * predict_params(c), experts + further * expert_params(c)
    ranks, expert_ranks = c.shard_ranks, expert_holders(c)
    sharded = dense / ranks + experts / expert_ranks
    whole = dense + experts
    layer = per_layer + pick(expert_ranks > 1, routed, 0.0)  # experts that every rank holds whole are not fetched
    # FSDP holds the layer in use and the one being fetched; with a pipeline, or where nothing is freed after the
    # forward, all that was gathered stays.
    stays = (c.pp > 1) | (c.reshard == 0)
    fetched = dense + pick(expert_ranks > 1, experts, 0.0)
    gathered = pick(c.pp > 1, whole, pick(stays, fetched, 2 * layer + stage.ends))
    split = c.shard_params > 0
    parameters = c.weight_bytes * pick(split, sharded + gathered, whole)
    gradients = c.main_grad_bytes * pick(c.shard_grads > 0, sharded, whole)
    # FSDP holds the whole gradient of what is being reduced: a layer, or the stage of a pipeline; ZeRO 2 a layer.
    reduced = pick(c.pp > 1, dense, layer)
    passing = c.grad_bytes * pick(split, reduced, pick(c.shard_grads > 0, layer, 0.0))
    owned = pick(c.sharded_state > 0, sharded, whole)
    # PyTorch's sharded optimizer keeps the fp32 parameter itself: no low-precision copy beside the master.
    optimizer = c.optimizer_bytes * owned - pick(split, c.weight_bytes * sharded, 0.0)
    optimizer = optimizer * (1 - c.offload_state)
    shared = pick(c.sequence_parallel > 0, c.tp, 1.0)
    # What is offloaded leaves two layers behind: the one in use and the one on its way.
    stored = (stage.in_flight + stage.head * c.predict_layers) * kept
    stored = pick(c.offload_kept > 0, np.minimum(stored, 2 * kept + (1 - c.offload_kept) * stored), stored)
    once = remade + stage.embedded * (2.0 + c.dropout) * c.hidden / shared
    activations = c.tokens * (stored + once)
    # The loss is gone before the layers' own backward begins.
    words = stage.head * (1 + c.predict_layers) * c.tokens * c.vocab / c.tp
    logits = c.logit_bytes * words
    plain = (parameters, gradients + passing, optimizer, activations + np.maximum(working - logits, 0.0), logits)
    if not anywhere((c.torch_state > 0) & (c.pp == 1)):
        return plain
    own = c.weight_bytes * pick(split, sharded, whole)
    kept_whole = pick(split & (c.reshard == 0), fetched, 0.0)
    held = _Held(
        own, gradients, passing, pick(split, layer, 0.0), kept_whole, c.tokens * stored, c.tokens * remade, working,
        words,
    )  # fmt: skip
    fullest = _torch_moment(c, stage, held)
    mine = (fullest[0], fullest[1], optimizer, fullest[2] + c.tokens * (once - remade), fullest[3])
    on = (c.torch_state > 0) & (c.pp == 1)
    return tuple(pick(on, one, other) for one, other in zip(mine, plain, strict=True))  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class _Held:
    """What a rank of PyTorch's holds in a step, in bytes; `layer` in parameters and `words` in logits."""

    own: Floats  # its parameters, or its shard of them
    gradients: Floats  # all of them
    passing: Floats  # what is being reduced
    layer: Floats  # of FSDP
    fetched: Floats  # parameters that stay gathered from the forward to their own backward
    stored: Floats  # activations of all layers
    remade: Floats
    working: Floats
    words: Floats


def _torch_moment(c: Case, stage: StageShare, h: _Held) -> tuple[Floats, Floats, Floats, Floats]:
    """Return parameters, gradients, activations and logits of the fullest moment of a step without a pipeline.

    Three can be it: the loss, whose own gradients come before any other; the backward of the last layers, with FSDP's
    root and two layers gathered (or all of them, where the forward freed none), the output layer's gradient, a layer's
    on its way and a quarter of the next one's; and the end of the backward, when all gradients are there and no
    activations. The script still holds its logits then.
    """
    split = c.shard_params > 0
    root = pick(split, stage.ends, 0.0)
    head = pick(split, pick(c.head_params > 0, c.head_params, c.embedding_params) / c.tp, 0.0)
    buckets = pick((c.dp * c.cp > 1) & (c.shard_grads == 0), c.main_grad_bytes * h.own / c.weight_bytes, 0.0)
    before = buckets + pick(c.num_micro > 1, h.gradients, 0.0)
    last = h.stored / np.maximum(c.layers, 1.0)
    two = h.own + c.weight_bytes * (root + 2 * h.layer)
    all_of_it = h.own + c.weight_bytes * np.maximum(h.fetched, root)
    most = np.maximum(two, all_of_it)
    begun = before + c.weight_bytes * (head + h.layer / 4) + h.passing
    moments = (
        (all_of_it, before, h.stored, c.logit_bytes * h.words),
        (most, begun, h.stored - pick(split, last, 0.0) + h.remade + h.working, 2.0 * h.words),
        (two, buckets + h.gradients + c.weight_bytes * root + h.passing, last + h.remade + h.working, 2.0 * h.words),
    )
    totals = [sum(each) for each in moments]
    fullest = np.maximum(np.maximum(totals[0], totals[1]), totals[2])
    return tuple(
        pick(totals[0] == fullest, loss, pick(totals[1] == fullest, begin, end))
        for loss, begin, end in zip(*moments, strict=True)
    )  # type: ignore[return-value]


def stages(c: Case) -> tuple[StageShare, ...]:
    """Return the stages that may be the fullest: one without a pipeline, else the first, the second and the last."""
    ends = (c.embedding_params + c.head_params) / c.tp
    one = np.ones(())
    if not anywhere(c.pp > 1):
        return (StageShare(c.layers, ends, c.layers, one, one, c.moe_layers),)
    first, middle, last = stage_layers(c.layers, c.pp, c.even_head, c.head_layers)
    m, v, pp = c.num_micro, c.virtual, c.pp
    gpipe, chunked = c.gpipe > 0, c.virtual > 1
    around = np.minimum(m, pp) * (v - 1) / v  # of chunks after the first, when those are interleaved

    def held(layers: Floats, behind: Floats, lead: Floats) -> Floats:
        """Layers in flight `behind` the first stage; `lead` is the slot that the embedding takes of the first chunk."""
        plain = pick(gpipe, m, np.minimum(m, np.maximum(pp - behind, 1)))
        slots = layers + lead
        loop = around * slots + np.minimum(m, np.maximum(2 * (pp - behind) - 1, 1)) * np.maximum(slots / v - lead, 0.0)
        return pick(chunked, loop, plain * layers)

    alone = c.pp == 1
    zero = np.zeros(())
    # Layers without experts come first (DeepSeek, Kimi, GLM) unless every second one is: then stages are alike.
    plain = c.ffn_share * c.layers - c.moe_layers
    leading = (c.ffn_share == 1) & (2 * plain < c.layers)
    share = c.moe_layers / c.layers
    begins = pick(alone, c.moe_layers, pick(leading, np.maximum(first - plain, 0.0), first * share))
    goes_on, ends_with = (pick(leading, layers, layers * share) for layers in (middle, last))
    head = pick(c.head_params > 0, c.head_params, c.embedding_params) / c.tp
    begun = pick(gpipe, m, np.minimum(m, pick(chunked, 2 * pp - 1, pp)))
    return (
        StageShare(
            pick(alone, c.layers, first), pick(alone, ends, c.embedding_params / c.tp),
            pick(alone, c.layers, held(first, zero, c.even_head)), pick(alone, 1.0, begun),
            alone.astype(np.float64), begins,
        ),
        StageShare(pick(pp > 2, middle, 0.0), zero, pick(pp > 2, held(middle, one, zero), 0.0), zero, zero,
              pick(pp > 2, goes_on, 0.0)),
        StageShare(pick(alone, 0.0, last), pick(alone, 0.0, head),
              pick(alone, 0.0, held(last, pp - 1, zero)), zero, pick(alone, 0.0, 1.0), pick(alone, 0.0, ends_with)),
    )  # fmt: skip


def outside(c: Case) -> Floats:
    """Return what no allocator of a framework reports: the context, workspaces and communicators."""
    groups: Floats = np.float64(1.0) + (c.tp > 1) + (c.pp > 1) + (c.dp * c.cp > 1) + (c.cp > 1) + (c.ep > 1)
    return CONTEXT_BYTES + COMMUNICATOR_BYTES * groups


def _buffers(c: Case, layer: Floats) -> Floats:
    """Return what lies outside of a framework's allocator, and buckets of gradients on their way."""
    sent = (c.dp * c.cp > 1) & (c.shard_params == 0)
    return outside(c) + pick(sent, c.main_grad_bytes * np.minimum(layer, BUCKET), 0.0)


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
