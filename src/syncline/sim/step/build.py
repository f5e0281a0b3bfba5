"""From a job and a machine to a case: the one place where words become columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache

from syncline.codec.names import PLAIN
from syncline.describe.own_data import own_data
from syncline.errors import SimulationError
from syncline.sim.collective.columns import number_of
from syncline.sim.step.case import Case, Floats, columns_of
from syncline.sim.step.exchange import ALGORITHMS
from syncline.sim.step.machine import Machine
from syncline.workload.adapters import adapter_share
from syncline.workload.job import Job
from syncline.workload.parallel import SHARDED
from syncline.workload.shape import Shape
from syncline.workload.software import Facts, facts_of
from syncline.workload.volumes import wire_share

LOW = ("fp8", "fp4")


@cache
def recipes() -> dict[str, dict[str, float | str]]:
    """Return every recipe: `casts`, `fused_casts`, `rate` and its source."""
    found: dict[str, dict[str, float | str]] = own_data("sim", "data/recipes.yaml")["recipes"]
    return found


def recipe_of(job: Job) -> str:
    """Return the recipe of a job in a low precision: what it says, or the usual one of its precision."""
    return job.recipe or ("nvfp4" if job.precision == "fp4" else "tensorwise")


def casts_of(job: Job, facts: Facts) -> float:
    """Return the passes over memory that casts cost, one fused pass for the input of each product = 1."""
    if job.precision not in LOW:
        return 0.0
    found = recipes()[recipe_of(job)]
    return float(found["fused_casts" if facts.fused_casts else "casts"])


def recipe_rate(job: Job, architecture: str) -> float:
    """Return the speed of a recipe's products against the part's best of that precision."""
    if job.precision not in LOW:
        return 1.0
    found = recipes()[recipe_of(job)]
    return float(found.get(f"rate_{architecture.split()[0].lower()}", found["rate"]))


#: Share of the routing time that the host still costs: CUDA graphs capture the router, dropping needs no token counts.
HOST_SHARE = {"dropless": 1.0, "drop": 0.4, "graphs": 0.2}
STATE_BYTES = {True: 30.0, False: 75.0}
#: What the vendor's first year of tuning gains (library heuristics, fused and overlapped products): the same GPT-3 on
#: H100 ran 5 to 15 % faster with NeMo 24.07 to 25.11 than with 23.09.
MATURE = 1.07
#: Peak reserved over peak allocated, less one: PyTorch's caching allocator leaves holes that `expandable_segments`
#: mostly closes; XLA lays a step out before it runs.
FRAGMENTATION = {"caching": 0.04, "expandable": 0.02, "planned": 0.01}
#: Software before this year has the older of cuDNN's attention kernels, where a part knows two.
CUDNN_YEAR = 2025
#: What repeating part of the forward repeats: matrix products, attention core, memory-bound work, TP exchanges.
#: `partial-50` repeats half of a stage's layers whole (Megatron's block method).
REDO = {
    "none": (0.0, 0.0, 0.0, 0.0), "full": (1.0, 1.0, 1.0, 1.0), "selective-op": (0.5, 0.0, 0.8, 0.0),
    "partial-25": (0.25, 0.25, 0.25, 0.25), "partial-50": (0.5, 0.5, 0.5, 0.5), "partial-75": (0.75, 0.75, 0.75, 0.75),
}  # fmt: skip


def build_case(job: Job, machine: Machine, facts: Facts | None = None) -> Case:
    """Return the case of a job whose `dp` is filled in."""
    shape = job.model
    if not isinstance(shape, Shape):
        raise SimulationError(f"{shape.name} is not a transformer.", hint="Use step(); it prices layer lists too.")
    if facts is None:
        facts, columns = _of_job(job, machine.gpu.architecture)
    else:
        facts = on_part(facts, machine.gpu.architecture)
        columns = columns_of(run_columns(job, facts))
    machined = columns_of(machine_columns(job, machine, facts))
    return Case(**{**_of_model(shape, job.batch.sequence), **columns, **machined})


@lru_cache(maxsize=64)
def _of_model(shape: Shape, sequence: int) -> dict[str, Floats]:
    return columns_of(model_columns(shape, sequence))


@lru_cache(maxsize=1024)  # a plan weighs the same jobs on many machines
def _of_job(job: Job, architecture: str) -> tuple[Facts, dict[str, Floats]]:
    facts = on_part(facts_of(job), architecture)
    return facts, columns_of(run_columns(job, facts))


#: Parts without the tensor cores that FlashAttention-2 and cuDNN's fused attention ask for (sm80 and later). Megatron,
#: NeMo and DeepSpeed then multiply out all scores; PyTorch falls back to its memory-efficient kernel.
NO_FLASH = ("Pascal", "Volta", "Turing")


def on_part(facts: Facts, architecture: str) -> Facts:
    """Return the facts with the attention kernel that exists for a part, where the job left it to the software."""
    if "attention" not in facts.assumed:
        return facts
    kernel = facts.attention
    if architecture in NO_FLASH and facts.framework != "pytorch":
        kernel = "unfused"
    elif architecture in facts.cudnn_on:
        kernel = "cudnn"
    return replace(facts, attention=kernel, assumed={**facts.assumed, "attention": kernel})


def model_columns(shape: Shape, sequence: int) -> dict[str, float]:
    """Return the columns that depend on the model alone."""
    mla, moe = shape.mla, shape.moe
    # What brings tokens to the size of the experts and back is priced as part of the block that every token visits.
    shared_ffn = moe.shared_ffn + 2 * moe.latent / (2 + shape.gated) if moe else 0.0
    return {
        "layers": shape.layers, "head_layers": shape.head_layers, "moe_layers": shape.moe_layers,
        "hidden": shape.hidden, "heads": shape.heads,
        "kv_heads": shape.num_kv_heads, "qk_size": shape.qk_size, "v_size": shape.v_size,
        "q_rank": mla.q_rank if mla else 0, "kv_rank": mla.kv_rank if mla else 0,
        "rope_size": mla.rope_size if mla else 0,
        "ffn": shape.ffn_size, "gated": float(shape.gated), "vocab": shape.vocab, "span": shape.mean_span(sequence),
        "experts": moe.experts if moe else 0, "top_k": moe.top_k if moe else 0, "expert_ffn": moe.ffn if moe else 0,
        "expert_hidden": shape.expert_hidden, "shared_ffn": shared_ffn,
        "expert_biases": float(shape.biases and moe is not None),
        "embedding_params": shape.embedding_params + shape.tower_params, "head_params": shape.head_params,
        "query_gate": float(shape.query_gate), "predict_layers": shape.predict_layers,
    } | _kinds_of_layers(shape)  # fmt: skip


def _kinds_of_layers(shape: Shape) -> dict[str, float]:
    """Return what a mean layer has of attention, of other mixers and of feed-forward blocks."""

    def mean(values: Iterable[float]) -> float:
        return sum(values) / shape.layers

    return {
        "attention_share": shape.num_attention_layers / shape.layers,
        "mixing_share": shape.mixing_layers / shape.layers,
        "ffn_share": shape.num_ffn_layers / shape.layers,
        "mixer_params": mean(m.layers * m.params for m in shape.mixers),
        "mixer_width": mean(m.layers * m.width for m in shape.mixers),
        "mixer_flops": mean(m.layers * m.flops for m in shape.mixers),
    }


def run_columns(job: Job, facts: Facts) -> dict[str, float]:
    """Return the columns that depend on the split and on what the software does."""
    split = job.parallel
    dp = split.dp or 1
    layers = job.model.layers if isinstance(job.model, Shape) else 1
    assert isinstance(layers, int)
    gemm, attention, memory, tp = redo_shares(job.recompute, facts)
    per_micro = split.sharded_params and split.pp == 1
    chunks = split.pp * split.virtual
    zero_bubble = split.schedule == "zero-bubble"
    return {
        "tp": split.tp, "pp": split.pp, "dp": dp, "cp": split.cp, "ep": split.ep, "virtual": split.virtual,
        "micro": job.batch.micro, "num_micro": job.num_micro, "sequence": job.batch.sequence,
        "sequence_parallel": float(facts.sequence_parallel and split.tp > 1),
        "redo_gemm": gemm, "redo_last": float(not facts.early_stop), "redo_attention": attention, "redo_memory": memory,
        "redo_tp": tp, "fp8": casts_of(job, facts), "flash": float(facts.attention != "unfused"),
        "triton": float(facts.attention == "triton"), "eager": float(not facts.compiled),
        "wgrad_bytes": facts.accumulate_bytes, "grad_bytes": facts.gradient_bytes, "param_bytes": facts.parameter_bytes,
        "state_bytes": STATE_BYTES[facts.fused_optimizer], "sharded_state": float(split.sharded_state),
        "tp_overlap": float(facts.tp_overlap), "fsdp": float(per_micro), "reshard": float(facts.reshard),
        "shard_ranks": split.shard_ranks, "dp_overlap": float(facts.dp_overlap),
        "ulysses": float(split.context == "ulysses"), "p2p_sliced": float(facts.sliced_p2p),
        "p2p_exposed": 0.15 if facts.sliced_p2p else 1.0, "bubble_share": 1 / 3 if zero_bubble else 1.0,
        "even_head": float(split.pp > 1 and layers % chunks != 0 and (layers + 2) % chunks == 0),
        "host_share": min(
            facts.routing, HOST_SHARE["graphs" if facts.cuda_graphs else "drop" if job.token_drop else "dropless"]
        ),
        "expert_passes": facts.expert_passes + facts.cast_passes * (job.precision in ("fp8", "fp4")),
        "bias_passes": facts.bias_passes, "ep_exposed": facts.ep_exposed,
        "dispatch_once": float(facts.dispatch_once), "sent_apart": float(job.dispatcher == "alltoall"),
        "scatter_each": float((facts.scatter_each and split.pp > 1) or split.zero == "2"),
        "sync_every": job.sync.period, "stale": float(job.sync.staleness > 0),
        "encoded": float(job.sync.codec != PLAIN),
        "algorithm": 1 + ALGORITHMS.index(job.sync.algorithm) if job.sync.algorithm else 0,
        "bucket_bytes": job.sync.bucket or 0,
        "wire_share": wire_share(job.sync.codec, facts.gradient_bytes),
        "frozen": float(job.frozen), "adapters": adapter_share(job) if job.adapter_rank else 0.0,
        "pads_vocab": float(facts.framework != "pytorch"),
    } | kept_columns(job, facts) | (frozen_columns(job, facts) if job.frozen else {})  # fmt: skip


def kept_columns(job: Job, facts: Facts) -> dict[str, float]:
    """Return the columns that only the memory depends on."""
    split, wide = job.parallel, job.precision in ("fp32", "tf32")
    optimizer = job.optimizer or "adam"
    # Adam keeps an fp32 master copy and two moments, SGD the copy and one, Adafactor the copy and factored moments.
    states = {"sgd": 8.0, "adafactor": 4.1, "muon": 8.0}.get(optimizer, 12.0) - (4.0 if wide else 0.0)
    return {
        "weight_bytes": 4.0 if wide else 2.0,
        "main_grad_bytes": facts.main_grad_bytes,
        "optimizer_bytes": states,
        "dropout": float(facts.dropout),
        "ffn_kept": _kept_widths(job, facts),
        "fragmentation": FRAGMENTATION[facts.allocator],
        "offload_state": float(job.offload in ("optimizer", "both")),
        "offload_kept": job.offload_share * (job.offload in ("activations", "both")),
        "shard_grads": float(split.zero in ("2", *SHARDED)),
        "shard_params": float(split.sharded_params),
        "gpipe": float(split.schedule == "gpipe"),
        "logit_bytes": facts.logit_bytes,
        "torch_state": float(facts.framework == "pytorch"),
        "autocast": float(facts.framework == "pytorch" and not split.sharded_params and not wide),
    }


def _kept_widths(job: Job, facts: Facts) -> float:
    """Return how many tensors of a block's width are kept: input and output of the activation function, and the gate.

    Uncompiled PyTorch keeps the activation of the gate beside its product; a fused kernel (xformers, Liger) keeps gate
    and up projection and makes the product again.
    """
    if not (isinstance(job.model, Shape) and job.model.gated):
        return 2.0
    return 2.0 if facts.fused_act else (3.0 if facts.compiled else 4.0)


def frozen_columns(job: Job, facts: Facts) -> dict[str, float]:
    """Return what differs where only adapters are trained: their gradients and state are small beside the weights."""
    sharded, trained = job.parallel.sharded_params, adapter_share(job)
    return {
        "grad_bytes": trained * facts.gradient_bytes,
        "param_bytes": facts.parameter_bytes * (1.0 if sharded else trained),
        "state_bytes": trained * STATE_BYTES[facts.fused_optimizer],
        "main_grad_bytes": trained * facts.main_grad_bytes,
        "optimizer_bytes": 12.0 * trained + (2.0 if sharded else 0.0),
        # Frozen weights are only multiplied with: they are kept in the precision of the products.
        "weight_bytes": {"fp8": 1.0, "fp4": 1.0}.get(job.precision, 4.0 if job.precision in ("fp32", "tf32") else 2.0),
    }


def redo_shares(recompute: str, facts: Facts) -> tuple[float, float, float, float]:
    """Return what share of the forward is repeated: products, attention core, memory-bound work, TP exchanges."""
    if recompute == "selective":  # Megatron's sense: the attention core, which a flash kernel repeats by itself anyway
        return (0.0, float(facts.attention == "unfused"), 0.0, 0.0)
    return REDO[recompute]


def machine_columns(job: Job, machine: Machine, facts: Facts) -> dict[str, float]:
    """Return the columns that depend on the machine and on the precision."""
    machine = machine.capped(job.power_w or 0.0)
    plain = job.precision if job.precision in ("fp16", "fp32", "tf32") else "bf16"
    kernel = {"fa3": "cudnn", "unfused": "cudnn"}.get(facts.attention, facts.attention)
    if facts.attention == "cudnn" and job.software.year < CUDNN_YEAR and "cudnn_old" in machine.attention:
        kernel = "cudnn_old"
    # A kernel far below the matrix rate does not run into the power limit, so a cap does not slow it.
    slow_kernel = machine.attention[kernel] < 0.7
    capped = machine.power_scale * machine.derate if slow_kernel else 1.0
    hopper = machine.gpu.architecture == "Hopper"
    tuned = MATURE if facts.framework == "nemo" and job.software.year >= machine.matures else 1.0
    scaled = recipe_rate(job, machine.gpu.architecture)
    return {
        "rate_gemm": machine.rate(job.precision) * tuned * scaled, "rate_bf16": machine.rate(plain) * tuned,
        "hbm_Bps": machine.hbm_Bps, "num_sms": machine.num_sms,
        "nvlink_Bps": machine.nvlink_Bps, "mesh_peers": machine.mesh_peers, "nic_Bps": max(machine.nic_Bps, 1.0),
        "host_Bps": max(machine.host_Bps, 1.0),
        "library": number_of(machine.library),
        "domain": machine.domain, "hop_s": machine.hop_s, **machine.reach.columns(),
        "served_ports": job.sync.servers * machine.gpus_per_host if job.sync.method == "parameter-server" else 0,
        "memory_bytes": machine.gpu.memory_bytes / max(machine.gpu.num_dies, 1),
        "kernel": machine.attention[kernel] / capped / tuned, "triton": float(facts.attention == "triton" and hopper),
        "head64": machine.head64.get(kernel.removesuffix("_old"), 0.75),
    }  # fmt: skip
