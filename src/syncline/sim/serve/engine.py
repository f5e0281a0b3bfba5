"""One pass of a serving engine over a batch: prefill of some tokens, or one decoded token of every sequence.

Like vLLM, SGLang and TensorRT-LLM: CUDA graphs, fused kernels, a one-shot all-reduce of their own inside a scale-up
domain (small messages), NCCL beyond it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from syncline.errors import DescriptionError
from syncline.fabric.fabric import Fabric
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.decode import cache_bytes, state_bytes
from syncline.sim.step.machine import Machine, machine_from_fabric
from syncline.sim.step.network import group_of
from syncline.workload.job import Job
from syncline.workload.shape import Shape
from syncline.workload.stored import Stored

#: One-shot all-reduce over a crossbar: a barrier, reads of all peers, a barrier (measured by vLLM and TensorRT-LLM at 7
#: to 12 us for 16 KiB on 8 H100, an estimate).
ONE_SHOT_S = 9e-6
ONE_SHOT_BYTES = 512 * 1024
#: Kernels of a layer inside a CUDA graph, and the gap between two of them.
KERNELS, GRAPH_GAP_S = 7, 1.3e-6
#: Matrix products of a layer, and what each takes to fill and drain the memory's pipe: a product that streams W bytes
#: reaches W / (W + 10 MB) of an H100's rate, so the smaller weights are, the less (fp8, small models, tp).
PRODUCTS, RAMP_S = 4, 3.0e-6
#: Narrow weights want narrow inputs: each product has a kernel before it that scales and casts.
CAST_S = 2.0e-6
#: A layer's experts: choosing, ordering and gathering rows take this long whatever their number.
EXPERTS_START_S = 35e-6
#: Passes over the hidden vector of a token for each expert it visits, beside those over the expert's width.
ROUTED_PASSES = 2.0
#: Kernels that widen weights to 16 bits on their way (MXFP4 on Hopper) take longer.
WIDENED = 1.6
EXPERTS_TAKE = 2.0
#: Ranks that hold whole experts wait for the one whose experts are visited most.
UNEVEN = 1.3
#: Experts over several hosts are balanced: busy ones have copies, and a pass is two halves, one of which computes while
#: the other is on the network. Balance is worth 1.49 times the tokens in prefill and 2.54 in decode, overlap 1.27 to
#: 1.35 times (SGLang, lmsys.org/blog/2025-05-05-large-scale-ep): half of what experts take above their work, and half
#: of the shorter of work and network.
BALANCED, HIDDEN = 0.5, 0.5
#: Copies beside the experts (DeepSeek: 32 for 256).
COPIES = 1.125
#: Tokens of a rank up to which experts are reached directly (DeepEP's low-latency kernels), a copy for each expert.
FEW_TOKENS = 512
#: Scheduling, sampling and detokenising of one pass on the host, what is not hidden behind the GPU.
HOST_S = 1.0e-3
#: What of the memory engines leave to weights and cache (vLLM's gpu_memory_utilization).
MEMORY_SHARE = 0.9
#: A matrix product on few rows reaches this part of what a large one does.
DECODE_GEMM = 0.8
#: Products of narrow inputs take so much longer than at the rate that large ones of training sustain, by architecture:
#: scales are applied on the way (AIConfigurator's tables of kernels, 2,048 rows and more, medians of 1.3 to 2.0).
SCALED = {"Blackwell": 1.5}
#: Bytes of a weight with its scales: NVFP4 has one of 8 bits for 16 weights, AWQ and GPTQ one of 16 bits for 128.
WIDTHS = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "int4": 0.52}
NARROW = ("fp8", "fp4")
#: How much longer passes take in an engine that was given a model and nothing else: medians of 35 published runs
#: (`research/serving/engines.py`).
UNTUNED = {"any": 1.75, "vllm": 1.6, "sglang": 2.4, "trtllm": 1.75}


def stored_of(job: Job) -> Stored:
    """Return what a job's weights are kept in: as its `precision` says, else as the checkpoint does."""
    own = job.model.stored if isinstance(job.model, Shape) else None
    stated = "precision" in job.model_fields_set or job.kind != "serve"
    if own is not None and (not stated or job.precision == own.weights):
        return own
    return Stored.model_construct(weights=job.precision, experts_only=False, inputs=True)


@dataclass(frozen=True)
class Split:
    """How one replica is laid out."""

    tp: int
    pp: int = 1
    spread: bool = (
        False  # attention by request: every rank has its own, experts are shared (attention data parallelism)
    )

    @property
    def num_gpus(self) -> int:
        return self.tp * self.pp


class Engine:
    """One replica: what its passes take. Times in seconds for the whole pass through all stages."""

    def __init__(
        self,
        fabric: Fabric,
        job: Job,
        split: Split,
        machine: Machine | None = None,
        constants: Constants | None = None,
    ) -> None:
        if not isinstance(job.model, Shape):
            raise DescriptionError(f"{job.model.name} does not generate tokens.", hint="Name a transformer.")
        self.shape, self.split, self.k = job.model, split, constants or default_constants()
        self.machine = machine or machine_from_fabric(fabric)
        self._pace = 1.0 if job.engine.tuned else UNTUNED[job.engine.name]
        self._generation = self.machine.gpu.architecture.removesuffix(" Ultra")
        self.stored = stored_of(job)
        self._always_in: str = "bf16" if self.stored.experts_only else self.stored.weights
        # Engines keep the cache in fp8 where what makes it is in fp8 or fp4 (NVIDIA's own checkpoints say so).
        self._cache_share = (job.cache_bytes or (1 if self._always_in in NARROW and self.stored.inputs else 2)) / 2
        self.num_hosts = max(1, -(-split.num_gpus // self.machine.gpus_per_host))

    @cached_property
    def weight_bytes(self) -> float:
        """Weights of one GPU; where attention goes by request, all but the experts is whole on every rank."""
        _, always = self._streamed
        table = 0.0 if self.shape.tied else 2.0 * self.shape.embedding_params
        whole, copies = (1, COPIES if self._wide else 1.0) if self.split.spread else (self.split.tp, 1.0)
        experts = copies * WIDTHS[self.stored.weights] * self._routed
        return ((always + table) / whole + experts / self.split.tp) / self.split.pp

    def cache_bytes(self, tokens: float) -> float:
        """Keys and values of a sequence on one GPU, or its mean over the ranks where each has its own requests."""
        return self._cache_share * self._whole_cache_bytes(tokens) / self.split.pp

    @cached_property
    def state_bytes(self) -> float:
        """What one sequence keeps on one GPU whatever its length: states of recurrent layers, in 32 bits."""
        return 2.0 * state_bytes(self.shape, self.split.tp) / self.split.pp

    def _whole_cache_bytes(self, tokens: float) -> float:
        if self.split.spread:
            return cache_bytes(self.shape, 1, tokens) / self.split.tp
        return cache_bytes(self.shape, self.split.tp, tokens)

    @cached_property
    def _routed(self) -> float:
        """Parameters of all routed experts."""
        return float(self.shape.moe_layers * self.shape.expert_params)

    @cached_property
    def _always(self) -> float:
        """Parameters that every token meets."""
        return self.shape.params - self._routed

    def most_sequences(self, tokens: float) -> float:
        """Return how many sequences of so many tokens the memory of one replica holds, with their states."""
        free = MEMORY_SHARE * self.machine.gpu.memory_bytes - self.weight_bytes - 2 * 2**30
        return max(0.0, free / (self.cache_bytes(tokens) + self.state_bytes))

    def decode_parts(self, batch: float, context: float) -> dict[str, float]:
        """Return the parts of one decoded token of `batch` sequences that have `context` tokens each."""
        batch = max(batch / self.split.pp, 1.0)  # stages work on different parts of the batch at the same time
        kept = self._cache_share * self._whole_cache_bytes(context)
        read = (kept + 2 * self.state_bytes) / self.machine.hbm_Bps  # a state is read and written
        s = self.shape
        # Heads share what is read: with a latent for all of them, the products take longer than the reading.
        sizes = 2 * s.mla.kv_rank + s.mla.rope_size if s.mla else s.qk_size + s.v_size
        work = 2.0 * s.num_attention_layers * s.kept_tokens(context) * s.heads * sizes / self.split.tp
        return self._beside({
            "weights": self._products_s(batch, DECODE_GEMM), "cache": batch * max(read, work / self._attention_rate),
            "kernels": self._kernels_s, "network": self._network_s(batch),
        })  # fmt: skip

    @property
    def _attention_rate(self) -> float:
        return self.k.fitted.e_attn * self.machine.rate("bf16")

    def prefill_parts(self, tokens: float, length: float) -> dict[str, float]:
        """Return the parts of the prefill of so many tokens, in prompts of a length."""
        s = self.shape
        span = s.mean_span(int(max(length, 1.0)))
        attend = 2.0 * s.num_attention_layers * s.heads * (s.qk_size + s.v_size) * span * tokens
        return self._beside({
            "weights": self._products_s(tokens, 1.0), "cache": attend / self.split.tp / self._attention_rate,
            "kernels": self._kernels_s, "network": self._network_s(tokens),
        })  # fmt: skip

    def mixed_parts(self, tokens: float, length: float, batch: float, context: float) -> dict[str, float]:
        """Return the parts of one pass that prefills so many tokens and decodes a token of `batch` sequences beside."""
        prefill = self.prefill_parts(tokens, length)
        if batch <= 0:
            return prefill
        decode, few = self.decode_parts(batch, context), max(batch / self.split.pp, 1.0)
        reach = (tokens + few) / (tokens + few / DECODE_GEMM)
        attention = (prefill["cache"] + decode["cache"]) / self._pace
        return self._beside({
            "weights": self._products_s(tokens + few, reach), "cache": attention,
            "kernels": self._kernels_s, "network": self._network_s(tokens + few),
        })  # fmt: skip

    @property
    def _wide(self) -> bool:
        """Whether experts are spread over several hosts, attention by request: balanced, exchange beside work."""
        return self.split.spread and self.num_hosts > 1

    def _beside(self, parts: dict[str, float]) -> dict[str, float]:
        """Return a pass as long as the engine takes, less what of the network hides behind half of the batch."""
        if self._wide:
            hidden = HIDDEN * min(parts["network"], parts["weights"] + parts["cache"])
            parts = parts | {"network": parts["network"] - hidden}
        return {name: self._pace * value for name, value in parts.items()}

    @cached_property
    def _kernels_s(self) -> float:
        s = self.shape
        each = RAMP_S + CAST_S * (self._always_in in NARROW and self.stored.inputs)
        gaps = s.layers * KERNELS * GRAPH_GAP_S + s.moe_layers * EXPERTS_START_S
        return gaps + s.layers * PRODUCTS * each + HOST_S

    @cached_property
    def _streamed(self) -> tuple[float, float]:
        """Return parameters and bytes that every token meets: of the embedding a row, the output layer in 16 bits."""
        table = float(self.shape.vocab * self.shape.hidden)
        body = self._always - table * (1 if self.shape.tied else 2)
        width = WIDTHS[self._always_in]
        return body + table, width * body + max(width, 2.0) * table

    @property
    def floor_s(self) -> float:
        """The shortest that a pass can take: what every token meets read once from memory, at the part's own rate."""
        gpu = self.machine.gpu
        mine = 1 if self.split.spread else self.split.tp
        return self._streamed[1] / mine * max(gpu.num_dies, 1) / gpu.memory_Bps

    def _widened(self, kept: str) -> bool:
        """Whether products widen weights kept so to 16 bits: inputs are no narrower, or the part has no such unit."""
        return kept in ("fp8", "fp4", "int8", "int4") and self._units(kept) == "bf16"

    def _units(self, kept: str) -> str:
        """Return the units that multiply weights kept so; MXFP4 meets inputs of 8 bits where the part mixes them."""
        if kept not in self.machine.sustained:
            return "bf16"
        if self.stored.inputs or kept not in NARROW:
            return kept
        return "fp8" if kept == "fp4" else "bf16"

    def _rate(self, kept: str) -> float:
        return self.k.fitted.e_gemm * self.machine.rate(self._units(kept))

    def _products_s(self, tokens: float, reach: float) -> float:
        """Return the matrix products of a pass, at a part of a large product's rate.

        Weights are read or work is done, whichever is longer. Experts are many small products: what they read, compute
        and move to and from each of a token's experts adds up.
        """
        s, t, hbm = self.shape, self.split.tp, self.machine.hbm_Bps
        mine = t if not self.split.spread else 1
        params, read = self._streamed
        slower = SCALED.get(self._generation, 1.0) if self._units(self._always_in) in NARROW else 1.0
        work = slower * 2.0 * params * tokens / t / (reach * self._rate(self._always_in))
        dense = max(read / mine / hbm, work)
        if not s.moe:
            return dense
        awake = 1 - math.pow(1 - s.moe.top_k / s.moe.experts, max(tokens, 1.0))
        visits = tokens * s.moe.top_k / t
        read = WIDTHS[self.stored.weights] * awake * self._routed / t / hbm
        work = 2.0 * s.moe_layers * visits * s.one_expert_params / (reach * self._rate(self.stored.weights))
        passes = ROUTED_PASSES * s.expert_hidden + (2 + s.gated) * s.moe.ffn / (1 if self.split.spread else t)
        moved = 2.0 * s.moe_layers * (visits if self.split.spread else visits * t) * passes / hbm
        take = WIDENED if self._widened(self.stored.weights) else 1.0
        uneven = UNEVEN if self.split.spread and not self._wide else 1.0
        return dense + take * (read + uneven * EXPERTS_TAKE * (work + moved))

    def send_cache_s(self, tokens: float) -> float:
        """Return how long the cache of a prompt takes from a prefill replica to a decode replica over the network."""
        per_gpu = self.cache_bytes(tokens)
        return per_gpu / max(self.k.fitted.e_net * self.machine.nic_Bps, 1.0) + 20e-6

    def _network_s(self, tokens: float) -> float:
        """Return all exchanges of one pass: two all-reduces a layer, all-to-alls of experts, hops between stages."""
        s, t = self.shape, self.split.tp
        size = int(max(1.0, tokens) * s.hidden * 2)
        routed = s.moe_layers
        reduced = 0 if self.split.spread else s.mixing_layers + s.num_ffn_layers - routed
        total = reduced * self._all_reduce_s(size) if t > 1 and reduced else 0.0
        total += 2 * routed * self._all_to_all_s(tokens) if routed and t > 1 else 0.0
        if self.split.pp > 1:
            total += (self.split.pp - 1) * self._library_s("send_recv", self.split.num_gpus, size / t)
        return total

    def _all_to_all_s(self, tokens: float) -> float:
        """Return one dispatch or combine: experts are spread over the replica's ranks, a token goes to `top_k`."""
        s, t, m = self.shape, self.split.tp, self.machine
        assert s.moe is not None
        sent = tokens / t * s.moe.top_k * s.expert_hidden * 1.5 * (t - 1) / t  # dispatched in fp8, combined in bf16
        if t <= m.domain:
            return ONE_SHOT_S + sent / (self.k.fitted.e_nvl * m.nvlink_Bps)
        copies, domains = s.moe.top_k * (1 - m.domain / t), t / m.domain
        if tokens / t > FEW_TOKENS:  # one copy to each host that a token's experts are on; NVLink hands it on
            copies = (domains - 1) * (1 - (1 - 1 / domains) ** s.moe.top_k)
        remote = sent * copies / s.moe.top_k / max(self.k.fitted.e_net * m.nic_Bps, 1.0)
        return ONE_SHOT_S + m.hop_s + max(remote, sent / (self.k.fitted.e_nvl * m.nvlink_Bps))

    def _all_reduce_s(self, size: int) -> float:
        t, m = self.split.tp, self.machine
        if t <= m.domain and size <= ONE_SHOT_BYTES:
            return ONE_SHOT_S + (t - 1) / t * size / (self.k.fitted.e_nvl * m.nvlink_Bps)
        # Between powers of two: a search asks for hundreds of sizes.
        below = 1 << (max(size, 2).bit_length() - 1)
        low, high = self._library_s("all_reduce", t, below), self._library_s("all_reduce", t, 2 * below)
        return low + (high - low) * (size / below - 1)

    def _library_s(self, operation: str, ranks: int, size: float) -> float:
        """Return what the library takes for a collective of consecutive ranks."""
        group = group_of(self.machine, self.k, np.asarray(float(ranks)), float(self.split.num_gpus))
        return float(group.takes_s(operation, np.asarray(float(size))))
