"""CPU codecs on one thread against memcpy in the same run: 26M float32, error feedback in the same pass.

"of_memcpy" = the fewest bytes the operation must move, over its time, divided by memcpy's rate (bytes read + written).
memcpy also reads the lines it is about to overwrite, which its count leaves out; a pass that updates the residual in
place has no such hidden read, so it can exceed 1. What only reads or only writes cannot reach 1: one core has so many
lines under way. Each operation takes turns with memcpy, and the fastest of each counts: noise only ever slows a run,
and a neighbour on the memory bus slows both. Times are CPU time of the one thread.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from syncline._native import codecs as kernels
from syncline.codec.dense import Dense
from syncline.codec.names import dense

NUM_ELEMENTS = 26_000_000
RUNS = 12
SCHEMES = ("int8", "int4", "sign", "fp16", "bf16")
WANTED = {"int8": 0.85, "sign": 0.85}
"""What encoding with error feedback must reach, of memcpy."""

VARIANTS = {0: "portable", 1: "avx2", 2: "avx512"}
Array = np.ndarray[Any, Any]
Call = Callable[[], object]


def once_s(call: Call) -> float:
    """Return the CPU seconds of one call."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def seconds(call: Call, runs: int = RUNS) -> float:
    """Return the fastest of several runs."""
    return min(once_s(call) for _ in range(runs))


class Memcpy:
    """The C library's own, over arrays as long as the gradients."""

    def __init__(self) -> None:
        self.source, self.target = np.ones(NUM_ELEMENTS, np.float32), np.zeros(NUM_ELEMENTS, np.float32)
        library = ctypes.CDLL(None)
        library.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        library.memcpy.restype = ctypes.c_void_p
        self._copy = library.memcpy

    def __call__(self) -> None:
        self._copy(self.target.ctypes.data, self.source.ctypes.data, 4 * NUM_ELEMENTS)


@dataclass(frozen=True)
class Timed:
    """One operation and the memcpy that took turns with it."""

    codec: str
    operation: str
    elapsed_s: float
    memcpy_s: float
    fewest_bytes: float

    def to_json(self) -> dict[str, Any]:
        return {
            "codec": self.codec,
            "operation": self.operation,
            "ms": round(1e3 * self.elapsed_s, 2),
            "memcpy_ms": round(1e3 * self.memcpy_s, 2),
            "fewest_bytes": int(self.fewest_bytes),
            "of_memcpy": round(self.of_memcpy, 3),
        }

    @property
    def of_memcpy(self) -> float:
        return (self.fewest_bytes / self.elapsed_s) / (8 * NUM_ELEMENTS / self.memcpy_s)


def turns(memcpy: Memcpy, codec: str, operation: str, call: Call, fewest_bytes: float, runs: int = RUNS) -> Timed:
    """Time an operation and memcpy in turns."""
    pairs = [(once_s(call), once_s(memcpy)) for _ in range(runs)]
    return Timed(codec, operation, min(a for a, _ in pairs), min(b for _, b in pairs), fewest_bytes)


def operations(codec: Dense, values: Array, residual: Array, out: Array) -> dict[str, tuple[Call, float]]:
    """Return what is timed of a scheme, and the fewest bytes each must move."""
    n = values.size
    payload = np.zeros(codec.wire_bytes(n), np.uint8)
    wire = payload.size
    residual[:] = 0
    for _ in range(3):  # residuals take a few steps to look as they will
        codec.encode(values, payload, residual)
    return {
        "encode with residual": (lambda: codec.encode(values, payload, residual), 12 * n + wire),
        "encode": (lambda: codec.encode(values, payload), 4 * n + wire),
        "decode and add": (lambda: codec.decode(payload, out, add=True), wire + 8 * n),
        "decode": (lambda: codec.decode(payload, out), wire + 4 * n),
    }


def torch_int8(values: torch.Tensor, residual: torch.Tensor) -> None:
    """Block int8 with residual in plain torch operations."""
    a = (values + residual).view(-1, 250)
    scale = a.abs().amax(dim=1, keepdim=True) / 127
    codes = (a / scale).round().to(torch.int8)
    torch.sub(a, codes * scale, out=residual.view(-1, 250))


def torch_sign(values: torch.Tensor, residual: torch.Tensor) -> None:
    """One bit with residual in plain torch operations; the bits packed by NumPy."""
    a = (values + residual).view(-1, 2000)
    scale = a.abs().mean(dim=1, keepdim=True)
    negative = a < 0
    np.packbits(negative.numpy())
    torch.sub(a, torch.where(negative, -scale, scale), out=residual.view(-1, 2000))


def peers(values: Array, residual: Array) -> dict[str, tuple[Call, float]]:
    """Return the same encodes in plain torch, with the same fewest bytes."""
    v, r, n = torch.from_numpy(values), torch.from_numpy(residual), values.size
    return {
        "int8": (lambda: torch_int8(v, r), 12 * n + dense("int8").wire_bytes(n)),
        "sign": (lambda: torch_sign(v, r), 12 * n + dense("sign").wire_bytes(n)),
    }


def variants(values: Array, residual: Array) -> dict[str, dict[str, float]]:
    """Return milliseconds of both asked-for encodes in every variant that this machine runs."""
    n = values.size
    int8, sign = (np.zeros(dense(name).wire_bytes(n), np.uint8) for name in ("int8", "sign"))
    calls: dict[str, Callable[[int], object]] = {
        "int8": lambda variant: kernels.block_encode(values, int8, residual, 8, 256, variant),
        "sign": lambda variant: kernels.sign_encode(values, sign, residual, 512, variant),
    }
    times: dict[str, dict[str, float]] = {}
    for number in kernels.variants():
        times[VARIANTS[number]] = {}
        for name, call in calls.items():
            residual[:] = 0
            call(number)
            times[VARIANTS[number]][name] = round(1e3 * seconds(lambda c=call, v=number: c(v), 3), 2)  # type: ignore[misc]
    return times


def run() -> dict[str, Any]:
    """Return milliseconds and the share of memcpy of every scheme, plain torch beside it."""
    torch.set_num_threads(1)
    values = np.random.default_rng(0).standard_normal(NUM_ELEMENTS, np.float32)
    residual, out = np.zeros(NUM_ELEMENTS, np.float32), np.zeros(NUM_ELEMENTS, np.float32)
    memcpy = Memcpy()
    memcpy()
    rows = [
        turns(memcpy, name, what, call, size_bytes)
        for name in SCHEMES
        for what, (call, size_bytes) in operations(dense(name), values, residual, out).items()
    ]
    residual[:] = 0
    rows += [
        turns(memcpy, name, "plain torch, encode with residual", call, size_bytes, 3)
        for name, (call, size_bytes) in peers(values, residual).items()
    ]
    memcpy_s = min(row.memcpy_s for row in rows)
    reached = {name: next(round(row.of_memcpy, 3) for row in rows if row.codec == name) for name in WANTED}
    return {
        "num_elements": NUM_ELEMENTS,
        "num_threads": 1,
        "memcpy_ms": round(1e3 * memcpy_s, 2),
        "memcpy_GBps": round(8 * NUM_ELEMENTS / memcpy_s / 1e9, 2),
        "wanted_of_memcpy": WANTED,
        "reached_of_memcpy": reached,
        "rows": [row.to_json() for row in rows],
        "variant_ms": variants(values, residual),
    }
