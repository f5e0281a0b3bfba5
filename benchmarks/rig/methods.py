"""Ways to synchronise the rig's model: plain DDP, torch's own hooks, and syncline's codecs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import syncline.torch
from syncline.torch import Synchronizer

ONE_BUCKET_MB = 200.0
WARM_UP = 2


class Method:
    """A model made ready for one way of synchronising; "sign after 20" is sign after 20 steps of int8.

    "int8/4" is int8 in pieces of 4 MiB, and in buckets that are derived, as users are told to leave them.

    Without a number it is after two: few, so that steps can be timed soon, and enough that no second moment of Adam
    is 0, of which torch is slow to take the root.
    """

    def __init__(self, name: str, model: nn.Module) -> None:
        self.name = name
        self.handle: Synchronizer | None = None
        codec, _, warm_up = name.partition(" after ")
        self._codec, _, self._piece_MiB = codec.partition("/")
        self._warm_up = int(warm_up or WARM_UP)
        self._compute_only = name == "compute"
        cap: float | None = ONE_BUCKET_MB if name.startswith("torch powersgd") else BUCKET_MB.get(family(name), 25.0)
        cap = None if self._piece_MiB else cap
        self.model = DistributedDataParallel(model, bucket_cap_mb=cap, gradient_as_bucket_view=True)
        self._turn_on(name)

    def synchronising(self) -> AbstractContextManager[Any]:
        """Return the context of a step."""
        return self.model.no_sync() if self._compute_only else nullcontext()

    def close(self) -> None:
        """End what this method started."""
        if self.handle is not None:
            self.handle.close()

    def _turn_on(self, name: str) -> None:
        if name in ("compute", "ddp"):
            return
        if name == "torch fp16":
            self.model.register_comm_hook(None, fp16_compress_hook)
        elif name == "torch bf16":
            self.model.register_comm_hook(None, _bf16_hook)
        elif name.startswith("torch powersgd"):
            rank = int(name.rpartition("r")[2])
            state = PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
            self.model.register_comm_hook(state, powerSGD_hook)
        else:
            options = {"check_every": 0, "warmup": self._warm_up}
            options |= {"piece_bytes": int(self._piece_MiB) << 20} if self._piece_MiB else {}
            self.handle = syncline.torch.synchronize(self.model, codec=self._codec, **options)


BUCKET_MB: dict[str, float] = {}


def family(name: str) -> str:
    """Return a method's name without its warm-up and parameters."""
    return name.partition(" after ")[0].partition(":")[0]


def _bf16(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Do what torch's bf16 hook does, which torch refuses to run on gloo by its name."""
    small = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    future = dist.all_reduce(small, async_op=True).get_future()
    buffer = bucket.buffer()

    def widen(done: torch.futures.Future[Any]) -> torch.Tensor:
        return buffer.copy_(done.value()[0])

    return future.then(widen)


_bf16_hook: Callable[[object, Any], torch.futures.Future[torch.Tensor]] = _bf16
_bf16.__annotations__.clear()
