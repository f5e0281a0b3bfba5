"""Shapes of what a fake mode cannot run: kernels of CUDA builds alone, and counts whose number values decide."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten


def _channels(x: Any) -> Any:
    return x.new_empty(x.shape[1], dtype=torch.float32)


def _stats(x: Any, *_: Any, **__: Any) -> Any:
    return _channels(x), _channels(x)


def _reduce(grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, *_: Any) -> Any:
    return _channels(x), _channels(x), torch.empty_like(weight), torch.empty_like(weight)


def _rms(x: Any, normalized: Any, *_: Any) -> Any:
    rows = [*x.shape[: x.ndim - len(normalized)], *(1 for _ in normalized)]
    return torch.empty_like(x), x.new_empty(rows, dtype=torch.float32)


def _rms_backward(grad: Any, x: Any, normalized: Any, rstd: Any, weight: Any, *_: Any) -> Any:
    return torch.empty_like(x), None if weight is None else torch.empty_like(weight)


SHAPES = {
    aten._fused_rms_norm: _rms,
    aten._fused_rms_norm_backward: _rms_backward,
    aten.batch_norm_stats: _stats,
    aten.batch_norm_gather_stats_with_counts: _stats,
    aten.batch_norm_gather_stats: _stats,
    aten.batch_norm_elemt: lambda x, *_: torch.empty_like(x),
    aten.batch_norm_backward_reduce: _reduce,
    aten.batch_norm_backward_elemt: lambda grad, *_: torch.empty_like(grad),
    aten.histc: lambda x, bins=100, *_, **__: x.new_empty(bins),
    aten.bincount: lambda x, weights=None, minlength=0: x.new_empty(minlength or 1, dtype=torch.int64),
}
