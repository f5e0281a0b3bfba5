"""Kernels that were timed on a real GPU, and what its host takes to launch them; or operators, on a CPU.

times = read_kernel_times(Path("h200.json"))  # of `python -m syncline.previewing.capture.measure CAPTURED h200.json`
times.seconds(kernel, warm=0.5)                   # half of what it reads is still in the second-level cache
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from syncline.errors import DescriptionError
from syncline.fabric.catalog import Gpu, load_catalog
from syncline.previewing.record import GpuStorage, KernelCall
from syncline.previewing.signature import signature_key

FORMAT, OLDER = "kernel times 3", ("kernel times 1", "kernel times 2")
OLD_HOST = (
    "an older version timed a small network's host, no script's own; usual costs are taken: time the kernels again"
)
HOST_BOUND, LONG_HOST_S = 0.8, 100e-6
"""A launch that takes the host longer than this, and as long as the GPU: `chunk_cat` of FSDP2 packs an index of every
block on the host, 0.3 to 3.8 ms, and copies it from memory that is not pinned."""


@dataclass(frozen=True)
class EagerCosts:
    """What the host does before an operator that launches a kernel, a collective, an optimizer.

    Python and autograd call more operators than launch something: views, empty tensors, shapes. Fitted to the steps of
    24 scripts that an H200's host bounds (`research/preview`); optimizers to what theirs took in 12 others; what FSDP
    does is of the profile of one.
    """

    forward_s: float = 25e-6
    called_s: float = 3.2e-6  # for each operator that was called since the last launch, its own with them
    backward_s: float = 3e-6
    backward_called_s: float = 8.5e-6
    convolution_s: float = 28e-6  # more than another operator: cuDNN chooses, and launches several kernels
    collective_s: float = 150e-6  # hooks and bookkeeping of DDP around one
    shard_s: float = 600e-6  # of FSDP around one that gathers or scatters, beside the copies of its parameters
    optimizer_s: float = 250e-6
    looped_s: float = 0.6e-6  # of each further operator there: steps that are counted one by one, on the host
    listed_s: float = 0.7e-6  # of a tensor in any of an operator's lists, which are made and grouped in Python
    sharded_s: float = 2.4e-6  # more where it is one rank's part of a DTensor, taken out of it


@dataclass(frozen=True)
class OwnHost:
    """What the host of a script does in a step, by phase, without waiting for the GPU."""

    forward_s: float  # and all that is neither backward nor optimizer
    backward_s: float
    optimizer_s: float
    least_s: float  # of the quickest step, and of the slowest
    most_s: float
    jitter_s: float = 0.0  # the deviation of one step from the next
    waited_s: float = 0.0  # for a core that others held, beside all of that

    @property
    def whole_s(self) -> float:
        return self.forward_s + self.backward_s + self.optimizer_s

    @property
    def spread(self) -> tuple[float, float]:
        """Return the quickest and the slowest step as shares of the mean one."""
        mean = self.whole_s
        return (self.least_s / mean, self.most_s / mean) if mean else (1.0, 1.0)

    def seconds(self, phase: str) -> float:
        """Return what the host does in a phase."""
        return {"backward": self.backward_s, "optimizer": self.optimizer_s}.get(phase, self.forward_s)


@dataclass(frozen=True, eq=False)
class GpuKernelTimes:
    """The times of kernels on one GPU, or of operators on one CPU, where host and device are the same."""

    device: str
    gpu: Gpu | None  # the same part in the catalogue
    torch: str
    cache_bytes: int
    own: Mapping[int, OwnHost]  # by rank
    times: Mapping[str, tuple[float, float, float]] = field(repr=False)
    """Seconds with what it reads in the cache, and without; and of the host."""
    failed: Mapping[str, str] = field(repr=False)
    on_cpu: bool = False

    def seconds(self, kernel: KernelCall, warm: float = 0.0) -> float | None:
        """Return what a kernel took where the cache holds this share of what it reads; None if it was not timed.

        Where the host took as long as the GPU, the GPU waited for it, and what it takes itself is not known.
        """
        found = self._found(kernel)
        if found is None:
            return None
        if not self.on_cpu and found[2] > HOST_BOUND * found[0] and found[2] > LONG_HOST_S:
            return None
        return warm * found[0] + (1 - warm) * found[1]

    def host_s(self, kernel: KernelCall) -> float:
        """Return what the host took for a kernel; 0 if it was not timed."""
        found = self._found(kernel)
        return 0.0 if found is None else found[2]

    def _found(self, kernel: KernelCall) -> tuple[float, float, float] | None:
        return self.times.get(signature_key(kernel.name, kernel.args, kernel.kwargs, kernel.tf32))


class Cache:
    """Which allocations the second-level cache still holds: those touched within its size."""

    def __init__(self, size_bytes: int, allocations: tuple[GpuStorage, ...]) -> None:
        self.size, self.allocations = size_bytes, allocations
        self.passed, self.touched = 0, dict[int, int]()

    def warm(self, read: Iterable[int], written: Iterable[int]) -> float:
        """Return the share of what an operation reads that is in the cache, and remember what it touches."""
        reads, writes = set(read), set(written)
        sizes = {each: self.allocations[each].size_bytes for each in reads | writes}
        held = sum(sizes[each] for each in reads if self.passed - self.touched.get(each, -self.size) < self.size)
        share = held / total if (total := sum(sizes[each] for each in reads)) else 1.0
        for each, size in sizes.items():
            self.passed += size
            self.touched[each] = self.passed
        return share


def read_kernel_times(path: Path) -> GpuKernelTimes:
    """Return the times in a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["syncline"] not in (FORMAT, *OLDER):
            raise KeyError("syncline")
        rows, own = data["kernels"], data.get("own", [])
        times = {row["key"]: _three(row) for row in rows if "error" not in row}
        failed = {row["op"]: str(row["error"]) for row in rows if "error" in row}
        failed |= {f"the host of rank {int(row['rank'])}": str(row["error"]) for row in own if "error" in row}
        failed |= {"the script's host": OLD_HOST} if data["syncline"] in OLDER else {}
        hosts = {int(row["rank"]): _own(row) for row in own if "error" not in row}
        device, torch, cache = str(data["device"]), str(data["torch"]), int(data["cache_bytes"])
        on_cpu = "cpu" in data
        part = None if on_cpu else _part(device, float(data["memory_bytes"]))
        return GpuKernelTimes(device, part, torch, cache, hosts, times, failed, on_cpu)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DescriptionError(
            "is not a file of kernel times.",
            where=str(path),
            hint="Write one on a machine with a GPU: python -m syncline.previewing.capture.measure CAPTURED OUT.",
        ) from None


def _three(row: Mapping[str, object]) -> tuple[float, float, float]:
    return _positive(row["hot_s"]), _positive(row["cold_s"]), _positive(row["host_s"], zero=True)


def _own(row: Mapping[str, object]) -> OwnHost:
    names = ("forward_s", "backward_s", "optimizer_s", "least_s", "most_s")
    more = {name: _positive(row.get(name, 0.0), zero=True) for name in ("jitter_s", "waited_s")}
    return OwnHost(**more, **{name: _positive(row[name], zero=True) for name in names})


def _positive(value: object, zero: bool = False) -> float:
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise ValueError(value)
    return number


def _part(device: str, memory_bytes: float) -> Gpu | None:
    """Return the part of the catalogue that a driver calls so: the same model, the same slot, the nearest memory.

    >>> [_part(name, size * 2**30).name for name, size in (("NVIDIA H200", 140), ("NVIDIA H100 80GB HBM3", 79))]
    ['H200-SXM5-141GB', 'H100-SXM5-80GB']
    """
    words = {word.upper() for word in re.split(r"[\s-]+", device)}
    same = [
        gpu for gpu in load_catalog().parts("gpu") if isinstance(gpu, Gpu) and gpu.name.split("-")[0].upper() in words
    ]
    slotted = [gpu for gpu in same if ("PCIE" in gpu.name.upper()) == ("PCIE" in words)]
    return min(slotted or same, key=lambda gpu: abs(gpu.memory_bytes - memory_bytes), default=None)
