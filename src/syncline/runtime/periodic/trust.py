"""LAMB's scale of one layer, while the variance is alive and after it was frozen.

The limits are those of the 1-bit LAMB paper's implementation; the layer's scale may change by a tenth in a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

LEAST, MOST = 0.01, 10.0
MEMORY = 0.9
FACTOR_LEAST, FACTOR_MOST, FACTOR_CHANGE = 0.5, 4.0, 0.1


@dataclass
class Trust:
    """The running mean of a layer's scale, the factor on it since the freeze, and the variance that goes on."""

    mean: float = 0.0
    factor: float = 1.0
    variance: torch.Tensor | None = None

    def warm(self, weights: torch.Tensor, moved: torch.Tensor, lr: float) -> float:
        """Return the norm of the weights over that of the direction, and remember it."""
        norm, direction = float(weights.norm()), float(moved.norm()) / lr if lr else 0.0
        scale = min(max(norm / direction, LEAST), MOST) if norm > 0 and direction > 0 else 1.0
        self.mean = scale if self.mean == 0 else MEMORY * self.mean + (1 - MEMORY) * scale
        return scale

    def frozen(self, gradient: torch.Tensor, variance: torch.Tensor, beta2: float) -> float:
        """Return the mean scale, corrected for how the variance has changed since it was frozen."""
        if self.variance is None:
            self.variance = variance.clone()
        self.variance.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        alive = variance > 0
        if bool(alive.any()):
            changed = float((variance[alive].sqrt() / self.variance[alive].sqrt().clamp_min(1e-30)).max())
            near = (1 - FACTOR_CHANGE) * self.factor, (1 + FACTOR_CHANGE) * self.factor
            self.factor = min(max(min(max(changed, FACTOR_LEAST), FACTOR_MOST), near[0]), near[1])
        return (self.mean or 1.0) * self.factor

    def to_list(self) -> list[object]:
        """Return what must be saved."""
        return [self.mean, self.factor, None if self.variance is None else self.variance.clone()]

    @classmethod
    def from_list(cls, values: list[object]) -> Trust:
        """Return what `to_list` saved."""
        mean, factor, variance = values
        assert isinstance(mean, float) and isinstance(factor, float)
        return cls(mean, factor, variance.clone() if isinstance(variance, torch.Tensor) else None)
