"""DistributedDataParallel: its communication hook enqueues buckets and returns futures; the rest is the handle's.

Sparse gradients (of embeddings) are averaged as DDP does: no codec knows them. Complex ones travel as pairs of reals.
"""

from __future__ import annotations

import sys
import time
import weakref
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from syncline.codec.low_rank import LowRank
from syncline.errors import SynchronizationError
from syncline.runtime.alive.replicas import compare, compare_at_end, compare_settings, fingerprints
from syncline.runtime.sync.axes import MeshAxes
from syncline.runtime.sync.bucket import Layout, Order
from syncline.runtime.sync.early import EarlyUpdates
from syncline.runtime.sync.optimizer_hooks import OptimizerSteps, ScaleFollower, Scaler
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.step import Step
from syncline.runtime.sync.streams import future_of, refuse_capture
from syncline.runtime.sync.synchronizer import Synchronizer, explained
from syncline.runtime.wire.links import GroupLinks
from syncline.runtime.wire.team import Team

Future = torch.futures.Future[torch.Tensor]


class GradBucket(Protocol):
    """What DDP hands to a hook."""

    def index(self) -> int: ...

    def is_last(self) -> bool: ...

    def buffer(self) -> torch.Tensor: ...

    def parameters(self) -> list[torch.Tensor]: ...

    def gradients(self) -> list[torch.Tensor]: ...


class DdpSynchronizer(Synchronizer):
    """Synchronises a DDP model until it is closed; afterwards the model averages as plain DDP does."""

    ends_all_waits = True
    fits_buckets = True
    """Whether buckets that DDP chose itself become as large as pieces; on a GPU pieces are larger than those."""

    def __init__(
        self,
        model: DistributedDataParallel,
        settings: Settings,
        links: GroupLinks,
        scaler: Scaler | None = None,
        updates: EarlyUpdates | None = None,
        *,
        axes: MeshAxes,
        everyone: Team | None = None,
    ) -> None:
        check_free(model)
        super().__init__(settings, links, "ddp", everyone, in_order=updates is not None)
        self._axes = axes
        # DDP holds this handle where the garbage collector does not look: a strong way back would keep both for ever.
        self._weak_model = weakref.ref(model)
        self._group = model.process_group
        self._names = {id(p): name for name, p in model.module.named_parameters() if p.requires_grad}
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._step: Step | None = None
        self._follower = None if scaler is None else ScaleFollower(scaler, self.rescale)
        self._closed = False
        trained = [p for p in model.module.parameters() if p.requires_grad]
        skips = (lambda: self._step is not None and self._step.skipped) if settings.nan == "skip" else None
        self._turns = OptimizerSteps(trained, skips)
        self._hooks: list[Any] = [self._turns]
        self._updates = updates
        self._awaited: list[tuple[Future, list[torch.Tensor], list[torch.Tensor]]] = []
        if updates is not None:
            self._hooks.append(updates)
        self._bucket_bytes = cast("Any", model).bucket_bytes_cap
        if self.fits_buckets and not isinstance(settings.scheme, LowRank):  # low rank sends a bucket as one piece
            fit_buckets(model, self.piece_bytes)
        self.turn_on(model)

    def turn_on(self, model: DistributedDataParallel) -> None:
        """Average this model's gradients from the next backward on."""
        self._is_on = True
        self._before_forward = model.register_forward_pre_hook(outside_graphs(self._forward))
        model.register_comm_hook(self, _hook)
        # Before forward DDP talks to all ranks itself, of buckets and buffers, and has no hook around that. The private
        # call is there in torch 2.1 to 2.13; where it is not, only a loss in this phase goes unnamed.
        if hasattr(model, "_pre_forward"):
            cast("Any", model)._pre_forward = outside_graphs(explained(model._pre_forward, weakref.ref(self)))

    def turn_off(self, model: DistributedDataParallel) -> None:
        """Let DDP average from the next backward on."""
        self._is_on = False
        self._before_forward.remove()
        model.__dict__.pop("_pre_forward", None)
        cast("Any", model).bucket_bytes_cap = self._bucket_bytes
        renew(model)

    @property
    def turns(self) -> OptimizerSteps:
        """The optimizer steps that the model has had."""
        return self._turns

    def bucket(self, bucket: GradBucket) -> Future:
        """Enqueue a bucket and return the future of its average."""
        if self._closed:
            return _plain(bucket, self._group)
        refuse_capture()
        self.phase = "backward"
        if bucket.index() == 0 or self._step is None:
            self._step = self.open_step()
            self._awaited = []
            self._at_end_of_backward(self._step)
        buffer = bucket.buffer()
        if buffer.is_sparse:
            return _plain(bucket, self._group)
        future = future_of(buffer)

        def done(failure: BaseException | None) -> None:
            if failure is None:
                future.set_result(buffer)
            else:
                future.set_exception(failure)  # type: ignore[arg-type]

        if self._updates is not None:
            self._awaited.append((future, bucket.parameters(), bucket.gradients()))
        values = torch.view_as_real(buffer).view(-1) if buffer.is_complex() else buffer
        self.average(Order(bucket.index(), values, self._layout(bucket), self._step, done, bucket.is_last()))
        # Through `then` a failure becomes one that DDP itself raises, where no end of backward can raise it.
        return future.then(lambda done: done.wait())

    def _meanwhile(self, step: Step) -> None:
        """Update each bucket's parameters when it has come, where an optimizer was given."""
        awaited, self._awaited = self._awaited, []
        for number, (future, parameters, gradients) in enumerate(awaited):
            step.wait(number + 1)
            if self._updates is None or self.failure is not None:
                return
            future.wait()  # on a device: this stream waits for the one that averaged
            began_s = time.perf_counter()
            self._updates.update(parameters, gradients)
            step.updates.append((began_s, time.perf_counter()))

    def close(self) -> None:
        """Turn synchronisation off: the model goes on as plain DDP."""
        if self._closed:
            return
        self._closed = True
        self.phase = "close"
        model = self._weak_model()
        prints = self._prints() if self._is_to_compare() else {}
        for hook in self._hooks:
            hook.remove()
        super().close()
        if model is not None:
            model.require_backward_grad_sync = True
            if self._is_on:
                self.turn_off(model)
        if prints:
            own = torch.tensor(list(prints.values()))
            compare_at_end(own, list(prints), self.links.team, self._num_steps, self.settings.watch_s)

    def _is_to_compare(self) -> bool:
        """Whether ranks that close have anything to compare: steps since the last time, and nothing that went wrong."""
        every, since = self.settings.check_every, self._num_steps - self._checked
        ends_well = self.failure is None and sys.exc_info()[1] is None
        return bool(every and since and ends_well and self.num_ranks > 1 and not joining(self._weak_model()))

    def open_step(self) -> Step:
        """Return a new step; it knows how many optimizer steps went before, unless ranks may differ in that."""
        step = super().open_step()
        step.turn = 0 if joining(self._weak_model()) else self._turns.count
        return step

    def check_replicas(self) -> None:
        """Compare the parameters of all ranks and raise on every rank if any differ; every rank calls it."""
        prints = self._prints()
        compare_settings(self._turns.optimizers, self.links.team, self._num_steps)
        compare(torch.tensor(list(prints.values())), list(prints), self.links.team, self._num_steps)
        self._axes.compare(self._num_steps)

    def _trained(self) -> dict[str, torch.Tensor]:
        model = self._weak_model()
        return {} if model is None else {n: p for n, p in model.module.named_parameters() if p.requires_grad}

    def _prints(self) -> dict[str, int]:
        """Return a number for each parameter, which must be alike on every rank."""
        held = self._trained()
        return dict(zip(held, fingerprints(list(held.values())).tolist(), strict=True))

    def _forward(self, module: Any, inputs: Any) -> None:
        """Before each forward: follow the scaler, compare replicas now and then."""
        if not torch.is_grad_enabled():
            return
        refuse_capture()
        self.begin()
        if self._follower is not None:
            self._follower.look()
        if not joining(module):
            self._compare()

    def _at_end_of_backward(self, step: Step) -> None:
        engine: Any = torch.autograd.Variable._execution_engine
        try:
            engine.queue_callback(lambda: self.settle(step))
        except RuntimeError:
            # Outside backward: a rank that has joined early shadows the others, and DDP waits for the futures.
            return

    def _layout(self, bucket: GradBucket) -> Layout:
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        layout = self._layouts.get(key)
        if layout is None:
            names = tuple(self._names[i] for i in key)
            shapes = [(*p.shape, 2) if p.is_complex() else tuple(p.shape) for p in parameters]
            cut = [self._axes.cut(name) for name in names]
            layout = self._layouts[key] = Layout.apart(names, shapes, cut)
        return layout


def joining(model: Any) -> bool:
    """Whether a model is inside `join()`: ranks whose data has ended take no part in what others gather."""
    return bool(getattr(getattr(model, "_join_config", None), "enable", False))


def _plain(bucket: GradBucket, group: dist.ProcessGroup) -> Future:
    """Average as DDP does without a hook."""
    buffer = bucket.buffer().div_(dist.get_world_size(group))
    work = dist.all_reduce(buffer, group=group, async_op=True)
    assert work is not None
    future: Future = work.get_future().then(lambda done: done.value()[0])
    return future


def outside_graphs(call: Any) -> Any:
    """Return a call that a compiler leaves out of its graphs."""
    disable: Any = torch.compiler.disable
    return disable(call)


def check_free(model: DistributedDataParallel) -> None:
    """Refuse a model whose gradients somebody else already averages."""
    hooks = getattr(model, "_comm_hooks", [])
    if hooks:
        hook, state = hooks[0]
        if hasattr(state, "settings"):
            raise SynchronizationError(
                "this model is synchronised already.", hint="Call close() on its handle before you make another."
            )
        name = getattr(hook, "__qualname__", str(hook))
        raise SynchronizationError(
            f'this DDP model has the communication hook "{name}" already.',
            hint="Leave it out (mixed_precision= of DDP registers one too; torch.autocast does not).",
        )


def renew(model: DistributedDataParallel) -> None:
    """Make the reducer anew, without a hook: gradients are averaged as plain DDP averages them.

    torch lets a reducer have one communication hook, once, and never takes it back; nor are its buckets cut anew. These
    calls are private and were tested with torch 2.4 to 2.13. They are made between two steps, on every rank at the same
    one; gradients that are there stay where they are.
    """
    owner: Any = model
    parameters, expect_sparse = owner._build_params_for_reducer()
    names = owner._build_debug_param_to_name_mapping(parameters)
    owner._ddp_init_helper(parameters, expect_sparse, names, owner.static_graph)
    if owner.static_graph:
        owner.reducer._set_static_graph()
        owner.logger._set_static_graph()
        owner._static_graph_delay_allreduce_enqueued = False
    owner._has_rebuilt_buckets = False
    owner._comm_hooks.clear()


def fit_buckets(model: DistributedDataParallel, bucket_bytes: int) -> None:
    """Make buckets of this size where the user has not set a size and DDP would make larger ones.

    A bucket is sent when its last gradient is there: while a large one fills, the network is idle, and the last one is
    whole when the backward pass is over. DDP's default suits collectives, each of which costs; here pieces are sent.
    """
    owner, torch_distributed = cast("Any", model), cast("Any", dist)
    if bucket_bytes < torch_distributed._DEFAULT_FIRST_BUCKET_BYTES:  # compilers want the first to be the smallest
        return
    held = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    if getattr(owner, "bucket_bytes_cap_default", False) and bucket_bytes < min(held, owner.bucket_bytes_cap):
        owner.bucket_bytes_cap = bucket_bytes
        renew(model)


def _hook(state: DdpSynchronizer, bucket: Any) -> Future:
    return state.bucket(bucket)


# DDP compares an annotation with the class itself, and annotations are texts here.
_hook.__annotations__.clear()
