"""Buckets that travel plain: the backend's own all-reduce, and what is done about values that are no numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from syncline.errors import NonFiniteError, SynchronizationError
from syncline.runtime.sync.bucket import Order
from syncline.runtime.sync.finite import is_finite
from syncline.runtime.sync.step import Step


def average_plain(
    order: Order, group: Any, num_ranks: int, nan: str, explain: Callable[[SynchronizationError], BaseException]
) -> None:
    """Begin an all-reduce of a bucket; `explain` says what lies behind one that fails."""
    buffer, step = order.buffer, order.step
    step.bucket_in(order.index, buffer.nbytes, order.last)
    size = 2 * (num_ranks - 1) * buffer.nbytes // num_ranks
    step.dense_bytes += size
    step.wire_bytes += size
    work = dist.all_reduce(buffer.div_(num_ranks), group=group, async_op=True)
    assert work is not None

    def finished(future: Any) -> None:
        failure: BaseException | None = None
        try:
            future.wait()
            failure = _not_finite(buffer, step, nan)
        except RuntimeError as error:
            failure = explain(SynchronizationError("the all-reduce failed.", detail=str(error)))
        step.bucket_out()
        order.done(failure)

    work.get_future().then(finished)


def _not_finite(buffer: torch.Tensor, step: Step, nan: str) -> BaseException | None:
    """Do what the settings say about an average with a NaN or infinity: every rank has the same."""
    if is_finite(buffer):
        return None
    if nan == "skip":
        step.skipped = True
        return None
    return NonFiniteError(
        f"an averaged gradient is not finite at step {step.number}.",
        hint='Find what overflows, or pass nan="skip" to leave such steps out on every rank.',
    )


def check_finite(weights: Mapping[str, torch.Tensor], num_steps: int) -> None:
    """Raise where weights are not finite: of steps that are DDP's own, only this tells."""
    for name, parameter in weights.items():
        if not is_finite(parameter.detach()):
            raise NonFiniteError(
                f'"{name}" is not finite at step {num_steps}, on every rank.',
                hint="Find what overflows, and restart from a checkpoint.",
            )
