"""One pass of a serving engine over a batch: prefill of some tokens, or one decoded token of every sequence.

Like vLLM, SGLang and TensorRT-LLM: CUDA graphs, fused kernels, a one-shot all-reduce of their own inside a scale-up
domain (small messages), NCCL beyond it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.errors import DescriptionError
from syncline.fabric.fabric import Fabric
from syncline.program import packed
from syncline.schedule import Kind
from syncline.sim.collective.price import library_s
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.decode import cache_bytes_per_token, state_bytes
from syncline.sim.step.machine import Machine, machine_from_fabric
from syncline.workload.job import Job
from syncline.workload.shape import Shape

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
#: More of them in a layer with experts: scores, choice, counts, order, and back.
ROUTING_KERNELS = 8
#: Passes over the hidden vector of a token for each expert it visits, beside those over the expert's width.
ROUTED_PASSES = 4.0
#: What a layer's experts take over their products and passes at the mean: uneven ranks, tiles that few rows leave bare.
#: Chosen on TensorRT-LLM's 37 rows of Qwen3 (`research/serving/throughput.py`).
EXPERTS_TAKE = 4.0
#: Rows of an expert's product at which it reaches half its rate: a tile's, of which kernels have smaller ones for few
#: rows. An expert that no token visits costs nothing.
EXPERT_ROWS, FEW_ROWS = 64.0, 16.0
#: Experts over several hosts are balanced: busy ones have copies, and a pass is two halves, one of which computes while
#: the other is on the network. Balance is worth 1.49 times the tokens in prefill and 2.54 in decode, overlap 1.27 to
#: 1.35 times (SGLang, lmsys.org/blog/2025-05-05-large-scale-ep): half of what experts take above their work, and half
#: of the shorter of work and network.
BALANCED, HIDDEN = 0.5, 0.5
#: Copies beside the experts (DeepSeek: 32 for 256).
COPIES = 1.125
#: The same where a pass is bound by reading the experts it wakes.
EXPERTS_READ = 1.5
#: Tokens of a rank up to which experts are reached directly (DeepEP's low-latency kernels), a copy for each expert.
FEW_TOKENS = 512
#: Scheduling, sampling and detokenising of one pass on the host, what is not hidden behind the GPU.
HOST_S = 1.0e-3
#: What of the memory engines leave to weights and cache (vLLM's gpu_memory_utilization).
MEMORY_SHARE = 0.9
#: A matrix product on few rows reaches this part of what a large one does.
DECODE_GEMM = 0.7


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
        self.precision = job.precision
        self.width = {"fp8": 1.0, "fp4": 0.5, "fp32": 4.0, "tf32": 4.0}.get(job.precision, 2.0)
        # Engines keep the cache in fp8 where weights are in fp8 or fp4 (NVIDIA's own checkpoints say so).
        self._cache_share = (job.cache_bytes or (1 if job.precision in ("fp8", "fp4") else 2)) / 2
        self.num_hosts = max(1, -(-split.num_gpus // self.machine.gpus_per_host))
        self._fabric = fabric
        self._reduced: dict[int, float] = {}

    @property
    def weight_bytes(self) -> float:
        """Weights of one GPU; where attention goes by request, all but the experts is whole on every rank."""
        s = self.shape
        if not self.split.spread:
            return self.width * s.params / self.split.num_gpus
        copies = COPIES if self._wide else 1.0
        return self.width * (self._always + copies * self._routed / self.split.tp) / self.split.pp

    @property
    def cache_bytes(self) -> float:
        """Keys and values of one token on one GPU, or its mean over the ranks where each has its own requests."""
        return self._cache_share * self._token_bytes / self.split.pp

    @property
    def state_bytes(self) -> float:
        """What one sequence keeps on one GPU whatever its length: states of recurrent layers, in 32 bits."""
        return 2.0 * state_bytes(self.shape, self.split.tp) / self.split.pp

    @property
    def _token_bytes(self) -> float:
        if self.split.spread:
            return cache_bytes_per_token(self.shape, 1) / self.split.tp
        return cache_bytes_per_token(self.shape, self.split.tp)

    @property
    def _routed(self) -> float:
        """Parameters of all routed experts."""
        return float(self.shape.moe_layers * self.shape.expert_params)

    @property
    def _always(self) -> float:
        """Parameters that every token meets."""
        return self.shape.params - self._routed

    def most_sequences(self, tokens: float) -> float:
        """Return how many sequences of so many tokens the memory of one replica holds, with their states."""
        free = MEMORY_SHARE * self.machine.gpu.memory_bytes - self.weight_bytes - 2 * 2**30
        return max(0.0, free / (tokens * self.cache_bytes + self.state_bytes))

    def decode_parts(self, batch: float, context: float) -> dict[str, float]:
        """Return the parts of one decoded token of `batch` sequences that have `context` tokens each."""
        batch = max(batch / self.split.pp, 1.0)  # stages work on different parts of the batch at the same time
        rate = DECODE_GEMM * self.k.fitted.e_gemm * self.machine.rate(self.precision)
        kept = context * self._cache_share * self._token_bytes + 2 * self.state_bytes  # a state is read and written
        cache = batch * kept / self.machine.hbm_Bps
        return self._beside({
            "weights": self._products_s(batch, rate), "cache": cache, "kernels": self._kernels_s(),
            "network": self._network_s(batch),
        })  # fmt: skip

    def prefill_parts(self, tokens: float, length: float) -> dict[str, float]:
        """Return the parts of the prefill of so many tokens, in prompts of a length."""
        s, t = self.shape, self.split.tp
        attend = 2.0 * s.num_attention_layers * s.heads * (s.qk_size + s.v_size) / 2 * length * tokens
        attend_rate = self.k.fitted.e_attn * self.machine.rate("bf16")
        return self._beside({
            "weights": self._products_s(tokens, self.k.fitted.e_gemm * self.machine.rate(self.precision)),
            "cache": attend / t / attend_rate, "kernels": self._kernels_s(), "network": self._network_s(tokens),
        })  # fmt: skip

    def mixed_parts(self, tokens: float, length: float, batch: float, context: float) -> dict[str, float]:
        """Return the parts of one pass that prefills so many tokens and decodes a token of `batch` sequences beside."""
        prefill = self.prefill_parts(tokens, length)
        if batch <= 0:
            return prefill
        decode, few = self.decode_parts(batch, context), max(batch / self.split.pp, 1.0)
        fast = self.k.fitted.e_gemm * self.machine.rate(self.precision)
        rate = (tokens + few) / (tokens / fast + few / (DECODE_GEMM * fast))
        return self._beside({
            "weights": self._products_s(tokens + few, rate), "cache": prefill["cache"] + decode["cache"],
            "kernels": self._kernels_s(), "network": self._network_s(tokens + few),
        })  # fmt: skip

    @property
    def _wide(self) -> bool:
        """Whether experts are spread over several hosts, attention by request: balanced, exchange beside work."""
        return self.split.spread and self.num_hosts > 1

    def _beside(self, parts: dict[str, float]) -> dict[str, float]:
        """Return the parts of a pass with what of the network hides behind the other half of the batch taken off."""
        if not self._wide:
            return parts
        hidden = HIDDEN * min(parts["network"], parts["weights"] + parts["cache"])
        return parts | {"network": parts["network"] - hidden}

    def _kernels_s(self) -> float:
        s = self.shape
        each = RAMP_S + CAST_S * self._narrow
        gaps = (s.layers * KERNELS + s.moe_layers * ROUTING_KERNELS) * GRAPH_GAP_S
        return gaps + s.layers * PRODUCTS * each + HOST_S

    @property
    def _narrow(self) -> bool:
        return self.precision in ("fp8", "fp4")

    @property
    def _streamed(self) -> tuple[float, float]:
        """Return parameters and bytes that every token meets: of the embedding a row, the output layer in 16 bits."""
        table = float(self.shape.vocab * self.shape.hidden)
        body = self._always - table * (1 if self.shape.tied else 2)
        return body + table, self.width * body + (2.0 if self._narrow else self.width) * table

    def _products_s(self, tokens: float, rate: float) -> float:
        """Return the matrix products of a pass: weights are read or work is done, whichever is longer.

        Experts are products of few rows each, slower than whole tiles, and a token's way to and from each of its
        experts passes over memory.
        """
        s, t, hbm = self.shape, self.split.tp, self.machine.hbm_Bps
        mine = t if not self.split.spread else 1
        params, read = self._streamed
        dense = max(read / mine / hbm, 2.0 * params * tokens / t / rate)
        if not s.moe:
            return dense
        awake = 1 - math.pow(1 - s.moe.top_k / s.moe.experts, max(tokens, 1.0))
        rows = tokens * s.moe.top_k / s.moe.experts  # of the mean expert; kernels take smaller tiles for few
        rows += awake * min(EXPERT_ROWS, FEW_ROWS + 4 * rows / awake)
        work = 2.0 * self._routed * rows / t / rate
        passes = ROUTED_PASSES * s.expert_hidden + (2 + s.gated) * s.moe.ffn
        moved = 2.0 * s.moe_layers * tokens / t * s.moe.top_k * passes / hbm
        read = EXPERTS_READ * self.width * awake * self._routed / t / hbm
        take = EXPERTS_TAKE * (BALANCED if self._wide else 1.0)
        return dense + max(read, take * work) + take * moved

    def send_cache_s(self, tokens: float) -> float:
        """Return how long the cache of a prompt takes from a prefill replica to a decode replica over the network."""
        per_gpu = tokens * self.cache_bytes
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
            inside = self.split.num_gpus <= self.machine.domain
            rate = self.machine.nvlink_Bps if inside else self.k.fitted.e_net * self.machine.nic_Bps
            total += (self.split.pp - 1) * (self.machine.hop_s + size / t / rate)
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
        if t <= m.domain:
            return 2 * ONE_SHOT_S + 2 * (t - 1) / t * size / (self.k.fitted.e_nvl * m.nvlink_Bps)
        # Between powers of two: a search asks for hundreds of sizes.
        below = 1 << (max(size, 2).bit_length() - 1)
        low, high = self._nccl_s(below), self._nccl_s(2 * below)
        return low + (high - low) * (size / below - 1)

    def _nccl_s(self, size: int) -> float:
        """Return NCCL's all-reduce over the ranks of several hosts."""
        if size not in self._reduced:
            self._reduced[size] = library_s(Kind.ALL_REDUCE, size, packed(self._fabric, self.split.tp))
        return self._reduced[size]
