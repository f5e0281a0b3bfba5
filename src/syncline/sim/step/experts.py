"""A layer with experts: routed products, dispatch and combine, and the time the host spends on routing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.sim.step.arithmetic.kernels import gemm_s, memory_s
from syncline.sim.step.arithmetic.layer import LayerTime, block_products, elements, products_s
from syncline.sim.step.case import Case, Floats, anywhere, pick, remembered
from syncline.sim.step.constants import Constants
from syncline.sim.step.network import pairs_of


@dataclass(frozen=True, eq=False)
class ExpertTime:
    """Seconds of the expert part of one layer and micro-batch; `exchange` is one dispatch or combine."""

    layer: LayerTime
    exchange: Floats
    host: Floats


def expert_part(c: Case, k: Constants) -> ExpertTime:
    """Return what a layer with experts adds to its attention; zeros where the model has none."""
    has = c.experts > 0
    if not anywhere(has):  # most models: nothing to price
        none = np.zeros(())
        return ExpertTime(LayerTime(none, none, none), none, none)
    experts = np.maximum(c.experts, 1.0)
    local = np.maximum(experts / c.ep, 1.0)
    # Every rank of the EP group sends its share of tokens; routing is balanced, so each expert gets the mean. With
    # sequence parallelism (or experts spread over the TP ranks) a rank routes its own slice of the tokens.
    mine = c.tokens / pick(c.sequence_parallel > 0, c.tp, 1.0)
    per_expert = mine * c.top_k / local
    slow = np.maximum(per_expert, 1e-9) / (per_expert + k.fitted.half_speed_rows)
    one = np.ones(())
    forward, backward, last = products_s(
        c, k, block_products(c, c.expert_ffn * c.expert_hidden / c.hidden, one), per_expert, c.rate_gemm * slow, local
    )
    shared_f, shared_b, _ = products_s(c, k, block_products(c, c.shared_ffn, c.tp), c.tokens, c.rate_gemm)
    router = gemm_s(c, k, mine, pick(has, c.experts, 0.0), c.hidden, 4.0, c.rate_bf16)
    visited = mine * c.top_k * (c.expert_passes * c.expert_hidden + (2 + c.gated) * c.expert_ffn * (1 + c.fp8 / 3))
    # A bias is one pass more over each product's output; its gradient is one over the output's. That of the second
    # product is weighted by the router's probability, which is fused or not by release.
    biased = 2 * (1 + c.gated) * c.expert_ffn + c.bias_passes * c.expert_hidden
    visited = visited + mine * c.top_k * c.expert_biases * biased
    moved = memory_s(c, k, visited + c.tokens * elements(c, c.shared_ffn, attention=False))
    forward, backward = forward + shared_f + router + moved, backward + shared_b + 2 * router + 2 * moved
    redo = c.redo_gemm * (forward - pick(c.redo_last > 0, 0.0, last))
    time = LayerTime(pick(has, forward, 0.0), pick(has, backward, 0.0), pick(has, redo, 0.0))
    # Each local expert adds launches and bookkeeping; t_host is the time with 8 of them. Its six products are half of
    # what is launched: casts, or biases that are added expert by expert, are the other half.
    launched = local * pick((c.fp8 > 0) | (c.expert_biases > 0), 1.0, 0.5)
    host = k.fitted.t_host * c.host_share * (4 + launched) / 12
    return ExpertTime(time, pick(has & (c.ep > 1), exchange_s(c, k, mine), 0.0), pick(has, host, 0.0))


def exchange_s(c: Case, k: Constants, tokens: Floats) -> Floats:
    """Return the time of one dispatch (or combine).

    Between domains a token goes once to each that has some of its experts, and is spread there (DeepEP and its like,
    which is what is used across hosts); only a job that states an all-to-all sends a copy for every expert. Both are
    the all-to-all of equal parts that puts as many bytes on a port, and they run at the same time.
    """
    if not anywhere(c.ep > 1):
        return np.zeros(())
    between = pairs_of(c, k, c.ep, np.ones(()), c.laid_expert_Bps)
    within = pairs_of(c, k, between.inside, np.ones(()), np.zeros(()))
    domains = c.ep / between.inside
    size = 2 * tokens * c.expert_hidden
    # A token's experts fall on domains at random: of `domains`, this many distinct ones are visited.
    visited = pick(c.sent_apart > 0, c.top_k, domains * (1 - (1 - 1 / domains) ** c.top_k))
    copies = pick(c.dispatch_once > 0, c.ep * (1 - (1 - 1 / c.ep) ** c.top_k), c.top_k)
    return np.maximum(between.takes_s("all_to_all", size * visited), within.takes_s("all_to_all", size * copies))


@remembered
def expert_params(c: Case) -> Floats:
    """Return the routed parameters that one rank holds in one layer with experts."""
    return pick(c.experts > 0, c.experts / c.ep * (2 + c.gated) * c.expert_hidden * c.expert_ffn, 0.0)
