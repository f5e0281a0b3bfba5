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


class Method:
    """A model made ready for one way of synchronising; "sign after 20" is sign after 20 steps of int8."""

    def __init__(self, name: str, model: nn.Module) -> None:
        self.name = name
        self.handle: Synchronizer | None = None
        self._compute_only = name == "compute"
        cap = ONE_BUCKET_MB if name.startswith("torch powersgd") else BUCKET_MB.get(name.split(":")[0], 25.0)
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
            codec, _, warmup = name.partition(" after ")
            self.handle = syncline.torch.synchronize(self.model, codec=codec, check_every=0, warmup=int(warmup or 0))


BUCKET_MB: dict[str, float] = {}


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
