"""The price of a step in columns against a plain twin: one configuration at a time, floats and ifs."""

from __future__ import annotations

import math
import random
from dataclasses import fields, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from syncline.fabric import load
from syncline.sim.step.arithmetic.kernels import attention_s, gemm_s, memory_s
from syncline.sim.step.arithmetic.layer import LayerTime, dense_layer, head_s, mixer_part
from syncline.sim.step.arithmetic.params import (
    expert_holders,
    layer_params,
    owned_params,
    predict_params,
    stage_expert_params,
    stage_params,
)
from syncline.sim.step.build import build_case
from syncline.sim.step.case import Case, stack
from syncline.sim.step.constants import default_constants
from syncline.sim.step.cost import (
    exchanged,
    step_cost,
)
from syncline.sim.step.exchange import Buffer, Windows, extra_s
from syncline.sim.step.experts import expert_params, expert_part
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.memory import kept_per_token
from syncline.sim.step.network import (
    head_exchange_s,
    inside,
    ring_attention_s,
    ring_of,
    send_s,
    stage_line_Bps,
    switch_sum_s,
    tp_exchange_s,
)
from syncline.workload.read_job import load_job

K = default_constants()
HELD, FITTED = K.held, K.fitted
PARTS = ("compute", "tp", "cp", "ep", "host", "fsdp", "dp", "p2p", "bubble", "optimizer", "codec", "fixed", "total",
         "tp_call", "dp_wire", "fsdp_wire", "p2p_wire", "ep_call", "cp_call", "exposed")  # fmt: skip
JOBS: dict[str, dict[str, Any]] = {
    "replicas": {"model": "llama3-8b", "parallel": {"tp": 2, "dp": 16, "zero": "1"}},
    "pipeline": {"model": "llama3-70b", "parallel": {"tp": 8, "pp": 4, "dp": 4, "zero": "1"}},
    "uneven": {"model": "llama3-8b", "parallel": {"pp": 3, "dp": 8}},
    "sharded": {"model": "llama3-8b", "parallel": {"dp": 64, "zero": "fsdp"}},
    "long": {"model": "llama3-8b", "parallel": {"tp": 2, "cp": 4, "dp": 4}},
    "experts": {"model": "mixtral-8x7b", "parallel": {"tp": 2, "ep": 4, "dp": 16, "zero": "1"}},
    "latent": {"model": "deepseek-v3", "parallel": {"pp": 16, "ep": 8, "dp": 8}},
    "recomputed": {"model": "mixtral-8x7b", "parallel": {"ep": 8, "dp": 16}, "recompute": "full"},
    "longer": {
        "model": "llama3-8b",
        "parallel": {"tp": 8, "cp": 4, "dp": 1},
        "batch": {"global": 2, "sequence": 65536},
    },
    "long pipeline": {"model": "llama3-70b", "parallel": {"tp": 4, "cp": 2, "pp": 4, "dp": 2}},
    "sharded experts": {"model": "mixtral-8x7b", "parallel": {"ep": 8, "dp": 64, "zero": "fsdp"}},
}
#: What two and more sites are.
SITES: dict[str, tuple[float, ...]] = {"site_gpus": (16.0, 64.0), "site_more": (8.0, 16.0),
                                       "site_Bps": (1e9, 4e10), "site_s": (0.0, 0.01), "staged": (1.0,)}  # fmt: skip
#: Columns that a draw may change, with what they may become; shares and switches that no one job has together.
DRAWN: dict[str, tuple[float, ...]] = {
    "attention_share": (1.0, 0.25), "ffn_share": (1.0, 0.8), "mixing_share": (1.0, 0.9), "mixer_params": (0.0, 3e6),
    "query_gate": (0.0, 1.0), "predict_layers": (0.0, 2.0), "head_params": (0.0, 5e8), "eager": (0.0, 1.0),
    "redo_tp": (0.0, 0.5), "tp_overlap": (0.0, 1.0), "ulysses": (0.0, 1.0), "ep_exposed": (0.5, 1.0),
    "even_head": (0.0, 1.0), "head_layers": (0.5, 3.0), "bubble_share": (1.0, 0.4),
    "virtual": (1.0, 2.0), "p2p_sliced": (0.0, 1.0),
    "p2p_exposed": (0.2, 1.0), "offload_state": (0.0, 1.0), "offload_kept": (0.0, 0.7, 1.0), "host_Bps": (2e10, 2e9),
    "sharded_state": (0.0, 1.0), "fsdp": (0.0, 0.0, 1.0), "reshard": (0.0, 1.0), "shard_ranks": (1.0, 4.0, 16.0),
    "dp_overlap": (0.0, 1.0, 1.0), "scatter_each": (0.0, 0.0, 1.0), "shard_params": (0.0, 1.0),
    "sync_every": (1.0, 2.0, 8.0), "wire_share": (1.0, 0.25), "encoded": (0.0, 1.0), "stale": (0.0, 0.0, 1.0),
    "served_ports": (0.0, 0.0, 8.0), "reduce_bytes": (0.0, 0.0, 1e6), "nic_share": (1.0, 0.5), "nic_Bps": (5e10, 1e9),
    "laid_data_Bps": (0.0, 3e9), "laid_holders_Bps": (0.0, 2e9), "laid_replicas_Bps": (0.0, 1e9),
    "laid_send_Bps": (0.0, 4e9), "laid_tensor_Bps": (0.0, 2e10),
    "algorithm": (0.0, 1.0, 2.0), "bucket_bytes": (0.0, 2.5e7),
    "num_micro": (1.0, 2.0, 16.0), "micro": (1.0, 4.0), "sequence": (512.0, 8192.0), "q_rank": (0.0, 1536.0),
}  # fmt: skip


@cache
def base(name: str) -> Case:
    machine = machine_from_fabric(load("h100-64-rail"))
    return build_case(load_job({"batch": {"global": 192, "sequence": 4096}, **JOBS[name]}), machine)


def drawn(seed: int) -> Case:
    """Return a job's case with about a third of its switches set as chance has it."""
    draw = random.Random(seed)
    case = base(list(JOBS)[seed % len(JOBS)])
    changed = {name: np.array(draw.choice(values)) for name, values in DRAWN.items() if draw.random() < 0.35}
    if seed % 5 == 0:
        changed |= {name: np.array(draw.choice(values)) for name, values in SITES.items()}
    return replace(case, **changed)


def one(c: Case) -> Any:
    """Return the columns as floats."""
    return SimpleNamespace(**{f.name: float(getattr(c, f.name)) for f in fields(Case)}, tokens=float(c.tokens))


def times(layer: Any) -> LayerTime:
    return LayerTime(*(np.array(float(part)) for part in (layer.forward, layer.backward, layer.redo)))


def params_twin(c: Case) -> dict[str, float]:
    """Return what one rank holds: of a layer, of a stage, of its routed experts, and what it updates."""
    o = one(c)
    if o.kv_rank == 0:
        queries = o.heads * o.qk_size * (2 if o.query_gate else 1)
        attention = o.hidden * queries + o.hidden * o.kv_heads * o.qk_size + o.hidden * o.kv_heads * o.v_size
    else:
        down = o.hidden * o.q_rank + o.hidden * o.kv_rank + o.hidden * o.rope_size
        queries = (o.q_rank or o.hidden) * o.heads * o.qk_size
        attention = down + queries + o.kv_rank * o.heads * ((o.qk_size - o.rope_size) + o.v_size)
    attention += o.heads * o.v_size * o.hidden
    routed_share = o.moe_layers / o.layers
    width = (o.ffn_share - routed_share) * o.ffn + routed_share * o.shared_ffn
    block = (3 if o.gated else 2) * o.hidden * width
    router, norms = routed_share * o.experts * o.hidden, 2 * o.hidden
    layer = (o.attention_share * attention + block + o.mixer_params) / o.tp + router + norms
    if o.pp == 1:
        ends = o.embedding_params + o.head_params
    else:
        ends = max(o.embedding_params, o.head_params or o.embedding_params)
    further = layer + 2 * o.hidden * o.hidden / o.tp
    stage = layer * o.layers / o.pp + ends / o.tp + o.predict_layers * further
    experts = float(expert_params(c)) * (o.moe_layers / o.pp + o.predict_layers)
    holders = max(o.dp * o.cp * o.tp / o.ep, 1.0)
    owned = stage / o.shard_ranks + experts / holders if o.sharded_state else stage + experts
    return {"layer": layer, "stage": stage, "experts": experts, "holders": holders, "owned": owned, "further": further}


def layer_twin(c: Case) -> LayerTime:
    """Return a mean layer: attention in some, a block in some, experts in some; not below the time to launch it."""
    o, parts = one(c), []
    share = o.moe_layers / o.layers
    dense, bare, rich = dense_layer(c, K, c.ffn), dense_layer(c, K, np.zeros(())), expert_part(c, K).layer
    several = o.attention_share < 1 or o.mixer_params > 0 or o.ffn_share < 1
    for name in ("forward", "backward", "redo"):
        a, b, r = (float(getattr(each, name)) for each in (bare, dense, rich))
        mixed = float(getattr(mixer_part(c, K), name)) if several else 0.0
        parts.append(o.attention_share * a + (o.ffn_share - share) * (b - a) + (share * r if share else 0.0) + mixed)
    floor = HELD.launch_eager_s if o.eager else HELD.launch_fused_s
    slower = max(floor / sum(parts), 1.0)
    return LayerTime(*(np.array(part * slower) for part in parts))


def layers_twin(layers: int, pp: int, head: float) -> list[int]:
    """Return the layers of every stage where they do not divide: of all ways the last one may be cut, the fastest."""

    def slowest(last: int) -> float:
        return max(math.ceil((layers - last) / (pp - 1)), last + head)

    last = min(range(min(1, layers // pp), math.ceil(layers / pp) + 1), key=lambda x: (slowest(x), -x))
    first, over = divmod(layers - last, pp - 1)
    return [first, *(first + (stage < over) for stage in range(pp - 2)), last]


def stage_twin(o: Any, layer: float, head: float) -> float:
    """Return the slowest stage of one micro-batch."""
    layers, pp = float(o.layers), float(o.pp)
    if pp == 1:
        return layers * layer + head
    if o.even_head:
        slots = (layers + 2) / pp
        return max((slots - (pp == 2)) * layer, slots * layer - layer + head)
    if layers % pp == 0:
        return layers / pp * layer + head
    *others, last = layers_twin(int(layers), int(pp), float(o.head_layers))
    return max(max(others) * layer, last * layer + head)


def late_twin(o: Any, way: float, paced: float, stage: float, behind: float) -> float:
    """Return what stages at different sites wait for what is on its way, round by round of their fixed order."""
    ranks, span = o.tp * o.cp * o.dp * o.pp, o.tp * o.cp * o.dp
    sites = 1 + math.ceil((ranks - o.site_gpus) / o.site_more)
    chunks = o.num_micro * o.virtual
    filled: float = 2 * (sites - 1) * way + (o.virtual - 1) * sites * way
    if o.gpipe:
        return filled
    pace = paced / o.virtual
    ahead = 1 if o.virtual == 1 else 2
    weights = stage * (1 - o.bubble_share) / 2

    def rounds(begun: float, takes: float) -> float:
        return float(max(chunks - begun, 0) * max(takes / begun - pace, 0))

    def there_and_back(lines: float, apart: float) -> float:
        own = (apart + 1) * stage if o.pp > sites else apart * stage + paced
        return rounds(ahead * apart + 1, 2 * lines * way + (own - weights) / o.virtual)

    straddled = o.pp > 2 and o.site_gpus % min(span, o.site_gpus) > 0
    late = there_and_back(2, 2) if straddled else there_and_back(1, 1)
    late = max(late, there_and_back(sites - 1, 1 + o.pp / sites * (sites - 2)))
    if o.virtual == 1:
        return filled + late
    again = (o.virtual - 1) * sites * way + o.pp * (behind * (1 - 1 / o.virtual) + pace)
    late = filled + max(late, rounds(o.virtual * o.pp, again))
    first = 2 * way * (o.virtual * sites - 1) + o.pp * stage
    whole = first * max(chunks / (2 * o.virtual * o.pp - 1), 1)
    return float(max(late, whole - chunks * pace - (o.pp - 1) * stage / o.virtual))


def between_stages(c: Case, paced: float, stage: float, behind: float) -> tuple[float, float]:
    o = one(c)
    size = 2 * o.tokens * o.hidden / (o.tp if o.p2p_sliced else 1.0)
    sends = 2 * o.num_micro * o.virtual
    if o.pp == 1:
        return 0.0, 0.0
    each = float(send_s(c, K, np.array(size), np.array(o.laid_send_Bps)))
    passes = (sends - o.num_micro) * each - o.num_micro * paced
    if float(stage_line_Bps(c)) < math.inf:
        way = o.site_s + o.p2p_exposed * each
        return max(late_twin(o, way, paced, stage, behind), passes), sends * each
    return max(o.p2p_exposed * sends * each, passes), sends * each


def ring(c: Case, ranks: float, stride: float, laid_Bps: float) -> Any:
    made = ring_of(c, K, np.array(ranks), np.array(stride), np.array(laid_Bps))
    priced = {"gather": made.gather_s, "scatter": made.scatter_s, "sum": made.sum_s}
    calls = {name: lambda size, take=take: float(take(np.array(size))) for name, take in priced.items()}
    return SimpleNamespace(inside=float(made.inside), of=made, **calls)


def sharded_twin(c: Case, layer: LayerTime, head: float) -> tuple[float, float]:
    """Return exposed and whole time of gathering every layer before use and scattering its gradient after."""
    o, held = one(c), params_twin(c)
    if not o.fsdp:
        return 0.0, 0.0
    around = ring(c, o.shard_ranks, o.tp, o.laid_data_Bps)
    shrunk = o.wire_share * (o.nic_share if around.inside < o.shard_ranks else 1.0)
    gather = around.gather(o.param_bytes * held["layer"])
    scatter = around.scatter(o.grad_bytes * shrunk * held["layer"])
    routed, beyond = float(expert_params(c)) * o.moe_layers / o.layers, o.shard_ranks - around.inside
    if routed:
        alike = ring(c, held["holders"], o.ep, o.laid_holders_Bps)
        beyond += held["holders"] - alike.inside
        if held["holders"] > 1:
            gather += alike.gather(o.param_bytes * routed)
            scatter += alike.scatter(o.grad_bytes * shrunk * routed)
    back = (gather if o.reshard else 0.0) + scatter
    exposed = max(gather - float(layer.forward), 0.0) + max(back - float(layer.behind), 0.0)
    hops = 0 if o.library else 3 if o.reshard else 2
    slowed = HELD.c_sm * (gather + back - exposed) + hops * HELD.ring_hop_s * beyond
    ends = around.gather((o.param_bytes + o.grad_bytes) * (o.embedding_params + o.head_params) / o.tp)
    step = o.num_micro * (o.layers * (exposed + slowed) + gather + scatter + max(ends - head, 0.0))
    wire = o.num_micro * (o.layers * (gather + back) + ends)
    replicas = o.dp * o.cp / o.shard_ranks
    if replicas > 1:
        own = held["layer"] * o.layers / o.shard_ranks
        between = ring(c, replicas, o.tp * o.shard_ranks, o.laid_replicas_Bps)
        sums = between.sum(o.grad_bytes * o.wire_share * o.nic_share * own)
        times = o.num_micro if o.sync_every == 1 else 1 / o.sync_every
        step += max(HELD.least_exposed * sums, sums - o.layers * float(layer.behind)) * times
        wire += sums * times
    return step, wire


def hidden_twin(o: Any, exchange: float, stage: float) -> float:
    """Return what of an exchange a stage's chunks do not hide, walking through them from the last to the first."""
    least = HELD.least_exposed * exchange
    plain = max(float(least), exchange - stage)
    if o.pp == 1 or o.virtual == 1:
        return plain
    clock = 0.0
    for _ in range(int(o.virtual) - 1):  # a chunk's last micro-batches, after which its exchange may start
        clock += min(o.pp, o.num_micro) * stage / o.virtual
    clock += stage / o.virtual
    late = min(max(exchange - clock, (exchange - stage) / o.virtual, least), plain)
    return float(late + HELD.c_sm * (plain - late))


def replicas_twin(c: Case, layer: LayerTime) -> tuple[float, float]:
    """Return exposed and whole time of summing gradients over the replicas, per step."""
    o, held = one(c), params_twin(c)
    n, stage = o.dp * o.cp, o.layers / o.pp
    if o.fsdp or n == 1:
        return 0.0, 0.0
    sums, backward, least = not o.sharded_state, stage * float(layer.behind), HELD.least_exposed
    around = ring(c, n, o.tp, o.laid_data_Bps)
    wire = o.grad_bytes * o.wire_share * (o.nic_share if around.inside < n else 1.0)
    once = around.sum(wire * held["stage"]) / 2 if sums else around.scatter(wire * held["stage"])
    parameters = around.gather(o.param_bytes * held["stage"])
    if held["experts"]:
        alike = ring(c, held["holders"], o.ep, o.laid_holders_Bps)
        once += alike.sum(wire * held["experts"]) / 2 if sums else alike.scatter(wire * held["experts"])
        parameters += alike.gather(o.param_bytes * held["experts"])
    if o.sharded_state:
        back = parameters
        hidden = hidden_twin(o, once, backward) + hidden_twin(o, back, stage * float(layer.forward))
    else:
        both = 2 * once
        if o.reduce_bytes:
            whole = np.array(wire * (held["stage"] + held["experts"]))
            both = min(both, float(switch_sum_s(c, K, whole, around.of)))
            once = both / 2
        back, hidden = once, hidden_twin(o, both, backward)
    exposed = (hidden if o.dp_overlap else once + back) / o.sync_every
    rounds = 1.0
    if o.scatter_each:
        rounds = o.num_micro
        each = max(once - backward, 0.0) + HELD.c_sm * min(once, backward)
        if o.shard_params:
            exposed += (o.num_micro + o.pp - 1) * each
        elif o.num_micro > 1:
            exposed += (o.num_micro + o.pp - 2) * each
    sent = o.grad_bytes * o.wire_share
    sizes = np.array(sent * held["stage"]), np.array(o.param_bytes * held["stage"])
    buffers = [Buffer(*sizes, np.array(n), c.tp, c.laid_data_Bps)]
    if held["experts"]:
        sizes = np.array(sent * held["experts"]), np.array(o.param_bytes * held["experts"])
        buffers.append(Buffer(*sizes, np.array(held["holders"]), c.ep, c.laid_holders_Bps))
    windows = Windows(np.array(backward), np.array(stage * float(layer.forward)))
    extra = rounds * float(extra_s(c, K, tuple(buffers), windows)) / o.sync_every
    whole_s = (rounds * once + back) / o.sync_every + extra
    if o.sync_every > 1 and o.cp > 1:
        near = ring(c, o.cp, o.tp, 0.0).sum(wire * held["stage"])
        exposed += max(least * near, near - backward)
        whole_s += near
    return exposed + extra, whole_s


def hiding_twin(c: Case, layer: LayerTime, tp: float, cp: float, ep: float, host: float) -> LayerTime:
    """Return a layer with its waits, those during which the ports of replicas in several domains are free."""
    o = one(c)

    def near(ranks: float, stride: float) -> bool:
        return float(inside(c, np.array(ranks), np.array(stride))) >= ranks

    if near(o.shard_ranks if o.fsdp else o.dp * o.cp, o.tp):
        return layer
    forward = backward = 0.0
    for wait, ranks, stride, part in (
        (tp, o.tp, 1.0, 2 / (4 + 2 * o.redo_tp)), (cp, o.cp, o.tp, 1 / 3), (ep, o.ep, 1.0, 2 / (4 + 2 * o.redo_tp)),
        (host, 1.0, 1.0, 1 / 3),
    ):  # fmt: skip
        if near(ranks, stride):
            forward, backward = forward + part * wait, backward + (1 - part) * wait
    return times(LayerTime(layer.forward + forward, layer.backward + backward, layer.redo))


def twin(c: Case) -> dict[str, float]:
    """Return every part of the price."""
    o, held, layer = one(c), params_twin(c), layer_twin(c)
    experts = expert_part(c, K)
    share, m, layer_s = o.moe_layers / o.layers, o.num_micro, float(layer.total)
    forward_head, backward_head = (float(part) for part in head_s(c, K))
    head = forward_head + backward_head + float(memory_s(c, K, np.array(6 * o.tokens * o.hidden)))
    if o.predict_layers:
        joined = float(gemm_s(c, K, c.tokens, c.hidden, 2 * c.hidden, 2.0, c.rate_gemm))
        head += o.predict_layers * (layer_s + 3 * joined + forward_head + backward_head)
    tp_call = float(tp_exchange_s(c, K))
    cp_call = float(head_exchange_s(c, K) if o.ulysses else ring_attention_s(c, K))
    core, core_back = (float(part) for part in attention_s(c, K))
    blocks = o.mixing_share + o.ffn_share - share  # one exchange forward and one backward around each
    tp = (2 + o.redo_tp) * blocks * tp_call * (FITTED.exposed_tp if o.tp_overlap else 1.0)
    if o.ulysses:
        cp = o.attention_share * (3 + o.redo_tp) * cp_call
    else:
        forward, backward = max(cp_call - core, 0.0), max(2 * cp_call - core_back, 0.0)
        cp = o.attention_share * (forward + o.redo_tp * forward + backward)
    ep = share * (4 + 2 * o.redo_tp) * float(experts.exchange) if share else 0.0
    ep -= min(ep * (1 - FITTED.exposed_ep * o.ep_exposed), layer_s)
    host = share * float(experts.host) if share else 0.0
    waits = tp + cp + ep + host
    compute, paced = stage_twin(o, layer_s, head), stage_twin(o, layer_s + waits, head)
    scale = (paced - compute) / waits if waits else 0.0
    bubble = (o.pp - 1) * o.layers / o.pp * (layer_s + waits) * o.bubble_share / o.virtual
    stage = o.layers / o.pp * (layer_s + waits)
    p2p, p2p_wire = between_stages(c, paced, stage, stage * (1 - float(layer.forward) / layer_s))
    hiding = hiding_twin(c, layer, tp, cp, ep, host)
    fsdp, fsdp_wire = sharded_twin(c, hiding, head)
    dp, dp_wire = replicas_twin(c, hiding)
    stage = o.layers / o.pp
    optimizer = o.state_bytes * held["owned"] / o.hbm_Bps
    if o.offload_state:
        optimizer += held["owned"] * ((o.main_grad_bytes + o.weight_bytes) / o.host_Bps + 28.0 / 40e9)
    away = 0.0
    if o.offload_kept:
        moved = o.offload_kept * o.tokens * float(kept_per_token(c)[0]) * stage / o.host_Bps
        behind = stage * float(layer.behind)
        out = moved - stage * float(layer.forward) - (1 - o.offload_kept) * behind
        away = m * (max(out, 0.0) + max(moved - behind, 0.0))
    ranks = o.tp * o.pp * o.dp * o.cp
    busy = m * paced + bubble + p2p + fsdp + away
    fixed = min(HELD.step_s, HELD.step_share * (busy + optimizer))
    if o.fsdp and o.dp * o.cp * o.tp > o.domain:
        fixed += HELD.per_doubling * math.log2(o.dp * o.cp * o.tp / o.domain) * m * paced
    if ranks > 64:
        skew = math.sqrt(2 * math.log(ranks)) - math.sqrt(2 * math.log(64))
        fixed += HELD.pause_s * math.log(ranks / 64) + HELD.skew * skew * m * paced
    if o.served_ports and o.dp > 1:
        size = (o.grad_bytes * o.wire_share + o.param_bytes) * (held["stage"] + held["experts"])
        dp_wire = o.dp * o.tp * o.pp * size / (o.served_ports * FITTED.e_net * o.nic_Bps)
        dp = max(HELD.least_exposed * dp_wire, dp_wire - stage * float(hiding.behind))
    if o.stale:
        dp = max(dp_wire - (busy + optimizer + fixed), 0.0)
    codec = 0.0
    if o.encoded and o.dp * o.cp > 1:
        often = m if o.fsdp or o.scatter_each else 1 / o.sync_every
        codec = often * 12.0 * (held["stage"] + held["experts"]) / o.hbm_Bps
    exposed = m * scale * (tp + cp + ep) + fsdp + dp + p2p
    return {
        "compute": m * compute, "tp": m * scale * tp, "cp": m * scale * cp, "ep": m * scale * ep, "fsdp": fsdp,
        "host": m * scale * host + away, "dp": dp, "p2p": p2p, "bubble": bubble, "optimizer": optimizer, "codec": codec,
        "fixed": fixed, "total": busy + dp + optimizer + fixed + codec, "tp_call": tp_call, "cp_call": cp_call,
        "ep_call": float(experts.exchange), "dp_wire": dp_wire, "fsdp_wire": fsdp_wire, "p2p_wire": p2p_wire,
        "exposed": exposed,
    }  # fmt: skip


@pytest.mark.parametrize("first", range(0, 160, 16))
def test_columns_say_what_the_twin_says(first: int) -> None:
    for seed in range(first, first + 16):
        case = drawn(seed)
        found = step_cost(case, K)
        assert {part: float(getattr(found, part)) for part in PARTS} == pytest.approx(twin(case), rel=1e-9), seed


def test_many_at_once_as_one_by_one() -> None:
    cases = [drawn(seed) for seed in range(70) if seed % 5]  # on one machine: without sites
    cases = [case for case in cases if case.mixing_share == 1]
    together, costs = step_cost(stack(cases), K), [step_cost(case, K) for case in cases]
    for part in PARTS:
        found = np.broadcast_to(getattr(together, part), len(cases))
        alone = [float(getattr(cost, part)) for cost in costs]
        assert found.tolist() == pytest.approx(alone, rel=1e-12), part


@pytest.mark.parametrize("name", JOBS)
def test_parameters_are_those_of_the_twin(name: str) -> None:
    for seed in range(3):
        case = base(name) if seed == 0 else drawn(list(JOBS).index(name) + len(JOBS) * seed)
        due = params_twin(case)
        found = {
            "layer": layer_params(case), "stage": stage_params(case), "experts": stage_expert_params(case),
            "holders": expert_holders(case), "owned": owned_params(case), "further": predict_params(case),
        }  # fmt: skip
        assert {part: float(value) for part, value in found.items()} == pytest.approx(due, rel=1e-12)
        buffers = exchanged(case)
        assert len(buffers) == (2 if due["experts"] else 1)
        assert float(buffers[-1].ranks) == pytest.approx(due["holders"] if due["experts"] else float(case.dp * case.cp))
