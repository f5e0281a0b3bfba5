"""What the host of a GPU spends on an eager step: a small network whose kernels take next to nothing."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

WARM, TIMED, LAYERS, WIDE = 10, 40, 12, 64


class _Count(TorchDispatchMode):
    """Counts operators that are no views."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.seen += not func.is_view
        return out


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDE), nn.Linear(WIDE, 2 * WIDE), nn.Linear(2 * WIDE, WIDE)

    def forward(self, x: Any) -> Any:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def host_costs(device: str = "cuda") -> dict[str, float]:
    """Return seconds of the host for an operator ahead and back, an optimizer's step and each of its parameters."""
    with torch.enable_grad():
        ahead, back, small, few, per_op = _network(LAYERS // 4, device)
        ahead, back, large, many, per_op = _network(LAYERS, device)
    each = max(large - small, 0.0) / (many - few)
    return {
        "forward_s": ahead,
        "backward_s": back,
        "optimizer_s": max(small - few * each - per_op * ahead, 0.0),  # its operators are counted by themselves
        "parameter_s": each,
    }


def _network(layers: int, device: str) -> tuple[float, float, float, int, int]:
    """Return seconds of an operator ahead and back, and of an optimizer's step, its parameters and its operators."""
    model = nn.Sequential(*(_Block() for _ in range(layers))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(16, WIDE, device=device)

    def forward() -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            return model(x).float().square().mean()

    def both() -> None:
        forward().backward()

    ahead, whole, step = _host_s(forward), _host_s(both), _host_s(optimizer.step)
    ops_ahead, ops_whole, ops_step = _counted(forward), _counted(both), _counted(optimizer.step)
    back = (whole - ahead) / max(ops_whole - ops_ahead, 1)
    return ahead / ops_ahead, back, step, sum(1 for _ in model.parameters()), ops_step


def _counted(fn: Callable[[], object]) -> int:
    with _Count() as count:
        fn()
    return int(count.seen)


def _host_s(fn: Callable[[], object]) -> float:
    for _ in range(WARM):
        fn()
    spent = []
    for _ in range(TIMED):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begin = time.perf_counter()
        fn()
        spent.append(time.perf_counter() - begin)
    return sorted(spent)[TIMED // 2]
