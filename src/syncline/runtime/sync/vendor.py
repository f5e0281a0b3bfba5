"""A bucket that the backend averages itself: one stage, its own all-reduce, waited for where all other waits are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from syncline.errors import NonFiniteError, SynchronizationError
from syncline.runtime.sync.conveyor import Piece
from syncline.runtime.sync.finite import is_finite
from syncline.runtime.sync.step import Step


class AllReduce(Piece):
    """A piece that the process group carries; begun where it is made, so that its collectives keep their order.

    The backend does all but wait, and the watchdog notifies peers.
    """

    def __init__(self, buffer: torch.Tensor, step: Step, nan: str, group: dist.ProcessGroup) -> None:
        self._buffer, self._step, self._nan = buffer, step, nan
        work = dist.all_reduce(buffer.div_(dist.get_world_size(group)), group=group, async_op=True)
        assert work is not None
        self._work = work

    def collect(self) -> None:
        """Wait for the average, and do what the settings say about a NaN in it: every rank has the same."""
        try:
            self._work.wait()
        except RuntimeError as error:
            raise SynchronizationError("an all-reduce did not finish.", detail=str(error).split("\n")[0]) from error
        if (self._buffer.is_cuda and self._nan == "raise") or is_finite(self._buffer):
            return  # a device is not waited for: `check_finite` looks at the weights now and then
        if self._nan == "skip":
            self._step.skipped = True
            return
        raise NonFiniteError(
            f"an averaged gradient is not finite at step {self._step.number}.",
            hint='Find what overflows, or pass nan="skip" to leave such steps out on every rank.',
        )


def check_finite(weights: Mapping[str, torch.Tensor], num_steps: int) -> None:
    """Raise where weights are not finite: of averages that stay on a device, only this tells."""
    for name, parameter in weights.items():
        if not is_finite(parameter.detach()):
            raise NonFiniteError(
                f'"{name}" is not finite at step {num_steps}, on every rank.',
                hint="Find what overflows, and restart from a checkpoint.",
            )
