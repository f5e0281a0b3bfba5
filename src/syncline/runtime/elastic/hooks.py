"""When gradients are there: what is called as buckets of them fill during backward, and at its end.

A plain module's parameters say when their gradient has been added up. FSDP2 sets the gradients of shards at the end of
backward, in a call that it queues there; ours is queued from such a call, and so comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from syncline.errors import SynchronizationError
from syncline.runtime.elastic.gradients import GradientBucket
from syncline.runtime.sync.sharded import is_sharded


class BackwardWatch:
    """Calls `ready(n)` when the first n buckets have all their gradients, and `settle()` when backward is over."""

    def __init__(
        self,
        model: nn.Module,
        buckets: Sequence[GradientBucket],
        is_last: Callable[[], bool],
        ready: Callable[[int], None],
        settle: Callable[[], None],
    ) -> None:
        self._is_last, self._ready, self._settle = is_last, ready, settle
        self._sizes = [len(bucket.parameters) for bucket in buckets]
        self._place = {id(p): bucket.index for bucket in buckets for p in bucket.parameters}
        self._is_active, self._averages = False, False
        self._seen: set[int] = set()
        self._open: list[int] = []
        self._num_ready = 0
        self._hooks: list[Any] = [model.register_forward_pre_hook(self._forward)]
        if is_sharded(model):
            self._hooks.append(model.register_forward_hook(self._output))
        else:
            parameters: list[Any] = [p for bucket in buckets for p in bucket.parameters]
            self._hooks += [p.register_post_accumulate_grad_hook(self._accumulated) for p in parameters]

    def remove(self) -> None:
        """Watch no more."""
        for hook in self._hooks:
            hook.remove()

    def _forward(self, module: nn.Module, inputs: Any) -> None:
        if torch._C._current_graph_task_id() == -1:
            self._is_active = False  # a backward that was broken off has left it so

    def _output(self, module: nn.Module, inputs: Any, output: Any) -> None:
        leaves: list[Any] = _pytree.tree_leaves(output)
        for value in leaves:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                value.register_hook(lambda gradient: self._begin(twice=True))  # type: ignore[no-untyped-call]

    def _accumulated(self, parameter: torch.Tensor) -> None:
        self._begin(twice=False)
        if not self._averages:
            return
        place = self._place[id(parameter)]
        if id(parameter) in self._seen:
            if place < self._num_ready:
                raise SynchronizationError(
                    "a parameter got its gradient twice in one backward, after it was on its way to the others.",
                    hint="Use activation checkpoints with use_reentrant=False.",
                )
            return
        self._seen.add(id(parameter))
        self._open[place] -= 1
        while self._num_ready < len(self._open) and self._open[self._num_ready] == 0:
            self._num_ready += 1
        self._ready(self._num_ready)

    def _begin(self, twice: bool) -> None:
        """Note that a backward has begun; `twice`: its end is when all calls have been made that are queued for it."""
        if self._is_active:
            return
        self._is_active, self._averages = True, self._is_last()
        self._seen.clear()
        self._open, self._num_ready = list(self._sizes), 0
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback((lambda: engine.queue_callback(self._end)) if twice else self._end)

    def _end(self) -> None:
        self._is_active = False
        if self._averages:
            self._settle()
