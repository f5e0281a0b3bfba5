"""GPU codecs against a copy in the same run: fewest bytes the operation must move, over time.

Needs a CUDA device with Triton; elsewhere it says so. 268 million float32 gradients, residual updated in the same pass.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

NUM_ELEMENTS = 1 << 28


def run() -> dict[str, Any]:
    """Return rates and shares of copy."""
    try:
        import torch
        import triton
    except ImportError:
        return {"skipped": "needs torch and triton (pip install torch triton)"}
    if not torch.cuda.is_available():
        return {"skipped": "needs a CUDA device"}
    from syncline.codec.names import dense
    from syncline.runtime.sync.gpu.codec import CudaCodec

    n = NUM_ELEMENTS
    values = torch.randn(n, device="cuda")
    residual = torch.zeros(n, device="cuda")
    other = torch.empty_like(values)
    copy_s = _time(lambda: other.copy_(values))
    copy_Bps = 8 * n / copy_s
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "num_elements": n,
        "copy_Bps": copy_Bps,
        "codecs": {},
    }
    for text in ("int8", "int4", "sign", "bf16", "fp16"):
        known = dense(text)
        gpu = CudaCodec(known)
        payload = torch.empty(known.wire_bytes(n), dtype=torch.uint8, device="cuda")
        residual.zero_()
        encode_s = _time(partial(gpu.encode, values, payload, residual))
        plain_s = _time(partial(gpu.encode, values, payload, None))
        add_s = _time(partial(gpu.decode, payload, other, add=True, scale=0.5))
        moved = 12 * n + payload.numel()
        added = 8 * n + payload.numel()
        figures["codecs"][text] = {
            "encode_with_residual_ms": 1e3 * encode_s,
            "encode_with_residual_of_copy": moved / encode_s / copy_Bps,
            "encode_ms": 1e3 * plain_s,
            "encode_of_copy": (4 * n + payload.numel()) / plain_s / copy_Bps,
            "decode_add_ms": 1e3 * add_s,
            "decode_add_of_copy": added / add_s / copy_Bps,
            "wire_bytes": payload.numel(),
        }
        del payload
    figures["copy_Bps_after"] = 8 * n / _time(lambda: other.copy_(values))
    figures["peers"] = _peers(values, residual, copy_Bps)
    return figures


def _peers(values: Any, residual: Any, copy_Bps: float) -> dict[str, Any]:
    """Return plain torch, eager and compiled, doing the same."""
    import torch

    n = values.numel()

    def int8(v: Any, r: Any) -> Any:
        a = (v + r).view(-1, 256)
        scale = a.abs().amax(dim=1, keepdim=True) / 127
        q = torch.round(a / scale).to(torch.int8)
        r.copy_((a - q * scale).view(-1))
        return q, scale

    compiled = torch.compile(int8)
    found = {
        "int8 torch eager": (13 * n, _time(lambda: int8(values, residual), 5)),
        "int8 torch.compile": (13 * n, _time(lambda: compiled(values, residual))),
    }
    return {name: {"ms": 1e3 * t, "of_copy": moved / t / copy_Bps} for name, (moved, t) in found.items()}


def _time(work: Callable[[], Any], repeats: int = 20) -> float:
    """Return the median time of one call on the device; a pause before it lets the host get ahead, as in training."""
    import torch

    cuda: Any = torch.cuda
    for _ in range(3):
        work()
    times: list[float] = []
    for _ in range(repeats):
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda._sleep(3_000_000)
        begin.record()
        work()
        end.record()
        cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times)
