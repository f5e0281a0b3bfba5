"""One decode step of tensor-parallel inference: reading weights and cache, and two small all-reduces a layer.

With few sequences a step is bound by memory, and the all-reduces by latency: across hosts they can cost more than all
the rest. Their time comes from the model of NCCL's collectives.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncline.describe.model import reported
from syncline.errors import DescriptionError, SimulationError
from syncline.fabric.fabric import Fabric
from syncline.program import packed
from syncline.schedule import Kind
from syncline.sim.collective.price import CollectivePricer
from syncline.sim.step.constants import default_constants
from syncline.sim.step.machine import machine_from_fabric
from syncline.workload.job import Job
from syncline.workload.parallel import check_split
from syncline.workload.shape import Shape

KERNELS_PER_LAYER = 8
IGNORES = ("scheduling and sampling on the host", "speculative decoding", "prefill of other requests", "stragglers")


@dataclass(frozen=True)
class DecodeResult:
    """Seconds for one token of every sequence; the parts add up."""

    cluster: str
    job: str
    kind: str
    model: str
    gpu: str
    tp: int
    hosts: int
    sequences: int
    context: int
    token_time_s: float
    parts_s: dict[str, float]
    all_reduce_bytes: int
    all_reduce_s: float
    memory_bytes: float
    fits: bool
    ignores: tuple[str, ...] = IGNORES

    @reported
    def tokens_per_s(self) -> float:
        return self.sequences / self.token_time_s

    @reported
    def tokens_per_s_per_sequence(self) -> float:
        return 1 / self.token_time_s

    @reported
    def communication_share(self) -> float:
        return self.parts_s["all_reduce"] / self.token_time_s

    @reported
    def limit(self) -> str:
        """The largest part."""
        return max(self.parts_s, key=lambda part: self.parts_s[part])


def decode_step(fabric: Fabric, job: Job) -> DecodeResult:
    """Return the time of one generated token on one replica of `tp` ranks."""
    k, shape, split = default_constants(), job.model, job.parallel
    if not isinstance(shape, Shape):
        raise DescriptionError(f"{shape.name} does not decode.", hint="Name a transformer.")
    if split.pp * split.cp > 1:
        raise SimulationError("decode is modelled for tensor parallelism only.", hint="Leave pp and cp out.")
    check_split(shape, split)
    machine = machine_from_fabric(fabric)
    if split.tp > fabric.num_gpus:
        raise DescriptionError(f"tp is {split.tp}, but the cluster has {fabric.num_gpus} GPUs.", hint="Lower tp.")
    width = {"fp8": 1.0, "fp4": 0.5, "fp32": 4.0, "tf32": 4.0}.get(job.precision, 2.0)
    batch = job.batch.global_
    weights = width * shape.active_params / split.tp
    if shape.moe:  # a batch wakes more experts than one token does
        idle = (1 - shape.moe.top_k / shape.moe.experts) ** batch
        weights = width * (shape.params - idle * (shape.params - shape.active_params)) / split.tp
    cache = batch * (cache_bytes(shape, split.tp, job.context) + state_bytes(shape, split.tp))
    flops = 2.0 * shape.active_params * batch / split.tp
    arithmetic = flops / (k.fitted.e_gemm * machine.rate(job.precision))
    hosts = -(-split.tp // machine.gpus_per_host)
    size = int(batch * shape.hidden * 2)
    each = _all_reduce_s(fabric, split.tp, hosts, size)
    parts = {
        "weights": max(weights / machine.hbm_Bps, arithmetic),
        "cache": cache / machine.hbm_Bps,
        "launch": shape.layers * KERNELS_PER_LAYER * k.held.gap_s,
        "all_reduce": (shape.mixing_layers + shape.num_ffn_layers) * each,
    }
    held = width * shape.params / split.tp + cache
    return DecodeResult(
        fabric.name, job.name, "decode", shape.name, machine.gpu.name, split.tp, hosts, batch, job.context,
        sum(parts.values()), parts, size, each, held, held < 0.95 * machine.gpu.memory_bytes,
    )  # fmt: skip


def cache_bytes(shape: Shape, tp: int, context: float) -> float:
    """Return the bytes of keys and values that one sequence keeps on one rank, all layers, in 16 bits.

    Layers with a sliding window keep no more than the window.
    """
    tokens = shape.num_attention_layers * shape.kept_tokens(context)
    if shape.mla:  # the compressed latent is whole on every rank
        return 2.0 * tokens * (shape.mla.kv_rank + shape.mla.rope_size)
    heads = max(shape.num_kv_heads / tp, 1.0)
    return 2.0 * tokens * heads * (shape.qk_size + shape.v_size)


def state_bytes(shape: Shape, tp: int) -> float:
    """Return what one sequence keeps on one rank of layers whose state does not grow, all layers."""
    return 2.0 * sum(mixer.layers * mixer.state for mixer in shape.mixers) / tp


def _all_reduce_s(fabric: Fabric, tp: int, hosts: int, size: int) -> float:
    """Return the time of one all-reduce over the TP ranks."""
    if tp == 1:
        return 0.0
    if hosts > fabric.num_hosts:
        raise DescriptionError(
            f"tp {tp} needs {hosts} hosts, but the cluster has {fabric.num_hosts}.", hint="Lower tp."
        )
    return CollectivePricer(Kind.ALL_REDUCE, packed(fabric, tp)).library_s(size)
