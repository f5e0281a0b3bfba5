"""Whether a tensor holds numbers only."""

from __future__ import annotations

import math

import torch


def is_finite(values: torch.Tensor) -> bool:
    """Tell whether every element is a number: one read of the memory unless the sum itself overflows."""
    if values.numel() == 0 or bool(torch.isfinite(values.sum())):
        return True
    return bool(torch.isfinite(values).all())


def finite_flag(values: torch.Tensor) -> bool | torch.Tensor:
    """Tell the same, on another device than the host's by a number that stays there until somebody asks."""
    if values.device.type == "cpu":
        return is_finite(values)
    # The largest magnitude, by one kernel that writes nothing else; that of a NaN is a NaN.
    return torch.linalg.vector_norm(values, math.inf, dtype=torch.float32) < math.inf if values.numel() else True
