"""FSDP2 (`fully_shard`): its reduce-scatter sends encoded shards, and an all-reduce hook averages across replicas.

FSDP2 asks for both in the middle of backward and goes on with the result, so these run in the training thread; they
still use teams of their own. A reduce-scatter is the first half of the exchange: each rank gets the sum of its shard,
which is not encoded again. Low rank wants matrices: those are the rows of a parameter that one rank owns.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from syncline.codec.low_rank import LowRank
from syncline.codec.scheme import scheme
from syncline.errors import NonFiniteError, SynchronizationError
from syncline.runtime.averagers import Averagers
from syncline.runtime.bucket import Bucket, Layout
from syncline.runtime.links import GroupLinks
from syncline.runtime.overflow import ScaleFollower, Scaler, StepSkipper
from syncline.runtime.scatter import ReduceScatter
from syncline.runtime.settings import Settings
from syncline.runtime.step import Step
from syncline.runtime.synchronizer import Synchronizer


class FsdpSynchronizer(Synchronizer):
    """Synchronises an FSDP2 model until it is closed; afterwards the model communicates as before.

    Without `across`, the reduce-scatter of shards is encoded; with it FSDP2 reduces shards as ever, and their average
    over the replicas, the ranks of `across`, is encoded.
    """

    def __init__(
        self,
        model: Any,
        settings: Settings,
        links: GroupLinks,
        across: GroupLinks | None = None,
        scaler: Scaler | None = None,
    ) -> None:
        super().__init__(settings, links, "fsdp")
        self._model = model
        self._replicated = across is not None
        if across is not None:
            self._averagers = Averagers(settings, across)
        self._follower = None if scaler is None else ScaleFollower(scaler, self.rescale)
        self._step: Step | None = None
        self._num_backwards = 0
        self._agreed = -1
        self._hooks: list[Any] = [model.register_forward_pre_hook(self._forward)]
        if settings.nan == "skip":
            self._hooks.append(StepSkipper(model.parameters(), self._is_skipped))
        self._parts: list[_Part] = []
        for name, module in model.named_modules():
            if isinstance(module, FSDPModule):
                self._parts.append(_Part(self, len(self._parts), name or "model", module))
        for part in self._parts:
            part.turn_on(self._replicated)

    def step(self) -> Step:
        """Return the step that is under way."""
        if self._step is None:
            self._step = self.open_step()
        return self._step

    def reduce_scatter(self, part: _Part, output: torch.Tensor, sent: torch.Tensor, mean: bool) -> None:
        """Leave the sum (or mean) over the ranks of this rank's shard in `output`."""
        step = self.step()
        bucket = self._bucket(part, sent, step, f"{self.num_ranks} shards")
        step.dense_bytes += (self.num_ranks - 1) * sent.nbytes // self.num_ranks
        scatter = bucket.scatter
        if scatter is None:
            self._average(bucket)
            torch.mul(sent.view(self.num_ranks, -1)[self.rank], 1.0 if mean else float(self.num_ranks), out=output)
        else:
            assert isinstance(scatter, ReduceScatter)
            if bucket.staging is not None:
                bucket.staging.copy_(sent)
            trouble = scatter.run(step, 1.0 / self.num_ranks if mean else 1.0)
            step.wire_bytes += scatter.sent_bytes
            if trouble is None:
                output.copy_(scatter.own)
            else:
                self._not_finite(part.name, trouble.rank, step, output)
        step.bucket_out()

    def all_reduce(self, part: _Part, output: torch.Tensor) -> None:
        """Average a shard over its replicas, in place."""
        step = self.step()
        bucket = self._bucket(part, output, step, "replicated shard")
        num_replicas = self._averagers.team.size
        step.dense_bytes += 2 * (num_replicas - 1) * output.nbytes // num_replicas
        self._average(bucket)
        step.bucket_out()

    def summary(self) -> str:
        """Return the last step on one line, and when warming up ends."""
        return super().summary() + self.settings.warming_up(self._last().number)

    def close(self) -> None:
        """Turn synchronisation off: the model goes on as FSDP2 does."""
        for part in self._parts:
            part.turn_off()
        self._parts.clear()
        if self.settings.accumulate > 1:
            self._model.set_requires_gradient_sync(True)
        for hook in self._hooks:
            hook.remove()
        super().close()

    def _forward(self, module: nn.Module, inputs: Any) -> None:
        """Before each forward: count accumulation, follow the scaler."""
        if not torch.is_grad_enabled():
            return
        if self.settings.accumulate > 1:
            self._num_backwards += 1
            self._model.set_requires_gradient_sync(self._num_backwards % self.settings.accumulate == 0)
        self.begin()
        if self._follower is not None:
            self._follower.look()
        self._step = None

    def _bucket(self, part: _Part, values: torch.Tensor, step: Step, held: str) -> Bucket:
        """Return the bucket of a module's gradients, at work on these values."""
        low_rank = isinstance(scheme(step.codec), LowRank)
        layout = part.matrices(values.numel(), held) if low_rank else part.vector(values.numel(), held)
        bucket = self._buckets.get(part.index)
        if bucket is None or bucket.layout != layout or bucket.buffer.dtype != values.dtype:
            make = self._averagers.bucket if low_rank or self._replicated else self._averagers.scatter
            bucket = self._buckets[part.index] = make(part.index, layout, values, step.codec)
        bucket.begin(values, step)
        step.bucket_in(part.index, values.nbytes, last=False)
        return bucket

    def _average(self, bucket: Bucket) -> None:
        """Average a whole bucket, in this thread."""
        for piece in bucket.pieces:
            piece.send()
        for piece in bucket.pieces:
            piece.reduce()
            piece.collect()

    def _is_skipped(self) -> bool:
        """Tell whether the step is skipped on any rank; of trouble across replicas only those of one shard heard."""
        step = self._step
        if step is None:
            return False
        if self._replicated and self._agreed != step.number:
            self._agreed = step.number
            flag = torch.tensor([float(step.skipped)], device=self.links.device)
            self.links.team.all_reduce(flag)
            step.skipped = bool(flag.item())
        return step.skipped

    def _not_finite(self, name: str, rank: int, step: Step, output: torch.Tensor) -> None:
        if self.settings.nan == "raise":
            raise NonFiniteError(
                f'a gradient of "{name}" on rank {rank} is not finite at step {step.number}.',
                where=f"rank {self.rank}, step {step.number}",
                hint='Find what overflows, or pass nan="skip" to leave such steps out on every rank.',
            )
        step.skipped = self.settings.nan == "skip"
        output.fill_(float("nan"))


class _Part:
    """One module that FSDP2 shards: what it calls in place of its reduce-scatter, and how its gradients lie."""

    def __init__(self, owner: FsdpSynchronizer, index: int, name: str, module: Any) -> None:
        self._owner, self.index, self.name, self._module = owner, index, name, module
        self._groups = list(module._get_fsdp_state()._fsdp_param_groups)
        self._old = [group._reduce_scatter_comm for group in self._groups]
        parameters = [parameter for group in self._groups for parameter in group.fsdp_params]
        self._names = [f"{name}.{parameter._module_info.param_name}" for parameter in parameters]
        self._shapes = [tuple(parameter.padded_sharded_param_size) for parameter in parameters]

    def turn_on(self, replicated: bool) -> None:
        """Take FSDP2's place, in its all-reduce across replicas or in its reduce-scatter."""
        if replicated:
            self._module.set_all_reduce_hook(lambda output: self._owner.all_reduce(self, output))
        else:
            self._module.set_custom_reduce_scatter(self)

    def turn_off(self) -> None:
        """Give FSDP2 its place back."""
        for group, old in zip(self._groups, self._old, strict=True):
            group._reduce_scatter_comm = old
            group._all_reduce_hook = None

    def vector(self, num_elements: int, held: str) -> Layout:
        """Return everything as one vector."""
        return Layout((f"{self.name} ({held})",), ((num_elements,),))

    def matrices(self, num_elements: int, held: str) -> Layout:
        """Return each rank's rows of each parameter as a matrix; one vector where a parameter had no gradient."""
        a_shard = sum(map(math.prod, self._shapes))
        count = num_elements // a_shard if a_shard else 0
        if count * a_shard != num_elements:
            return self.vector(num_elements, held)
        names = tuple(f"{name} ({held}, {k})" for k in range(count) for name in self._names)
        return Layout(names, tuple(self._shapes) * count)

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return room for a reduce-scatter's input or output."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Reduce and scatter; done when it returns."""
        mean = op == dist.ReduceOp.AVG
        if not mean and op != dist.ReduceOp.SUM:
            raise SynchronizationError(
                f'FSDP2 wants the gradients of "{self.name}" multiplied as they are summed, which codecs do not do.',
                hint="Leave set_gradient_divide_factor out, and scale the loss.",
            )
        self._owner.reduce_scatter(self, output_tensor, input_tensor, mean)
