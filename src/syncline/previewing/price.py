"""What a captured kernel takes on a GPU: products and attention by the step model's formulas, the rest by its bytes.

A kernel that was timed on a real GPU (`--measure`) keeps that time; where the GPU is another, it is scaled as the
model's own prices for the two are.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np

from syncline.errors import SimulationError, UsageError
from syncline.fabric.catalog import load_catalog
from syncline.previewing.kernels import attention, convolution, recurrent
from syncline.previewing.kernels.passes import GpuFigures, pass_s
from syncline.previewing.measured import EagerCosts, GpuKernelTimes, OwnHost
from syncline.previewing.record import KernelCall
from syncline.sim.profile import SystemProfile
from syncline.sim.step.arithmetic.kernels import ALIGNED, UNALIGNED, gemm_s
from syncline.sim.step.calibrate import Multipliers
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.machine import Machine, facts_of

WIDTH = {
    "float64": 8, "int64": 8, "complex64": 8, "float32": 4, "int32": 4, "uint32": 4, "float16": 2, "bfloat16": 2,
    "int16": 2, "uint16": 2,
}  # fmt: skip
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "linear", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm"}
GATHERS = {"embedding", "index", "gather", "index_select", "_unsafe_index"}
WRITES_ONLY = {
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "zero_", "fill_", "normal_", "uniform_", "randn",
    "rand", "randint", "arange", "randn_like", "rand_like", "new_zeros", "new_ones", "new_full", "randint_like",
    "bernoulli_", "exponential_", "scalar_tensor", "_foreach_zero_", "tril", "triu", "bernoulli", "random_",
    "trunc_normal_",
}  # fmt: skip
CUDNN_ATTENTION: tuple[str, ...] = ("Hopper", "Blackwell", "Blackwell Ultra")
"""Parts on which torch prefers cuDNN's attention to its flash kernel (as profiles of torch 2.11 on an H200 show)."""
PACKED_S = 11.8e-9  # of the host for 1,024 elements whose place `chunk_cat` packs into an index (of two scripts)
BY_ALIGNMENT = {8: 1.0, 4: UNALIGNED, 2: 0.34, 1: 0.16}
"""Speed of products in 16 bits by the elements that divide both their sides: kernels of two generations before."""
TF32_UNALIGNED, TF32_ACROSS = 0.33, 0.47
"""Speed of TF32 products with an unaligned side, and of those neither of whose operands lies along the depth (gradients
of weights): both run on kernels of the generation before. GPT-2's 50,257 words and its layers on an H200."""
ODD = 0.28
"""Of the memory rate that products of a batch of small matrices reach whose rows have an odd length."""
LEAST_S = 1.5e-6  # of a kernel that does next to nothing
AGAIN = {"native_batch_norm": 1, "cudnn_batch_norm": 1, "native_batch_norm_backward": 2, "cudnn_batch_norm_backward": 2,
         "native_group_norm": 1, "native_group_norm_backward": 2}  # fmt: skip
"""Large inputs that are read a second time: their sums must be known before the first element is written."""


@dataclass(frozen=True)
class KernelPrice:
    """How long a kernel takes and why."""

    seconds: float
    kind: str  # product, attention, convolution, memory, host copy, unknown
    bytes: float


@dataclass(frozen=True, eq=False)
class Pricer:
    """Prices kernels on one machine; a kernel is priced once."""

    machine: Machine
    constants: Constants = field(default_factory=default_constants)
    times: GpuKernelTimes | None = None
    timed_on: Machine | None = None  # the machine with the GPU that they were timed on, where it is another
    host: EagerCosts = field(default_factory=EagerCosts)

    def own(self, rank: int) -> OwnHost | None:
        """Return what the host of the script was measured to do in a step of a rank: its own, or the first one's."""
        hosts = self.times.own if self.times is not None else {}
        return hosts.get(rank) or next(iter(hosts.values()), None)

    @cached_property
    def pcie_Bps(self) -> float:
        return float(load_catalog().pcie(self.machine.gpu.pcie).usable_Bps)

    def price(self, kernel: KernelCall, warm: float = 0.0) -> KernelPrice:
        """Return the price of a kernel, as it was timed where it was; the cache holds `warm` of what it reads."""
        modelled = self.modelled(kernel)
        timed = self.times.seconds(kernel, warm) if self.times is not None else None
        if timed is None or kernel.on_host:
            return modelled
        if self.timed_on is not None:
            there = replace(self, machine=self.timed_on, times=None, timed_on=None)
            timed *= modelled.seconds / there.modelled(kernel).seconds
        return replace(modelled, seconds=timed)

    def host_s(self, kernel: KernelCall) -> float:
        """Return what the host does for this kernel itself, as measured or as known; 0 where it is an operator's."""
        if self.times is not None:
            return self.times.host_s(kernel)
        if recurrent.is_recurrent(kernel):
            return recurrent.host_s(kernel)
        if "chunk_cat" not in kernel.name:
            return 0.0
        packed = kernel.ins[: len(kernel.args[0])] if kernel.args and isinstance(kernel.args[0], list) else kernel.ins
        return PACKED_S * sum(elements for _, _, elements in packed) / 1024  # beside them it is given where to write

    def timed(self, kernel: KernelCall) -> bool:
        """Whether a kernel was timed."""
        return self.times is not None and self.times.seconds(kernel) is not None and not kernel.on_host

    def modelled(self, kernel: KernelCall) -> KernelPrice:
        """Return the price of a kernel by the model."""
        name = kernel.name.split(".")[1] if "." in kernel.name else kernel.name
        moved = touched_bytes(kernel, name)
        if kernel.on_host:
            return KernelPrice(moved / 2 / self.pcie_Bps + LEAST_S, "host copy", moved)
        gap_s = max(LEAST_S, self.constants.held.gap_s)
        passes = moved / self.machine.hbm_Bps + gap_s
        if name in PRODUCTS:
            moving = passes / ODD if any(shape[-1] % 2 for shape, _, _ in kernel.ins if len(shape) > 2) else passes
            return KernelPrice(max(self._product_s(kernel, name), moving), "product", moved)
        if "attention" in name and kernel.flops:
            return KernelPrice(max(self._attention_s(kernel), passes), "attention", moved)
        if convolution.is_convolution(kernel):
            part = self.part
            seconds = convolution.seconds(kernel, self.rate(kernel), part.num_sms, part.memory_Bps, part.issues_per_s)
            return KernelPrice(seconds + gap_s, "convolution", moved)
        if recurrent.is_recurrent(kernel):
            return KernelPrice(recurrent.seconds(kernel, self.rate(kernel)) + gap_s, "product", moved)
        known = kernel.namespace in ("aten", "prims", "c10d", "_c10d_functional", "prim", "fsdp")
        seconds = pass_s(kernel, name, moved, self.part, WIDTH) + gap_s
        return KernelPrice(seconds, "memory" if known else "unknown", moved)

    @cached_property
    def part(self) -> GpuFigures:
        return GpuFigures.of(self.machine)

    @cached_property
    def alone(self) -> Constants:
        """Return the constants of a kernel by itself: what whole published runs lose beyond it is no part of it."""
        return replace(self.constants, fitted=replace(self.constants.fitted, e_gemm=1.0))

    def rate(self, kernel: KernelCall) -> float:
        """Return operations a second for the precision of a kernel's operands: the best that products sustain.

        The step model takes 0.87 of it, as one product after another does for seconds under the power limit. In a step
        other kernels draw less than the limit (550 of an H200's 700 W) and leave the products their clock; not so
        where the limit was lowered, to 500 W for example.
        """
        lowered = self.machine.derate < 1 or self.machine.power_scale < 1
        return self._under_load(kernel) / (1.0 if lowered else float(facts_of(self.machine.gpu)["base_power"]))

    def _under_load(self, kernel: KernelCall) -> float:
        dtype = next((t for _, t, _ in kernel.ins if t.startswith(("float", "bfloat"))), "bfloat16")
        name = {"float16": "fp16", "bfloat16": "bf16", "float32": "tf32" if kernel.tf32 else "fp32"}.get(dtype, "fp8")
        if dtype == "float64":
            name = "fp32"
        try:
            return self.machine.rate(name)
        except SimulationError:
            return self.machine.rate("fp32" if name == "tf32" else "bf16")

    def _product_s(self, kernel: KernelCall, name: str) -> float:
        matrices = [shape for shape, _, _ in kernel.ins if len(shape) >= 2]
        if len(matrices) < 2 or not kernel.outs:
            return kernel.flops / self.rate(kernel)
        out = kernel.outs[0][0]
        m, n = out[-2] if len(out) > 1 else 1, out[-1]
        batch = math.prod(out[:-2])
        depth = kernel.flops / max(2 * m * n * batch, 1)
        rate = self.rate(kernel)
        if kernel.tf32 and kernel.ins[0][1] == "float32":
            rate *= self._in_tf32(kernel, n, int(depth))
        elif name != "_scaled_mm":
            rate *= BY_ALIGNMENT[math.gcd(ALIGNED, n, int(depth))]
        width = WIDTH.get(kernel.outs[0][1], 2)
        one = np.asarray
        rows = one(m * batch)  # tiles of a batch fill the GPU together
        return float(gemm_s(self.machine, self.alone, rows, one(n), one(depth), float(width), one(rate)))

    @staticmethod
    def _in_tf32(kernel: KernelCall, n: int, depth: int) -> float:
        """Return the speed of a TF32 product: matrix units read it along the depth only, 16 bytes at a time."""
        if any(side % (ALIGNED // 2) for side in (n, depth)):
            return TF32_UNALIGNED
        sides = [arg for arg in kernel.args if isinstance(arg, dict) and len(arg.get("shape", ())) == 2][-2:]
        across = [side["stride"][place] != 1 for side, place in zip(sides, (1, 0), strict=False)]
        return TF32_ACROSS if len(across) == 2 and all(across) else 1.0

    def _attention_s(self, kernel: KernelCall) -> float:
        chosen = "cudnn" if self.machine.gpu.architecture in CUDNN_ATTENTION else "fa2"
        speed = self.machine.attention.get(chosen, 0.6)
        vector_rate = 2 * self.part.issues_per_s
        return attention.seconds(kernel, self.rate(kernel), vector_rate, speed) + self.constants.held.gap_s


def calibrated(pricer: Pricer, found: Multipliers) -> Pricer:
    """Return prices with the network and the host of a system that a step was measured on.

    Kernels keep the prices of kernels: what a whole step's products were off by is not what a kernel is off by.
    """
    host = EagerCosts(**{name: seconds * found.host for name, seconds in asdict(pricer.host).items()})
    constants = Multipliers(exchange=found.exchange).on(pricer.constants)
    return replace(pricer, host=host, constants=constants)


def other_gpu(machine: Machine, name: str) -> Machine:
    """Return the machine with another accelerator in the same hosts."""
    gpu = load_catalog().gpu(name)
    facts = facts_of(gpu)
    peaks = {each: gpu.flops_at(each) for each in ("fp16", "bf16", "tf32", "fp32", "fp8", "fp4")}
    shares: dict[str, float] = facts["share"]
    sustained = {n: p * shares.get(n, 0.7) * facts["power"] for n, p in peaks.items() if p is not None}
    hbm = machine.hbm_Bps / machine.gpu.memory_Bps * gpu.memory_Bps
    more = max(gpu.num_dies, 1) / max(machine.gpu.num_dies, 1)  # ranks in the same host
    return replace(
        machine,
        gpu=gpu,
        sustained=sustained,
        num_sms=int(facts["sms"]),
        hbm_Bps=hbm,
        gpus_per_host=int(machine.gpus_per_host * more),
        domain=int(machine.domain * more),
        attention=facts["attention"],
        head64=facts.get("head64", {}),
    )


def pricer_of(
    machine: Machine, times: GpuKernelTimes | None, cpu: bool = False, profile: SystemProfile | None = None
) -> Pricer:
    """Return the prices on a machine, with times that were taken on its GPU or another, or on a CPU."""
    plain = Pricer(machine)
    if profile is not None:
        if cpu:
            raise UsageError("`profile` is of GPUs and NCCL.", hint="Scripts on processors are measured: `measure`.")
        profile.check(machine.gpu.name)
        plain = calibrated(plain, profile.steps.multipliers)
    if times is None:
        return plain
    if times.on_cpu != cpu:
        raise UsageError(
            f'kernels were timed on "{times.device}".', hint="Times of a CPU go with `cpu`, those of a GPU without."
        )
    if cpu:
        return replace(plain, times=times)
    if times.gpu is None:
        raise UsageError(
            f'kernels were timed on "{times.device}", which is not in the catalogue.',
            hint="Times are scaled by the rates of known GPUs: `syncline fabric parts gpu` lists them.",
        )
    same = times.gpu.name == machine.gpu.name
    return replace(plain, times=times, timed_on=None if same else other_gpu(machine, times.gpu.name))


def useful_flops(kernel: KernelCall) -> float:
    """Return the operations that a model needs of a kernel: fused attention's backward makes its scores again."""
    remade = "attention" in kernel.name and "backward" in kernel.name
    return executed_flops(kernel) * (0.8 if remade else 1.0)  # two and a half forwards, of which half a one is that


def executed_flops(kernel: KernelCall) -> float:
    """Return the operations of a kernel; of causal attention, those below the diagonal."""
    if convolution.is_convolution(kernel):
        return convolution.flops(kernel)
    if recurrent.is_recurrent(kernel):
        return recurrent.read(kernel).flops
    return attention.executed_flops(kernel) if "attention" in kernel.name else float(kernel.flops)


def touched_bytes(kernel: KernelCall, name: str) -> float:
    """Return what a kernel reads and writes."""
    read = [elements * WIDTH.get(dtype, 1) for _, dtype, elements in kernel.ins]
    written = [elements * WIDTH.get(dtype, 1) for _, dtype, elements in kernel.outs]
    if name in GATHERS:
        return 2.0 * sum(written) + sum(read[1:])
    if name == "nll_loss_forward":
        return float(sum(read[1:]) + 32 * (read[1] / 8 if len(read) > 1 else 1))  # a sector for each row's own class
    if name == "nll_loss_backward":
        return float(sum(written))
    if name == "embedding_dense_backward":
        return float(sum(written) + sum(read))
    if name in WRITES_ONLY:
        return float(sum(written) or sum(read))
    if name == "copy_":
        return float(sum(read[1:2]) + sum(written))
    if kernel.mutable and not written:
        first = kernel.args[0] if kernel.args and isinstance(kernel.args[0], list) else [None]
        own = sum(read[: len(first)])
        return float(sum(read) + own * (3 if name.startswith("_fused_adam") else 1))
    if name.startswith(("index_put", "scatter")):
        return float(2 * sum(read[1:]))
    return float(sum(read) + sum(sorted(read)[-AGAIN[name] :] if name in AGAIN else ()) + sum(written))
