"""DistributedDataParallel: its communication hook enqueues buckets and returns futures; the rest is the handle's."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from syncline.runtime.bucket import Layout
from syncline.runtime.settings import Settings
from syncline.runtime.step import Step
from syncline.runtime.synchronizer import Synchronizer


class DdpSynchronizer(Synchronizer):
    """Synchronises a DDP model until it is closed."""

    def __init__(self, model: DistributedDataParallel, settings: Settings, groups: list[dist.ProcessGroup]) -> None:
        super().__init__(settings, groups, "ddp")
        self._names = {id(p): name for name, p in model.module.named_parameters()}
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._step: Step | None = None
        self._before = model.register_forward_pre_hook(torch.compiler.disable(self._forward))
        model.register_comm_hook(self, _hook)

    def bucket(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Enqueue a bucket and return the future of its average."""
        if bucket.index() == 0 or self._step is None:
            self._step = self.open_step()
            self._at_end_of_backward(self._step)
        buffer = bucket.buffer()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

        def done(failure: BaseException | None) -> None:
            if failure is None:
                future.set_result(buffer)
            else:
                future.set_exception(failure)  # type: ignore[arg-type]

        self.average(bucket.index(), buffer, self._layout(bucket), self._step, done, bucket.is_last())
        return future

    def _forward(self, module: torch.nn.Module, inputs: Any) -> None:
        if torch.is_grad_enabled():
            self.begin()

    def _at_end_of_backward(self, step: Step) -> None:
        try:
            torch.autograd.Variable._execution_engine.queue_callback(lambda: self.settle(step))
        except RuntimeError:
            # Outside backward: a rank that has joined early shadows the others, and DDP waits for the futures.
            return

    def _layout(self, bucket: dist.GradBucket) -> Layout:
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        layout = self._layouts.get(key)
        if layout is None:
            names = tuple(self._names[i] for i in key)
            layout = self._layouts[key] = Layout(names, tuple(p.numel() for p in parameters))
        return layout


def _hook(state: DdpSynchronizer, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return state.bucket(bucket)


# DDP compares the annotation with the class itself, and annotations are texts here.
_hook.__annotations__.clear()
