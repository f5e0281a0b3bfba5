"""The price of one step: layers, pipeline, and what of the communication stays exposed. All in columns.

    cost = step_cost(case, constants)
    cost.total, cost.exposed                # seconds; arrays where the case has arrays

Everything is closed form, so thousands of configurations cost as much as one, and one by one they get the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.sim.step.arithmetic.kernels import attention_s, gemm_s, memory_s
from syncline.sim.step.arithmetic.layer import LayerTime, dense_layer, head_s, mixer_part
from syncline.sim.step.arithmetic.params import (
    expert_holders,
    layer_params,
    owned_params,
    stage_expert_params,
    stage_params,
)
from syncline.sim.step.case import Case, Floats, anywhere, pick
from syncline.sim.step.constants import Constants
from syncline.sim.step.exchange import Buffer, Windows, extra_s
from syncline.sim.step.experts import ExpertTime, expert_params, expert_part
from syncline.sim.step.memory import kept_per_token
from syncline.sim.step.network import (
    Bools,
    GroupNetwork,
    head_exchange_s,
    inside,
    ring_attention_s,
    ring_of,
    send_s,
    stage_late_s,
    stage_line_Bps,
    switch_sum_s,
    tp_exchange_s,
)
from syncline.workload.stages import stage_layers


@dataclass(frozen=True, eq=False)
class StepCost:
    """Seconds of one step on the rank that sets its pace; the parts add up to `total`."""

    compute: Floats  # layers, head and loss, repeated forward included
    tp: Floats  # exposed tensor-parallel exchanges
    cp: Floats
    ep: Floats
    host: Floats  # waiting for the host: to route tokens, for activations that were offloaded
    fsdp: Floats  # exposed gathers and scatters, and the compute they slow
    dp: Floats  # exposed gradient and parameter exchange
    p2p: Floats
    bubble: Floats
    optimizer: Floats
    codec: Floats  # encoding and decoding gradients
    fixed: Floats  # per step, and stragglers of large groups
    total: Floats
    layer: LayerTime  # mean over layers, one micro-batch
    hiding: LayerTime  # the same with its waits while ports are free: what replicas' exchange hides behind
    head: tuple[Floats, Floats]
    tp_call: Floats  # one exchange, exposed or not
    dp_wire: Floats  # the whole gradient and parameter exchange, exposed or not
    fsdp_wire: Floats
    p2p_wire: Floats
    ep_call: Floats
    cp_call: Floats

    @property
    def exposed(self) -> Floats:
        """Communication that nothing hides."""
        return self.tp + self.cp + self.ep + self.fsdp + self.dp + self.p2p


def step_cost(c: Case, k: Constants) -> StepCost:
    """Return the price of a step in every column of a case."""
    experts = expert_part(c, k)
    layer = _launched(c, k, _mean_layer(c, k, experts))
    forward_head, backward_head = head_s(c, k)
    embedding = memory_s(c, k, 6 * c.tokens * c.hidden)
    head = forward_head + backward_head + embedding
    if anywhere(c.predict_layers > 0):  # a layer each on the last stage, what joins it to the embedding, and the head
        joined = gemm_s(c, k, c.tokens, c.hidden, 2 * c.hidden, 2.0, c.rate_gemm)
        head = head + c.predict_layers * (layer.total + 3 * joined + forward_head + backward_head)
    tp_call = tp_exchange_s(c, k)
    cp_call = pick(c.ulysses > 0, head_exchange_s(c, k), ring_attention_s(c, k))
    waits = _layer_waits(c, k, experts, (tp_call, cp_call), layer.total)
    host = c.moe_layers / c.layers * experts.host
    compute = _per_stage(c, layer.total, head)
    # The sums at a model's ends (`volumes`) are not priced apart: the fitted exposure of a layer's exchanges has them.
    paced = _per_stage(c, layer.total + waits.tp + waits.cp + waits.ep + host, head)
    per_stage = c.layers / c.pp
    stage = per_stage * (layer.total + waits.tp + waits.cp + waits.ep + host)
    bubble = (c.pp - 1) * stage / c.virtual * c.bubble_share
    p2p, p2p_wire = _point_to_point(c, k, paced, stage, stage * layer.behind / layer.total)
    hiding = _with_free_waits(c, layer, waits, host)
    fsdp, fsdp_wire = _sharded(c, k, hiding, head)
    dp, dp_wire = _replicated(c, k, hiding, per_stage)
    optimizer = c.state_bytes * owned_params(c) / c.hbm_Bps
    m = c.num_micro
    away = np.zeros(())
    if anywhere((c.offload_state > 0) | (c.offload_kept > 0)):
        optimizer, away = (
            optimizer + _state_away(c),
            m * _kept_away(c, per_stage * layer.forward, per_stage * layer.behind),
        )
    # What a layer waits for, scaled like its compute where the pace-setting stage has more than the mean of layers.
    share = (paced - compute) / np.maximum(waits.tp + waits.cp + waits.ep + host, 1e-30)
    parts = {name: m * share * value for name, value in (("tp", waits.tp), ("cp", waits.cp), ("ep", waits.ep))}
    doublings = np.log2(np.maximum(c.dp * c.cp * c.tp / c.domain, 1.0))
    busy = m * paced + bubble + p2p + fsdp + away
    fixed = np.minimum(k.held.step_s, k.held.step_share * (busy + optimizer))
    fixed = fixed + c.fsdp * k.held.per_doubling * doublings * m * paced + _slowest(c, k, m * paced)
    dp, dp_wire = _other_ways(c, k, (dp, dp_wire), per_stage * hiding.behind, busy + optimizer + fixed)
    codec = _coding(c)
    total = busy + dp + optimizer + fixed + codec
    return StepCost(
        compute=m * compute, tp=parts["tp"], cp=parts["cp"], ep=parts["ep"], host=m * share * host + away, fsdp=fsdp,
        dp=dp, p2p=p2p, bubble=bubble, optimizer=optimizer, codec=codec, fixed=fixed, total=total, layer=layer,
        hiding=hiding, head=(forward_head, backward_head), tp_call=tp_call, dp_wire=dp_wire, fsdp_wire=fsdp_wire,
        p2p_wire=p2p_wire, ep_call=experts.exchange, cp_call=cp_call,
    )  # fmt: skip


#: Ranks whose spread the fitted constants hold already.
USUAL_RANKS = 64.0


def _slowest(c: Case, k: Constants, busy: Floats) -> Floats:
    """Return what a step waits for the slowest of its ranks, beyond what the slowest of 64 makes it wait."""
    more: Floats = np.maximum(c.tp * c.pp * c.dp * c.cp / USUAL_RANKS, 1.0)
    usual = float(np.sqrt(2 * np.log(USUAL_RANKS)))
    skew: Floats = k.held.skew * (np.sqrt(2 * np.log(USUAL_RANKS * more)) - usual) * busy
    return k.held.pause_s * np.log(more) + skew


#: One GPU's share of the host's memory rate; an Adam on the host reads and writes 28 bytes a parameter.
HOST_ADAM_Bps = 40e9


def _state_away(c: Case) -> Floats:
    """Return the time of an optimizer on the host: gradients down, the update, parameters up."""
    moved = (c.main_grad_bytes + c.weight_bytes) / c.host_Bps + 28.0 / HOST_ADAM_Bps
    return c.offload_state * owned_params(c) * moved


def _kept_away(c: Case, forward: Floats, backward: Floats) -> Floats:
    """Return what one micro-batch waits for activations on their way to the host and back, beyond its compute."""
    share = c.offload_kept
    each = share * c.tokens * kept_per_token(c)[0] * c.layers / c.pp / c.host_Bps
    # The layers that stay are the last ones: what leaves may still be on its way while those go back.
    return np.maximum(each - forward - (1 - share) * backward, 0.0) + np.maximum(each - backward, 0.0)


def _launched(c: Case, k: Constants, layer: LayerTime) -> LayerTime:
    """Return a layer that is never faster than the host launches it: small micro-batches of small models wait."""
    floor = pick(c.eager > 0, k.held.launch_eager_s, k.held.launch_fused_s)
    slower = np.maximum(floor / np.maximum(layer.total, 1e-12), 1.0)
    return LayerTime(layer.forward * slower, layer.backward * slower, layer.redo * slower)


def _mean_layer(c: Case, k: Constants, experts: ExpertTime) -> LayerTime:
    """Return the mean over the model's layers, some of which may have experts."""
    share = c.moe_layers / c.layers
    dense = dense_layer(c, k, c.ffn)
    hybrid = anywhere((c.attention_share < 1) | (c.mixer_params > 0) | (c.ffn_share < 1))
    if not anywhere(share > 0) and not hybrid:
        return dense
    bare = dense_layer(c, k, np.zeros(()))
    rich = experts.layer
    if hybrid:
        mixed, blocks = mixer_part(c, k), c.ffn_share - share
        return LayerTime(
            c.attention_share * bare.forward + blocks * (dense.forward - bare.forward) + share * rich.forward
            + mixed.forward,
            c.attention_share * bare.backward + blocks * (dense.backward - bare.backward) + share * rich.backward
            + mixed.backward,
            c.attention_share * bare.redo + blocks * (dense.redo - bare.redo) + share * rich.redo + mixed.redo,
        )  # fmt: skip
    return LayerTime(
        (1 - share) * dense.forward + share * (bare.forward + rich.forward),
        (1 - share) * dense.backward + share * (bare.backward + rich.backward),
        (1 - share) * dense.redo + share * (bare.redo + rich.redo),
    )


@dataclass(frozen=True, eq=False)
class _Waits:
    """Exposed communication of one layer and micro-batch."""

    tp: Floats
    cp: Floats
    ep: Floats


def _layer_waits(c: Case, k: Constants, experts: ExpertTime, calls_s: tuple[Floats, Floats], compute: Floats) -> _Waits:
    tp_call, cp_call = calls_s
    share = c.moe_layers / c.layers
    # Forward 2, backward 2; where the experts are not split over the TP ranks a layer with experts has only those of
    # its attention.
    calls = (4 + 2 * c.redo_tp) * ((c.mixing_share + c.ffn_share - share) / 2)
    tp = calls * tp_call * pick(c.tp_overlap > 0, k.fitted.exposed_tp, 1.0)
    core, core_back = attention_s(c, k)
    ring = np.maximum(cp_call - core, 0.0) * (1 + c.redo_tp) + np.maximum(2 * cp_call - core_back, 0.0)
    # Attention needs all of an exchange before it starts, so nothing hides Ulysses.
    cp = c.attention_share * pick(c.ulysses > 0, cp_call * (3 + c.redo_tp), ring)
    # What hides does so behind the layer's compute, and no more of it than there is: over a thin line next to nothing.
    ep = share * (4 + 2 * c.redo_tp) * experts.exchange
    ep = ep - np.minimum(ep * (1 - k.fitted.exposed_ep * c.ep_exposed), compute)
    return _Waits(tp, cp, ep)


def _with_free_waits(c: Case, layer: LayerTime, waits: _Waits, host: Floats) -> LayerTime:
    """Return a layer with its waits for scale-up links and the host: replicas exchange over ports meanwhile.

    Groups that leave a domain need the ports themselves, and replicas of one domain its links. The head hides nothing:
    its gradients are the first that can be sent, and its parameters the last that are needed.
    """
    replicas = pick(c.fsdp > 0, c.shard_ranks, c.dp * c.cp)
    leaves = inside(c, replicas, c.tp) < replicas
    groups = ((waits.tp, c.tp, np.ones(())), (waits.cp, c.cp, c.tp), (waits.ep, c.ep, np.ones(())))
    tp, cp, ep = (pick(leaves & (inside(c, ranks, stride) >= ranks), wait, 0.0) for wait, ranks, stride in groups)
    host = pick(leaves, host, 0.0)
    forward = (tp + ep) / (2 + c.redo_tp) + (cp + host) / 3
    return LayerTime(layer.forward + forward, layer.backward + tp + cp + ep + host - forward, layer.redo)


def _per_stage(c: Case, layer: Floats, head: Floats) -> Floats:
    """Return the time of one micro-batch on the stage that sets the pace."""
    first, middle, last = stage_layers(c.layers, c.pp, c.even_head, c.head_layers)
    others = pick(c.pp > 2, np.maximum(first, middle), first) * layer
    return pick(c.pp > 1, np.maximum(others, last * layer + head), c.layers * layer + head)


def _point_to_point(c: Case, k: Constants, paced: Floats, stage: Floats, behind: Floats) -> tuple[Floats, Floats]:
    """Return exposed and whole time of the activations between stages, per step.

    Of one micro-batch the slowest stage takes `paced`, those without the head `stage`, of it `behind` to go back.
    """
    busy = c.num_micro * paced
    size = 2 * c.tokens * c.hidden / pick(c.p2p_sliced > 0, c.tp, 1.0)
    once = send_s(c, k, size, c.laid_send_Bps) if anywhere(c.pp > 1) else np.zeros(())
    wire = pick(c.pp > 1, 2 * c.num_micro * c.virtual * once, 0.0)
    # What hides behind compute still has to pass: chunks come back from the last stage to the first the same way.
    passes = c.num_micro * (2 * c.virtual - 1) * once
    exposed = pick(c.pp > 1, np.maximum(wire * c.p2p_exposed, passes - busy), 0.0)
    line = stage_line_Bps(c)
    if not anywhere(line < np.inf):
        return exposed, wire
    # Stages on different sites: the line between them carries both ways at once beside all compute, and no faster.
    late = stage_late_s(c, c.site_s + c.p2p_exposed * once, paced, stage, behind)
    return pick(line < np.inf, np.maximum(late, passes - busy), exposed), wire


def _sharded(c: Case, k: Constants, hiding: LayerTime, head: Floats) -> tuple[Floats, Floats]:
    """Return exposed (with slowed compute) and whole time of FSDP's gathers and scatters, per step."""
    if not anywhere(c.fsdp > 0):
        return np.zeros(()), np.zeros(())
    ranks, stride = c.shard_ranks, c.tp
    size = layer_params(c)
    ring = ring_of(c, k, ranks, stride, c.laid_data_Bps)
    gather = ring.gather_s(c.param_bytes * size)
    shrunk = c.wire_share * pick(ring.inside < ranks, c.nic_share, 1.0)
    scatter = ring.scatter_s(c.grad_bytes * shrunk * size)
    # Routed experts that several ranks hold alike are sharded over those, a mean layer's part of them at a time.
    holders, routed = expert_holders(c), expert_params(c) * c.moe_layers / c.layers
    spread = (holders > 1) & (routed > 0)
    among: Floats = np.zeros(())
    if anywhere(routed > 0):
        experts = ring_of(c, k, holders, c.ep, c.laid_holders_Bps)
        gather = gather + pick(spread, experts.gather_s(c.param_bytes * routed), 0.0)
        scatter = scatter + pick(spread, experts.scatter_s(c.grad_bytes * shrunk * routed), 0.0)
        among = pick(routed > 0, holders - experts.inside, 0.0)
    behind = gather * c.reshard + scatter
    exposed = np.maximum(gather - hiding.forward, 0.0) + np.maximum(behind - hiding.behind, 0.0)
    wire = gather + behind
    slowed = k.held.c_sm * (wire - exposed)
    # A compiler's ring waits for the slowest of its ranks beyond one domain; a library's price counts its hops itself.
    hops = pick(c.library > 0, 0.0, (2 + c.reshard) * k.held.ring_hop_s)
    slowed = slowed + hops * (ranks - ring.inside + among)
    ends = ring.gather_s((c.param_bytes + c.grad_bytes) * (c.embedding_params + c.head_params) / c.tp)
    first_and_last = gather + scatter + np.maximum(ends - head, 0.0)
    per_micro = c.layers * (exposed + slowed) + first_and_last
    replicas = c.dp * c.cp / ranks
    local = size * c.layers / ranks
    apart = ring_of(c, k, replicas, c.tp * ranks, c.laid_replicas_Bps)
    between = apart.sum_s(c.grad_bytes * c.wire_share * c.nic_share * local)
    hybrid = pick(replicas > 1, np.maximum(k.held.least_exposed * between, between - c.layers * hiding.behind), 0.0)
    # Every micro-batch's sums cross, unless ranks part for several steps.
    times = pick(c.sync_every > 1, 1 / c.sync_every, c.num_micro)
    hybrid, between = hybrid * times, between * times
    on = c.fsdp > 0
    whole = c.num_micro * (c.layers * wire + ends) + pick(replicas > 1, between, 0.0)
    return pick(on, c.num_micro * per_micro + hybrid, 0.0), pick(on, whole, 0.0)


def _replicated(c: Case, k: Constants, hiding: LayerTime, per_stage: Floats) -> tuple[Floats, Floats]:
    """Return exposed and whole time of the gradient (and parameter) exchange of replicas, per step."""
    if np.all(c.fsdp > 0):
        return np.zeros(()), np.zeros(())
    n, dense = c.dp * c.cp, stage_params(c)
    m, routed = expert_holders(c), stage_expert_params(c)
    sums = c.sharded_state == 0
    ring = ring_of(c, k, n, c.tp, c.laid_data_Bps)
    wire = c.grad_bytes * c.wire_share * pick(ring.inside < n, c.nic_share, 1.0)
    once, back = _halves(c, ring, sums, wire * dense, c.param_bytes * dense)
    if anywhere(routed > 0):
        experts = ring_of(c, k, m, c.ep, c.laid_holders_Bps)
        scattered, gathered = _halves(c, experts, sums, wire * routed, c.param_bytes * routed)
        once = once + scattered * (routed > 0)
        back = back + gathered * (routed > 0)
    back = pick(c.sharded_state > 0, back, once)
    least = k.held.least_exposed
    hidden = _hidden(c, k, once, per_stage * hiding.behind)
    # A plain all-reduce hides both its halves behind the backward; gathered parameters hide behind the forward.
    hidden = hidden + _hidden(c, k, back, pick(c.sharded_state > 0, hiding.forward, 0.0) * per_stage)
    both = 2 * once
    if anywhere(c.reduce_bytes > 0):
        both = np.minimum(both, switch_sum_s(c, k, wire * (dense + routed), ring))
        once = pick((c.sharded_state > 0) | (c.reduce_bytes == 0), once, both / 2)
        back = pick(c.sharded_state > 0, back, once)
    all_reduce = _hidden(c, k, both, per_stage * hiding.behind)
    hidden = pick(c.sharded_state > 0, hidden, all_reduce)
    exposed = pick(c.dp_overlap > 0, hidden, once + back) / c.sync_every
    # Reduced after every micro-batch: each scatter hides behind one backward, and slows it.
    each = np.maximum(once - per_stage * hiding.behind, 0.0) + k.held.c_sm * np.minimum(once, per_stage * hiding.behind)
    # ZeRO 2 does so with all but the last micro-batch, whose exchange was counted above.
    more = pick(c.shard_params > 0, c.num_micro + c.pp - 1, (c.num_micro > 1) * (c.num_micro + c.pp - 2))
    each = pick(c.scatter_each > 0, more * each, 0.0)
    on = (c.fsdp == 0) & (n > 1)
    times = pick(c.scatter_each > 0, c.num_micro, 1.0)
    whole = once * times + back
    extra = times * extra_s(c, k, exchanged(c), windows_of(c, hiding)) / c.sync_every
    whole = whole / c.sync_every + extra
    if anywhere((c.sync_every > 1) & (c.cp > 1)):  # the ranks of one sequence never part
        near = pick(c.sync_every > 1, ring_of(c, k, c.cp, c.tp, np.zeros(())).sum_s(wire * dense), 0.0)
        exposed = exposed + np.maximum(least * near, near - per_stage * hiding.behind)
        whole = whole + near
    return pick(on, exposed + each + extra, 0.0), pick(on, whole, 0.0)


def _halves(c: Case, ring: GroupNetwork, sums: Bools, grad: Floats, param: Floats) -> tuple[Floats, Floats]:
    """Return the two halves of replicas' exchange: scatter and gather, or those of an all-reduce where `sums`."""
    if not anywhere(sums):
        return ring.scatter_s(grad), ring.gather_s(param)
    half = ring.sum_s(grad) / 2
    if np.all(sums):
        return half, half
    return pick(sums, half, ring.scatter_s(grad)), pick(sums, half, ring.gather_s(param))


def _hidden(c: Case, k: Constants, exchange: Floats, stage: Floats) -> Floats:
    """Return what of an exchange nothing hides, where a stage computes for `stage` seconds a micro-batch.

    A stage of several chunks finishes them one after another: its last pp micro-batches go backward through the last
    chunk, then through the one before. The gradients of a chunk are on their way meanwhile, those of the first chunk
    only behind the last micro-batch's own backward. Parameters are gathered in the same order before the forward.
    """
    least = k.held.least_exposed * exchange
    one, chunk = np.maximum(least, exchange - stage), stage / c.virtual
    if not anywhere((c.virtual > 1) & (c.pp > 1)):
        return one
    window = (np.minimum(c.pp, c.num_micro) * (c.virtual - 1) + 1) * chunk
    last = exchange / c.virtual - chunk
    several = np.minimum(np.maximum(np.maximum(least, exchange - window), last), one)
    # What those further micro-batches hide slows them, as gathers slow the compute beside them.
    return pick((c.virtual > 1) & (c.pp > 1), several + k.held.c_sm * (one - several), one)


def _other_ways(
    c: Case, k: Constants, plain: tuple[Floats, Floats], window: Floats, busy: Floats
) -> tuple[Floats, Floats]:
    """Return exposed and whole time of the exchange, where servers or stale gradients take the all-reduce's place."""
    exposed, wire = plain
    if anywhere(c.served_ports > 0):
        # All replicas push to the servers and pull from them: the servers' ports carry everything.
        size = (c.grad_bytes * c.wire_share + c.param_bytes) * (stage_params(c) + stage_expert_params(c))
        served = np.maximum(c.served_ports, 1.0) * k.fitted.e_net * c.nic_Bps
        moved = c.dp * c.tp * c.pp * size / served
        on = (c.served_ports > 0) & (c.dp > 1)
        exposed = pick(on, np.maximum(k.held.least_exposed * moved, moved - window), exposed)
        wire = pick(on, moved, wire)
    # However late gradients may be, every step's still have to pass: a step is as long as its exchange.
    return pick(c.stale > 0, np.maximum(wire - busy, 0.0), exposed), wire


def _coding(c: Case) -> Floats:
    """Return the time of encoding and decoding, read and written at both ends on the device, per step."""
    often = (c.fsdp > 0) | (c.scatter_each > 0)
    times = pick(often, c.num_micro, 1.0 / c.sync_every)
    size = 2 * 6.0 * (stage_params(c) + stage_expert_params(c))
    return pick(c.dp * c.cp > 1, c.encoded * times * size / c.hbm_Bps, 0.0)


def exchanged(c: Case) -> tuple[Buffer, ...]:
    """Return what replicas exchange in a step: their parameters, and the experts that several ranks hold alike."""
    wire, dense, routed = c.grad_bytes * c.wire_share, stage_params(c), stage_expert_params(c)
    plain = Buffer(wire * dense, c.param_bytes * dense, c.dp * c.cp, c.tp, c.laid_data_Bps)
    if not anywhere(routed > 0):
        return (plain,)
    return plain, Buffer(wire * routed, c.param_bytes * routed, expert_holders(c), c.ep, c.laid_holders_Bps)


def windows_of(c: Case, hiding: LayerTime) -> Windows:
    """Return what of a stage its exchange can hide behind."""
    return Windows(c.layers / c.pp * hiding.behind, c.layers / c.pp * hiding.forward)
