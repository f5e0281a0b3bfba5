"""A case: everything the cost of a step depends on, as columns of numbers.

One job on one machine is a case of plain numbers; a search stacks thousands of them (or replaces single columns by
arrays), and the same formulas price them all at once. Switches are 0 or 1, so that formulas multiply instead of
branching. Shares such as `redo_gemm` say how much of something happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Answer = TypeVar("Answer")


def pick(condition: Any, yes: Any, no: Any) -> Floats:
    """Return `np.where`, without the pass over all rows where a block has one condition for all of them."""
    if np.ndim(condition) == 0:
        chosen: Floats = np.asarray(yes if condition else no)
        return chosen
    rows: Floats = np.where(condition, yes, no)
    return rows


def anywhere(condition: Any) -> bool:
    """Return whether something holds in any row; most conditions hold in all rows or in none, and are one number."""
    return bool(condition) if np.ndim(condition) == 0 else bool(condition.any())


def remembered(function: Callable[[Case], Answer]) -> Callable[[Case], Answer]:
    """Make a function of a case remember its answer as long as the case lives."""
    name = f"_{function.__name__}"

    @wraps(function)
    def lookup(c: Case) -> Answer:
        known = vars(c)
        if name not in known:
            known[name] = function(c)
        found: Answer = known[name]
        return found

    return lookup


def _none() -> Floats:
    return np.zeros(())


@dataclass(frozen=True, eq=False)
class Case:
    """Columns; every field is a number or an array that broadcasts with the others."""

    # The model
    layers: Floats
    moe_layers: Floats
    hidden: Floats
    heads: Floats
    kv_heads: Floats
    qk_size: Floats
    v_size: Floats
    q_rank: Floats
    kv_rank: Floats
    rope_size: Floats
    ffn: Floats
    gated: Floats
    vocab: Floats
    span: Floats  # keys a query meets, mean over layers and positions
    experts: Floats
    top_k: Floats
    expert_ffn: Floats
    expert_hidden: Floats
    shared_ffn: Floats
    expert_biases: Floats  # 1: routed experts have biases, which grouped products do not add themselves
    embedding_params: Floats
    head_params: Floats
    # How it is split and fed
    tp: Floats
    pp: Floats
    dp: Floats
    cp: Floats
    ep: Floats
    virtual: Floats
    micro: Floats
    num_micro: Floats
    sequence: Floats
    sequence_parallel: Floats
    # What the run does
    redo_gemm: Floats  # share of the forward matrix products that the backward repeats
    redo_last: Floats  # 1 where the last product of a block is repeated too
    redo_attention: Floats
    redo_memory: Floats
    redo_tp: Floats  # share of the forward tensor-parallel exchanges that is repeated
    fp8: Floats  # passes over memory that casts cost, one fused pass a product = 1; 0 without casts
    flash: Floats
    kernel: Floats  # speed of the attention kernel, cuDNN on this part = 1
    triton: Floats  # 1: the kernel's speed is the fitted constant instead
    head64: Floats  # speed of the attention kernel at head size 64, 128 = 1
    eager: Floats
    wgrad_bytes: Floats  # bytes moved per element of a weight gradient as the product writes it
    grad_bytes: Floats
    param_bytes: Floats
    state_bytes: Floats  # bytes the optimizer moves per parameter it owns
    sharded_state: Floats
    frozen: Floats  # 1: the weights are frozen, only adapters are trained
    adapters: Floats  # work of adapters over that of the weights they stand beside; 0: lost in the rounding
    pads_vocab: Floats  # 1: every rank's part of the vocabulary is rounded up, as Megatron does
    tp_overlap: Floats
    fsdp: Floats  # 1: parameters are gathered layer by layer in every micro-batch
    reshard: Floats
    shard_ranks: Floats  # ranks over which FSDP shards; fewer than dp x cp is HSDP
    dp_overlap: Floats
    ulysses: Floats  # 1: context parallelism by all-to-all of heads instead of a ring
    p2p_sliced: Floats
    p2p_exposed: Floats
    bubble_share: Floats  # of the 1F1B bubble: 1 for 1F1B and GPipe, 1/3 for zero-bubble
    even_head: Floats  # 1: embedding and head count as layers when the pipeline is cut
    head_layers: Floats  # what the output layer weighs, in layers
    host_share: Floats  # of the host time that routing costs: 1, less without synchronisation or with CUDA graphs
    expert_passes: Floats  # over the hidden vector of a routed token, forward
    dispatch_once: Floats  # 1: a token goes once to each rank that has some of its experts
    sent_apart: Floats  # 1: and between domains once for each of its experts, not once to each domain
    bias_passes: Floats  # the same for the bias of the second product, where experts have biases
    ep_exposed: Floats  # of dispatch and combine, against the fitted share
    scatter_each: Floats  # 1: gradients are reduced after every micro-batch, although parameters stay gathered
    sync_every: Floats  # steps between synchronisations of the replicas
    algorithm: Floats  # of the gradient exchange, 1 on as `exchange.ALGORITHMS`; 0: the best
    bucket_bytes: Floats  # 0: the best
    wire_share: Floats  # bytes on the wire over bytes of the gradient, after a codec
    encoded: Floats  # 1: there is a codec
    stale: Floats  # 1: replicas go on while gradients of earlier steps travel
    served_ports: Floats  # NICs of the parameter servers; 0: there are none
    # What it keeps
    weight_bytes: Floats
    main_grad_bytes: Floats
    optimizer_bytes: Floats
    shard_grads: Floats
    shard_params: Floats
    gpipe: Floats
    logit_bytes: Floats  # of one token and word, while the loss is at its fullest
    torch_state: Floats  # 1: gradients are made by the backward and dropped after the step; DDP has buckets besides
    autocast: Floats  # 1: parameters and the residual stream are fp32, every product's input is cast
    dropout: Floats  # 1: masks are kept
    ffn_kept: Floats  # tensors of the block's width that are kept: 2 + gated, one less where the product is remade
    fragmentation: Floats  # share of what moves that the allocator loses
    offload_state: Floats  # 1: optimizer state lives on the host
    offload_kept: Floats  # share of the kept activations that waits on the host
    # The machine
    rate_gemm: Floats
    rate_bf16: Floats
    hbm_Bps: Floats
    num_sms: Floats
    nvlink_Bps: Floats
    mesh_peers: Floats  # GPUs that each has a link of its own to; 0: a switch joins them
    nic_Bps: Floats
    host_Bps: Floats  # to the memory of the host, one way
    domain: Floats
    hop_s: Floats  # latency of one exchange beyond the domain
    library: Floats  # number of what collectives are calls of (`sim/collective/columns.py`); 0: laid out by a compiler
    rack_gpus: Floats  # ranks that a rack, pod or site holds, and what leaves it; infinite: no limit
    rack_Bps: Floats
    pod_gpus: Floats
    pod_Bps: Floats
    rack_wide: Floats  # times its rate, for traffic to all other racks alike
    pod_wide: Floats
    site_gpus: Floats  # of the largest site
    site_more: Floats  # of each further one
    site_Bps: Floats
    site_s: Floats  # one way over the lines between sites
    hashed: Floats  # share of a port that flows keep beyond a rack
    reduce_bytes: Floats  # memory of a switch for sums that are under way; 0: switches sum nothing
    nic_share: Floats  # of a gradient's bytes that the cards put on the wire
    dealt: Floats  # 1: hosts are dealt to racks, not filled in order
    dealt_over: Floats  # ranks of the fabric that a job is dealt over; 0: it has its own racks only
    staged: Floats  # 1: stages of a pipeline are what is split between sites
    memory_bytes: Floats
    # What layers of several kinds have, each a mean over all layers (`Shape.hybrid`)
    attention_share: Floats  # of the layers
    mixing_share: Floats  # of the layers: by attention or otherwise
    ffn_share: Floats
    query_gate: Floats  # 1: queries are twice as wide
    mixer_params: Floats
    mixer_width: Floats
    mixer_flops: Floats  # of the recurrence, per token, forward
    predict_layers: Floats  # further tokens that are predicted, a layer each
    # What groups get of the links of a fabric whose hosts differ (`laid.py`), bytes that a rank sends a second; 0: as
    # the formulas of `network.py` say
    laid_tensor_Bps: Floats = field(default_factory=_none)
    laid_expert_Bps: Floats = field(default_factory=_none)
    laid_data_Bps: Floats = field(default_factory=_none)
    laid_holders_Bps: Floats = field(default_factory=_none)
    laid_replicas_Bps: Floats = field(default_factory=_none)
    laid_send_Bps: Floats = field(default_factory=_none)

    @cached_property
    def tokens(self) -> Floats:
        """Tokens of one micro-batch on one rank."""
        return self.micro * self.sequence / self.cp


def columns_of(values: Mapping[str, float]) -> dict[str, Floats]:
    """Return columns of plain numbers."""
    return {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}


def stack(cases: Sequence[Case]) -> Case:
    """Return many cases as one, a row each."""
    return Case(**{f.name: np.array([getattr(case, f.name) for case in cases], dtype=np.float64) for f in fields(Case)})


def join(cases: Sequence[Case], lengths: Sequence[int]) -> Case:
    """Return cases of so many rows each as one; what is one number in all of them stays one number."""
    if len(cases) == 1:
        return cases[0]
    return Case(**{f.name: _joined([getattr(case, f.name) for case in cases], lengths) for f in fields(Case)})


def _joined(columns: Sequence[Floats], lengths: Sequence[int]) -> Floats:
    first = columns[0]
    if all(column is first for column in columns) and first.ndim == 0:
        return first
    if all(column.ndim == 0 for column in columns):
        values = [float(column) for column in columns]
        return first if values.count(values[0]) == len(values) else np.repeat(values, lengths)
    return np.concatenate([np.broadcast_to(column, (rows,)) for column, rows in zip(columns, lengths, strict=True)])


def take(case: Case, rows: npt.NDArray[np.generic]) -> Case:
    """Return some rows of a case, by mask or by number."""
    columns = {f.name: getattr(case, f.name) for f in fields(Case)}
    return Case(**{name: column[rows] if column.ndim else column for name, column in columns.items()})
