"""FSDP2 (`fully_shard`): its reduce-scatter sends encoded shards; on a mesh with replicas their all-reduce is encoded.

FSDP2 asks for both in the middle of backward and goes on with the result. The exchange still runs on the handle's own
threads, so that the training thread's wait ends, with the rank's name, when one is lost; so does its wait for a gather
of parameters. A reduce-scatter is the first half of the exchange: each rank gets the sum of its shard, which is not
encoded again. Low rank wants matrices: those are the rows of a parameter that one rank owns.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from syncline.codec.low_rank import LowRank
from syncline.codec.names import scheme
from syncline.errors import SynchronizationError
from syncline.runtime.alive.replicas import compare, compare_settings, fingerprints
from syncline.runtime.sync.averagers import Averagers
from syncline.runtime.sync.axes import MeshAxes, local
from syncline.runtime.sync.bucket import Bucket
from syncline.runtime.sync.conveyor import BucketJob, Piece
from syncline.runtime.sync.geometry import Geometry, owed_by_all
from syncline.runtime.sync.optimizer_hooks import OptimizerSteps, ScaleFollower, Scaler
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.sharded import ShardPart, shard_parts
from syncline.runtime.sync.step import Step
from syncline.runtime.sync.streams import refuse_capture
from syncline.runtime.sync.synchronizer import Synchronizer, explained
from syncline.runtime.wire.links import GroupLinks
from syncline.runtime.wire.team import Team

POLL_S = 0.2
"""How often a wait for a backend's own collective looks whether a rank was lost."""


class FsdpSynchronizer(Synchronizer):
    """Synchronises an FSDP2 model until it is closed; afterwards the model communicates as before.

    Without `across`, the reduce-scatter of shards is encoded; with it FSDP2 reduces shards as ever, and their average
    over the replicas, the ranks of `across`, is encoded. `everyone` are the ranks of all replicas.
    """

    ends_all_waits = True

    def __init__(
        self,
        model: Any,
        settings: Settings,
        links: GroupLinks,
        across: GroupLinks | None = None,
        scaler: Scaler | None = None,
        everyone: Team | None = None,
        *,
        axes: MeshAxes,
    ) -> None:
        super().__init__(settings, links, "fsdp", everyone)
        self._model = model
        self._axes = axes
        self._everyone = everyone
        self._across = across
        self._replicated = across is not None
        if across is not None:
            self._averagers = Averagers(settings, across)
        self._follower = None if scaler is None else ScaleFollower(scaler, self.rescale)
        self._step: Step | None = None
        self._agreed = -1
        self._turns = OptimizerSteps(model.parameters(), self._is_skipped if settings.nan == "skip" else None)
        self._hooks: list[Any] = [self._turns, model.register_forward_pre_hook(self._forward)]
        self._parts = shard_parts(self, model)
        self.geometry = Geometry(
            {name: one for part in self._parts for name, one in part.shardings.items()},
            links.num_ranks,
            links.rank if self._replicated else -1,
        )
        for part in self._parts:
            part.turn_on(self._replicated)
        if axes.groups:  # tensor parallelism talks in forward too, and has no hook around that
            model.forward = explained(model.forward, weakref.ref(self))

    def step(self) -> Step:
        """Return the step that is under way."""
        self.phase = "backward"
        if self._step is None:
            self._step = self.open_step()
            self._step.turn = self._turns.count
        return self._step

    def reduce_scatter(self, part: ShardPart, output: torch.Tensor, sent: torch.Tensor, mean: bool) -> None:
        """Leave the sum (or mean) over the ranks of this rank's shard in `output`."""
        step = self.step()
        bucket = self._bucket(part, sent, step, 1.0 / self.num_ranks if mean else 1.0)
        step.dense_bytes += (self.num_ranks - 1) * sent.nbytes // self.num_ranks
        self._carry_out(bucket.pieces, step)
        whole = 1.0 if mean or bucket.program.scatter_only else float(self.num_ranks)
        torch.mul(sent.view(self.num_ranks, -1)[self.rank], whole, out=output)

    def all_reduce(self, part: ShardPart, output: torch.Tensor) -> None:
        """Average a shard over its replicas, in place."""
        step = self.step()
        bucket = self._bucket(part, output, step)
        num_replicas = self._averagers.team.size
        step.dense_bytes += 2 * (num_replicas - 1) * output.nbytes // num_replicas
        self._carry_out(bucket.pieces, step)

    def wait_for(self, start: Callable[[], dist.Work]) -> None:
        """Start a collective of FSDP2's own and wait for it, unless a rank is lost meanwhile."""
        try:
            work = start()
            over = _end_of(work)
            with self.steps[-1].waiting() if self.steps else contextlib.nullcontext():
                while not over.wait(POLL_S):
                    if self.failure is not None:
                        raise self.failure_of(self.failure)
            work.wait()
        except RuntimeError as error:
            detail = str(error).split("\n")[0]
            vague = SynchronizationError("a collective of FSDP2 did not finish.", detail=detail)
            raise self.failure_of(vague) from error

    def state_dict(self, *, local: bool = False) -> dict[str, object]:
        """Return what must outlive the process; what is owed by whole parameters, or as this rank keeps it."""
        state = super().state_dict(local=local)
        if local:
            return {**state, "geometry": self.geometry.to_json()}
        owed = {name: part.cpu() for name, part in state["residuals"].items()}
        ranks = self._gathered(owed) if self._replicated else [(self.geometry, owed)]
        return {**state, "residuals": owed_by_all(ranks, 1)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, here or in a run with another number of ranks or another mesh."""
        saved = state.get("geometry")
        if saved is None:
            laid = self.geometry.lay_out(state["residuals"])
            state = {**state, "residuals": laid}
        elif Geometry.from_json(saved) != self.geometry:
            raise SynchronizationError(
                "the saved state is from another mesh or another model.",
                hint="Save with state_dict(), without local=True, or with Checkpoints, to resume on another mesh.",
            )
        super().load_state_dict({key: value for key, value in state.items() if key != "geometry"})

    def close(self) -> None:
        """Turn synchronisation off: the model goes on as FSDP2 does."""
        for part in self._parts:
            part.turn_off()
        self._model.__dict__.pop("forward", None)
        self._parts.clear()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        super().close()
        if self._across is not None:
            self._across.close()

    def break_off(self, failure: BaseException) -> None:
        """End every wait with this failure, across replicas too."""
        super().break_off(failure)
        if self._across is not None:
            self._across.break_off(str(failure))

    def _forward(self, module: nn.Module, inputs: Any) -> None:
        """Before each forward: follow the scaler."""
        if not torch.is_grad_enabled():
            return
        refuse_capture()
        self.phase = "forward"
        self.begin()
        if self._follower is not None:
            self._follower.look()
        self._step = None
        self._compare()

    def check_replicas(self) -> None:
        """Compare what several ranks hold whole, on every axis of the mesh, and raise where any differ."""
        compare_settings(self._turns.optimizers, self._everyone or self.links.team, self._num_steps)
        if self._across is not None:
            held = [local(parameter) for parameter in self._axes.parameters.values()]
            compare(fingerprints(held), list(self._axes.parameters), self._across.team, self._num_steps, "replicas")
        self._axes.compare(self._num_steps)

    def _bucket(self, part: ShardPart, values: torch.Tensor, step: Step, scale: float = 1.0) -> Bucket:
        """Return the bucket of a module's gradients, at work on these values; a sum that is scattered is scaled."""
        scatters = not (self._replicated or isinstance(scheme(step.codec), LowRank))
        layout = part.layout(values.numel(), self.geometry, self._axes)
        bucket = self._buckets.get(part.index)
        if bucket is None or bucket.layout != layout or bucket.buffer.dtype != values.dtype:
            bucket = self._averagers.bucket(part.index, layout, values, step.codec, scatter_only=scatters)
            self._buckets[part.index] = bucket
        bucket.begin(values, step, scale if scatters else None)
        step.bucket_in(part.index, values.nbytes, last=False)
        return bucket

    def _carry_out(self, pieces: Sequence[Piece], step: Step) -> None:
        """Exchange on the handle's threads and wait; a lost rank ends the wait."""
        over = threading.Event()
        failures: list[BaseException] = []

        def done(failure: BaseException | None) -> None:
            if failure is not None:
                failures.append(failure)
            over.set()

        self._streams.follow()
        self._conveyor.submit(BucketJob(list(pieces), done))
        over.wait()
        step.bucket_out()
        if failures:
            raise self.failure_of(failures[0])
        self._streams.lead()

    def _gathered(self, owed: Mapping[str, torch.Tensor]) -> list[tuple[Geometry, dict[str, torch.Tensor]]]:
        """Return what every shard's ranks owe: padded shards are equally long, so one collective brings each."""
        geometry, team = self.geometry, self.links.team
        columns: list[tuple[Geometry, dict[str, torch.Tensor]]] = [
            (Geometry(geometry.parameters, geometry.num_shards, k), {}) for k in range(team.size)
        ]
        for name in sorted(owed):
            own = owed[name].to(team.device)
            rooms = [torch.empty_like(own) for _ in range(team.size)]
            team.all_gather(rooms, own).wait()
            for (_, column), room in zip(columns, rooms, strict=True):
                column[name] = room.cpu()
        return columns

    def _is_skipped(self) -> bool:
        """Tell whether the step is skipped on any rank; of trouble only those heard who average with the one."""
        step = self._step
        if step is None:
            return False
        if self._everyone is not None and self._agreed != step.number:
            self._agreed = step.number
            flag = torch.tensor([float(step.skipped)], device=self._everyone.device)
            self._everyone.all_reduce(flag)
            step.skipped = bool(flag.item())
        return step.skipped


def _end_of(work: dist.Work) -> threading.Event:
    """Return what is set when a collective has ended, well or not; gloo's reduce-scatter has no future to ask."""
    over = threading.Event()
    try:
        work.get_future().then(lambda _: over.set())
    except RuntimeError:

        def wait() -> None:
            with contextlib.suppress(RuntimeError):
                work.wait()
            over.set()

        threading.Thread(target=wait, name="syncline-fsdp-wait", daemon=True).start()
    return over
