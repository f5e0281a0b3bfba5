"""One layer of a transformer on one rank: forward, backward and repeated forward, without communication."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.sim.step.arithmetic.kernels import ALIGNED, TILE, UNALIGNED, attention_s, gemm_s, memory_s
from syncline.sim.step.case import Case, Floats, pick
from syncline.sim.step.constants import Constants

Product = tuple[Floats, Floats]
"""Width and depth of a linear layer on one rank."""


@dataclass(frozen=True, eq=False)
class LayerTime:
    """Seconds of one layer and micro-batch."""

    forward: Floats
    backward: Floats
    redo: Floats

    @property
    def total(self) -> Floats:
        return self.forward + self.backward + self.redo

    @property
    def behind(self) -> Floats:
        """Backward with what it repeats."""
        return self.backward + self.redo


def attention_products(c: Case) -> list[Product]:
    """Return the linear layers around attention; the last is the output projection."""
    plain = c.kv_rank == 0
    width = (c.heads * (1 + c.query_gate) + c.kv_heads) * c.qk_size + c.kv_heads * c.v_size
    queries = pick(c.q_rank > 0, c.q_rank, c.hidden)
    nope = c.qk_size - c.rope_size
    return [
        (pick(plain, width / c.tp, 0.0), c.hidden),
        (pick(plain, 0.0, c.q_rank), c.hidden),
        (pick(plain, 0.0, c.heads * c.qk_size / c.tp), queries),
        (pick(plain, 0.0, c.kv_rank + c.rope_size), c.hidden),
        (pick(plain, 0.0, c.heads * (nope + c.v_size) / c.tp), c.kv_rank),
        (c.hidden, c.heads * c.v_size / c.tp),
    ]


def block_products(c: Case, ffn: Floats, tp: Floats) -> list[Product]:
    """Return the linear layers of a feed-forward block."""
    return [((1 + c.gated) * ffn / tp, pick(ffn > 0, c.hidden, 0.0)), (pick(ffn > 0, c.hidden, 0.0), ffn / tp)]


def products_s(
    c: Case, k: Constants, products: list[Product], tokens: Floats, rate: Floats, groups: Floats | float = 1.0
) -> tuple[Floats, Floats, Floats]:
    """Return forward, backward, and the last product's forward; `groups` products share the tokens (experts)."""
    forward, backward, last = np.zeros(()), np.zeros(()), np.zeros(())
    for width, depth in products:
        # Adapters of a stated rank do their part of the work, and have gradients of their own.
        last = (1 + c.adapters) * groups * gemm_s(c, k, tokens, width, depth, 2.0, rate)
        forward = forward + last
        backward = backward + (1 + 2 * c.adapters) * groups * gemm_s(c, k, tokens, depth, width, 2.0, rate)
        # Frozen weights need no gradient of their own.
        backward = backward + (1 - c.frozen) * groups * gemm_s(c, k, width, depth, tokens, c.wgrad_bytes, rate)
    return forward, backward, last


def elements(c: Case, ffn: Floats, attention: bool = True) -> Floats:
    """Return the elements that one token's memory-bound operations touch in one layer, forward."""
    shared = pick(c.sequence_parallel > 0, c.tp, 1.0)
    heads = c.heads * c.qk_size if attention else np.zeros(())
    plain = (11.0 * c.hidden / shared if attention else 0.0) + (4 * heads + (2 + c.gated) * ffn) / c.tp
    casts = (2.0 * c.hidden / shared if attention else 0.0) + (heads + ffn) / c.tp
    return plain + c.fp8 * casts + c.frozen * _adapted(c, ffn, attention)


def _adapted(c: Case, ffn: Floats, attention: bool) -> Floats:
    """Return what low-rank adapters on every projection touch: its input once more, its output twice for their sum."""
    width = (c.heads + c.kv_heads) * c.qk_size + c.kv_heads * c.v_size
    around = (c.hidden + 2 * width + c.heads * c.v_size + 2 * c.hidden) / c.tp if attention else np.zeros(())
    block = (c.hidden + 2 * (1 + c.gated) * ffn + ffn + 2 * c.hidden) / c.tp
    return around + np.where(ffn > 0, block, 0.0)


def written_out(c: Case, ffn: Floats) -> Floats:
    """Return the elements more that one token's layer touches where a gated block is written in single operators.

    An RMSNorm casts to fp32, squares, averages, scales, casts back and weighs: 36 bytes an element where a fused one
    reads and writes 4 (transformers LlamaRMSNorm, torchtitan before `nn.RMSNorm` had a kernel). Rotary positions are
    five operators on queries and keys, ten passes for two; a gate is two operators, five passes for three.
    """
    shared = pick(c.sequence_parallel > 0, c.tp, 1.0)
    turned = (c.heads + c.kv_heads) * c.qk_size
    more = 2 * 16.0 * c.hidden / shared + (8 * turned + 2 * ffn) / c.tp
    return pick((c.eager > 0) & (c.gated > 0), more, 0.0)


def dense_layer(c: Case, k: Constants, ffn: Floats) -> LayerTime:
    """Return a layer with attention and, where `ffn` is above 0, an ordinary feed-forward block."""
    products = attention_products(c) + block_products(c, ffn, c.tp)
    forward, backward, last = products_s(c, k, products, c.tokens, c.rate_gemm)
    core, core_back = attention_s(c, k)
    more = written_out(c, ffn)
    # What single operators move is counted, so the factor of eager code is not put on it again.
    moved = memory_s(c, k, c.tokens * (elements(c, ffn) + more)) / pick(more > 0, k.fitted.c_eag, 1.0)
    redone = c.redo_gemm * np.maximum(forward - pick(c.redo_last > 0, 0.0, last), 0.0)
    redo = redone + c.redo_attention * core + c.redo_memory * moved
    return LayerTime(forward + core + moved, backward + core_back + 2 * moved, redo)


def mixer_part(c: Case, k: Constants) -> LayerTime:
    """Return what mixes tokens without attention in a mean layer: its products, its recurrence, and passes over memory.

    Recurrences run in chunks, as products of small matrices at the speed of a flash kernel (Mamba 2, gated delta rule);
    their backward does 2.5 times the work, as attention's.
    """
    forward, backward, _ = products_s(c, k, [(c.mixer_params / c.hidden / c.tp, c.hidden)], c.tokens, c.rate_gemm)
    scan = c.tokens * c.mixer_flops / c.tp / (k.fitted.e_attn * c.rate_bf16 * c.kernel)
    shared = pick(c.sequence_parallel > 0, c.tp, 1.0)
    share = c.mixing_share - c.attention_share
    moved = memory_s(c, k, c.tokens * (8.0 * c.mixer_width / c.tp + 5.5 * share * c.hidden / shared))
    redo = c.redo_gemm * forward + c.redo_attention * scan + c.redo_memory * moved
    return LayerTime(forward + scan + moved, backward + 2.5 * scan + 2 * moved, redo)


def head_s(c: Case, k: Constants) -> tuple[Floats, Floats]:
    """Return forward and backward of the output layer and the loss, for one micro-batch."""
    width = pick(c.pads_vocab > 0, np.ceil(c.vocab / c.tp / TILE) * TILE, c.vocab / c.tp)
    rate = c.rate_bf16 * pick(np.mod(width, ALIGNED) == 0, 1.0, UNALIGNED)
    forward = gemm_s(c, k, c.tokens, width, c.hidden, 2.0, rate)
    backward = gemm_s(c, k, c.tokens, c.hidden, width, 2.0, rate)
    backward = backward + (1 - c.frozen) * gemm_s(c, k, width, c.hidden, c.tokens, c.wgrad_bytes, rate)
    # Logits are cast to fp32, reduced twice, and their gradient is written: 5 passes of 2 bytes forward, 5 back.
    passes = memory_s(c, k, 5 * c.tokens * width)
    return forward + passes, backward + passes
