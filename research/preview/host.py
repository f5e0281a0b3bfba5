"""What the host spends on an eager training step: `python benchmarks/preview_host.py`.

The model of `examples/preview/ddp.py` with widths of 16 on CPU tensors, so that kernels take next to nothing; what is
left is Python, autograd and dispatch. CPU time of the calling thread, lower quartile of 60 steps; one JSON line.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import json
import time
from collections.abc import Callable

WARM, TIMED = 15, 60


def cpu_us(fn: Callable[[], object]) -> float:
    """Return the CPU time of a call in microseconds."""
    for _ in range(WARM):
        fn()
    spent = []
    for _ in range(TIMED):
        begin = time.thread_time()
        fn()
        spent.append(time.thread_time() - begin)
    return round(1e6 * sorted(spent)[TIMED // 4], 1)


def main() -> None:
    """Print what forward, backward, clipping and the optimizer take."""
    import torch
    from torch import nn
    from torch.utils._python_dispatch import TorchDispatchMode

    torch.set_num_threads(1)
    layers = [nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 10)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    x, y = torch.randn(4, 16), torch.randint(0, 10, (4,))

    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            Count.seen += 1
            return func(*args, **(kwargs or {}))

    def forward() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return nn.functional.cross_entropy(model(x).float(), y)

    def both() -> None:
        loss = forward()
        optimizer.zero_grad()
        loss.backward()

    def counted(fn: Callable[[], object]) -> int:
        Count.seen = 0
        with Count():
            fn()
        return Count.seen

    found = {
        "forward_us": cpu_us(forward), "forward_operators": counted(forward),
        "forward_and_backward_us": cpu_us(both), "forward_and_backward_operators": counted(both),
        "clip_us": cpu_us(lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0)),
        "adamw_8_parameters_us": cpu_us(optimizer.step), "torch": torch.__version__,
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
