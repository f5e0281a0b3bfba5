"""How many bytes each kind of parallelism sends: per step and GPU, with the formula and where the graph counts it.

Bytes are what one rank sends (as many arrive): a ring all-reduce of S bytes over n ranks sends 2 (n-1)/n S, a gather or
scatter (n-1)/n S, an all-to-all (n-1)/n S.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from syncline.codec.names import PLAIN, canonical, scheme
from syncline.errors import CodecError, DescriptionError
from syncline.workload.adapters import adapter_share
from syncline.workload.job import Job
from syncline.workload.layer_list import LayerList
from syncline.workload.shape import Shape
from syncline.workload.software import MEGATRON_LIKE, Facts, facts_of


@dataclass(frozen=True)
class Volume:
    """One kind of traffic: bytes one rank sends in one step, in how many calls, over which axis."""

    kind: str
    axis: str
    collective: str
    ranks: int
    size_bytes: float
    calls: float
    formula: str
    where: str


@cache
def wire_share(codec: str, width: float) -> float:
    """Return bytes on the wire per byte of a gradient of `width` bytes an element, as the runtime's codec sends them.

    Low rank is that of square matrices of 2,048 rows.
    """
    try:
        name = canonical(codec)
    except CodecError as error:
        raise DescriptionError(error.message, detail=error.detail, hint=error.hint) from None
    return 1.0 if name == PLAIN else min(1.0, 4 / width * scheme(name).price().wire_ratio)


def volumes(job: Job) -> list[Volume]:
    """Return every kind of traffic of a job whose `dp` is known."""
    facts = facts_of(job)
    if isinstance(job.model, LayerList):
        return _layer_volumes(job, job.model, facts)
    found = [
        *_tensor(job, job.model, facts), *_context(job, job.model), *_expert(job, job.model, facts),
        *_pipeline(job, job.model, facts), *_data(job, job.model, facts),
    ]  # fmt: skip
    return [volume for volume in found if volume.size_bytes > 0]


def unpriced_volumes(job: Job) -> list[Volume]:
    """Return what a rank sends that takes no time in the price: hidden behind products, or once a step and small."""
    facts, shape, split = facts_of(job), job.model, job.parallel
    if isinstance(shape, LayerList):
        return []
    found = []
    if facts.sequence_parallel and facts.framework in MEGATRON_LIKE and split.tp > 1:
        # Inputs of products: a layer's mixer and its feed-forward block, unless that has experts, and the head.
        calls = (shape.mixing_layers + shape.dense_layers + 1) / split.pp * job.num_micro
        size = (split.tp - 1) / split.tp * 2 * _tokens(job) * shape.hidden
        formula = "(tp-1)/tp x 2 B x tokens x hidden x (2 x layers + 1 end)/pp x micro-batches"
        where = "behind the products of the backward"
        found.append(Volume("gather again", "tp", "all-gather", split.tp, calls * size, calls, formula, where))
    if shape.tied and split.pp > 1:
        size = facts.main_grad_bytes * shape.vocab * shape.hidden / split.tp
        formula, where = "gradient bytes x vocabulary x hidden / tp", "first and last stage, after the last backward"
        found.append(Volume("embedding", "pp", "all-reduce", 2, size, 1.0, formula, where))
    return found


def _tokens(job: Job) -> float:
    return job.batch.micro * job.batch.sequence / job.parallel.cp


def _tensor(job: Job, shape: Shape, facts: Facts) -> list[Volume]:
    split = job.parallel
    if split.tp == 1:
        return []
    again = 1.0 if job.recompute == "full" else 0.0
    # Two of a layer's exchanges are its mixer's and two its feed-forward block's, unless that has experts.
    blocks = (shape.mixing_layers + shape.dense_layers) / 2
    # The ends of a model have one each: embedding (forward) and output layer (backward) split the vocabulary.
    calls = (blocks * (4 + 2 * again) + 2) / split.pp * job.num_micro
    size = 2 * (split.tp - 1) / split.tp * 2 * _tokens(job) * shape.hidden
    how = "all-gather + reduce-scatter" if facts.sequence_parallel else "all-reduce"
    formula = (
        "2 (tp-1)/tp x 2 B x tokens x hidden x ((2 forward + 2 backward [+ 2 repeated]) x layers + 2 ends)/pp"
        " x micro-batches"
    )
    return [Volume("tensor", "tp", how, split.tp, calls * size, calls, formula, "tp spans of every layer")]


def _context(job: Job, shape: Shape) -> list[Volume]:
    split = job.parallel
    if split.cp == 1:
        return []
    layers = shape.num_attention_layers / split.pp * job.num_micro
    again = float(job.recompute == "full")
    if split.context == "ulysses":
        width = (shape.heads + shape.num_kv_heads) * (shape.qk_size + shape.v_size)
        size = (3 + again) * (split.cp - 1) / split.cp * 2 * _tokens(job) * width / split.tp
        formula = "(cp-1)/cp x 2 B x tokens x (q, k, v and output widths)/tp x (3 [+ 1 repeated]) x layers/pp"
        formula, calls = formula + " x micro-batches", 2 * (3 + again) * layers
        return [Volume("context", "cp", "all-to-all", split.cp, layers * size, calls, formula, "cp spans of attention")]
    size = (
        (3 + again) * (shape.qk_size + shape.v_size) * shape.num_kv_heads / split.tp * _tokens(job) * (split.cp - 1) * 2
    )
    formula = "(cp-1) x 2 B x tokens x (key and value widths)/tp x (1 forward + 2 backward [+ 1 repeated])"
    formula, calls = formula + " x layers/pp x micro-batches", (3 + again) * layers
    return [Volume("context", "cp", "ring", split.cp, layers * size, calls, formula, "cp spans of attention")]


def _expert(job: Job, shape: Shape, facts: Facts) -> list[Volume]:
    split = job.parallel
    if split.ep == 1 or shape.moe is None:
        return []
    mine = _tokens(job) / (split.tp if facts.sequence_parallel else 1)
    again = 2.0 if job.recompute == "full" else 0.0
    calls = shape.moe_layers / split.pp * job.num_micro * (4 + again)
    size = (split.ep - 1) / split.ep * 2 * mine * shape.expert_hidden * shape.moe.top_k
    formula = (
        "(ep-1)/ep x 2 B x tokens x hidden x top_k x (dispatch, combine; both ways) x expert layers/pp x micro-batches"
    )
    return [Volume("expert", "ep", "all-to-all", split.ep, calls * size, calls, formula, "ep spans of expert layers")]


def _pipeline(job: Job, shape: Shape, facts: Facts) -> list[Volume]:
    split = job.parallel
    if split.pp == 1:
        return []
    slices = split.tp if facts.sliced_p2p else 1
    # A stage between others sends activations on and gradients back for every chunk; of two stages, each misses one.
    calls = float(job.num_micro * (2 * split.virtual - (split.pp == 2)))
    size = 2 * _tokens(job) * shape.hidden / slices
    formula = "2 B x tokens x hidden / tp x (activation + gradient) x micro-batches x chunks"
    return [Volume("pipeline", "pp", "send", split.pp, calls * size, calls, formula, "send spans between stages")]


def stage_parameters(job: Job, shape: Shape) -> tuple[float, float]:
    """Return parameters of the heaviest stage on one rank: those of every replica, and routed experts."""
    split = job.parallel
    further = shape.predict_layers * shape.predict_dense
    embedding = shape.embedding_params + shape.tower_params
    ends = embedding + shape.head_params + shape.final_params
    if split.pp > 1:
        ends = max(embedding, shape.head_params or shape.embedding_params)
    routed = (shape.moe_layers / split.pp + shape.predict_layers) * shape.expert_params / split.ep
    return (shape.replicated_params / split.pp + further + ends) / split.tp, routed


def exchanged_widths(job: Job, facts: Facts) -> tuple[float, float]:
    """Return bytes a parameter that replicas reduce, and that come back updated.

    Frozen weights have no gradients, and move only where they are sharded.
    """
    trained = adapter_share(job)
    wire = trained * facts.gradient_bytes * wire_share(job.sync.codec, facts.gradient_bytes)
    return wire, facts.parameter_bytes * (1.0 if job.parallel.sharded_params else trained)


def _data(job: Job, shape: Shape, facts: Facts) -> list[Volume]:
    split = job.parallel
    ranks = (split.dp or 1) * split.cp
    dense, routed = stage_parameters(job, shape)
    expert_ranks = max(1, ranks * split.tp // split.ep)
    wire, back = exchanged_widths(job, facts)
    if split.sharded_params and split.pp == 1:
        kept = root_parameters(job, shape)
        return [*_fsdp(job, facts, dense, kept, wire, ranks), *_fsdp_experts(job, facts, routed, wire, expert_ranks)]
    if job.sync.method == "parameter-server":
        size = wire * dense
        formula = "gradient bytes x parameters to the servers; as many parameter bytes come back"
        return [Volume("data", "dp", "push and pull", ranks, size, 2, formula, "push span after the backward")]
    every = job.sync.period
    # ZeRO 2 keeps a shard of the gradients only, so it scatters them after every micro-batch.
    scatters = job.num_micro if split.zero == "2" else 1
    out = [_reduce("data", dense, ranks, wire, back, split.sharded_state, every, scatters)]
    if every > 1 and split.cp > 1:  # the ranks of one sequence never part
        out.append(_reduce("data (context)", dense, split.cp, wire, back, False, 1))
    if routed:
        out.append(_reduce("data (experts)", routed, expert_ranks, wire, back, split.sharded_state, every, scatters))
    return [volume for volume in out if volume.ranks > 1]


def _reduce(
    kind: str, params: float, ranks: int, wire: float, back: float, sharded: bool, every: int, scatters: int = 1
) -> Volume:
    share = (ranks - 1) / ranks
    size = share * params * (scatters * wire + (back if sharded else wire)) / every
    how = "reduce-scatter + all-gather" if sharded else "all-reduce"
    formula = (
        "(n-1)/n x parameters of a rank x (gradient bytes + parameter bytes)"
        if sharded
        else ("2 (n-1)/n x parameters of a rank x gradient bytes")
    )
    if scatters > 1:
        formula = "(n-1)/n x parameters of a rank x (gradient bytes x micro-batches + parameter bytes)"
    if every > 1:
        formula += f" / {every} steps"
    return Volume(
        kind,
        "dp",
        how,
        ranks,
        size,
        (1 + scatters) / every,
        formula,
        "dp span beside the last backward and first forward",
    )


def root_parameters(job: Job, shape: Shape) -> float:
    """Return the parameters of a rank that stay gathered from forward to backward: PyTorch's FSDP keeps its root."""
    if job.parallel.zero == "3":
        return 0.0
    ends = shape.embedding_params + shape.tower_params + shape.head_params + shape.final_params
    return ends / job.parallel.tp


def _fsdp(job: Job, facts: Facts, params: float, kept: float, wire: float, ranks: int) -> list[Volume]:
    shard = job.parallel.shard_ranks
    gathers = 2 if facts.reshard else 1
    gathered = gathers * params - (gathers - 1) * kept
    size = (shard - 1) / shard * (gathered * facts.parameter_bytes + params * wire) * job.num_micro
    formula = "(n-1)/n x parameters of a rank x (gathers x parameter bytes + gradient bytes) x micro-batches"
    if gathers > 1 and kept:
        formula += "; embedding and output layer are gathered once"
    calls = (gathers + 1) * job.num_micro
    out = [
        Volume("data", "dp", "all-gather + reduce-scatter", shard, size, calls, formula, "fsdp spans of every layer")
    ]
    replicas = ranks // shard
    if replicas > 1:
        every = job.sync.period
        times = job.num_micro if every == 1 else 1 / every
        between = 2 * (replicas - 1) / replicas * params / shard * wire * times
        formula = "2 (r-1)/r x parameters / shard x gradient bytes"
        formula += f" / {every} steps" if every > 1 else " x micro-batches"
        out.append(Volume("data (replicas)", "dp", "all-reduce", replicas, between, times, formula,
                          "dp span after the last backward"))  # fmt: skip
    return out


def _fsdp_experts(job: Job, facts: Facts, routed: float, wire: float, holders: int) -> list[Volume]:
    """Return the gathering of routed experts over the ranks that hold the same ones; nothing where each is alone."""
    gathers = 2 if facts.reshard else 1
    size = (holders - 1) / holders * routed * (gathers * facts.parameter_bytes + wire) * job.num_micro
    formula = "(m-1)/m x routed parameters of a rank x (gathers x parameter bytes + gradient bytes) x micro-batches"
    where = "fsdp spans of every layer"
    calls = (gathers + 1) * job.num_micro
    return [Volume("data (experts)", "dp", "all-gather + reduce-scatter", holders, size, calls, formula, where)]


def _layer_volumes(job: Job, model: LayerList, facts: Facts) -> list[Volume]:
    ranks = job.parallel.dp or 1
    if ranks == 1:
        return []
    wire = facts.gradient_bytes * wire_share(job.sync.codec, facts.gradient_bytes)
    if job.parallel.sharded_params:
        each = 2 * facts.parameter_bytes + wire
        formula = "(n-1)/n x parameters x (2 x parameter bytes + gradient bytes)"
        where = "fsdp spans of every layer"
        size = (ranks - 1) / ranks * model.replicated_params * each
        out = [Volume("data", "dp", "all-gather + reduce-scatter", ranks, size, 3, formula, where)]
    else:
        out = [_reduce("data", model.replicated_params, ranks, wire, facts.parameter_bytes, False, job.sync.period)]
    samples = job.batch.global_ / ranks
    size = 2 * (ranks - 1) / ranks * samples * model.exchanged_elements * 2
    if size:
        formula = "(n-1)/n x 2 B x samples x table columns x (forward + backward)"
        out.append(Volume("tables", "dp", "all-to-all", ranks, size, 2, formula, "all-to-all spans of the tables"))
    return out
