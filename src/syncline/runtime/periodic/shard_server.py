"""One shard of a parameter server: master weights, the optimizer that steps them, and a thread for each worker.

Synchronous: a round waits for the gradients of all workers and steps once with their mean, summed in the order of
ranks. Asynchronous: every gradient is a step of its own; with a staleness K the answer to a worker waits while that
worker is more than K pushes ahead of the slowest.

Answers carry, in codecs other than float32, how far the master weights are from what the worker has, as the server
knows it: what an answer loses is in the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from syncline.codec.scheme import Scheme
from syncline.errors import NonFiniteError, SynchronizationError
from syncline.runtime.periodic.fragment import Fragment
from syncline.runtime.sync.tensors import tensor_codec
from syncline.runtime.wire.message import FAILED, NONFINITE, Box, Stamp
from syncline.runtime.wire.team import Team

CLOSE = 4
"""Flag: this worker is done."""


class View:
    """What a worker has of the shard, and the stream of answers to it."""

    def __init__(self, master: torch.Tensor, scheme: Scheme, seed: int) -> None:
        self.codec = tensor_codec(scheme, master.device)
        self.have = master.clone()
        self.state = self.codec.new_state(master.numel(), seed=seed)
        self.payload = torch.zeros(scheme.wire_bytes(master.numel()), dtype=torch.uint8)
        self._whole = scheme.name == "fp32"

    def encode(self, master: torch.Tensor) -> torch.Tensor:
        """Return the answer that brings the worker to the master weights, as near as the codec can."""
        if self._whole:
            self.codec.encode(master, self.payload, self.state, None)
        else:
            self.codec.encode(master - self.have, self.payload, self.state, None)
            self.codec.decode(self.payload, self.have, add=True)
        return self.payload


class ShardServer:
    """Serves one fragment to all workers; `exchange` is the call of the worker on the same rank."""

    def __init__(
        self,
        fragment: Fragment,
        inner: Optimizer,
        scheme: Scheme,
        num_workers: int,
        staleness: int | None,
        rounds: bool,
    ) -> None:
        self._fragment = fragment
        self.master = fragment.new()
        fragment.read(self.master)
        self._weights = [nn.Parameter(view) for view in fragment.views(self.master)]
        self._inner = inner
        self.optimizer, self._groups = _twin(inner, fragment, self._weights)
        self._codec = tensor_codec(scheme, self.master.device)
        self._gradients = [fragment.new() for _ in range(num_workers if rounds else 1)]
        self._views = [View(self.master, scheme, seed=k) for k in range(1 if rounds else num_workers)]
        self._clock = [0] * num_workers
        self._rounds, self._staleness = rounds, staleness
        self.version = 0
        self.failure: BaseException | None = None
        self._changed = threading.Condition()

    def exchange(self, worker: int, payload: torch.Tensor, out: torch.Tensor) -> None:
        """Take one worker's gradient and leave the answer in `out`; waits as the mode says."""
        with self._changed:
            self._check()
            self._clock[worker] += 1
            if self._rounds:
                self._round(worker, payload)
            else:
                self._codec.decode(payload, self._gradients[0])
                self._step(1)
                self._wait(lambda: self._staleness is None or self._ahead(worker) <= self._staleness)
            out.copy_(self._views[0].payload if self._rounds else self._views[worker].encode(self.master))

    def fail(self, failure: BaseException) -> None:
        """Make every call raise from here on."""
        with self._changed:
            self.failure = self.failure or failure
            self._changed.notify_all()

    def leave(self, worker: int) -> None:
        """Wait for this worker no more."""
        with self._changed:
            self._clock[worker] = 1 << 62
            self._changed.notify_all()

    def everyone_has_it(self) -> None:
        """Note that every worker has been given the master weights themselves."""
        with self._changed:
            for view in self._views:
                view.have.copy_(self.master)

    def to_dict(self) -> dict[str, object]:
        """Return what must be saved."""
        with self._changed:
            return {
                "optimizer": self.optimizer.state_dict(), "weights": self._fragment.named(self.master),
                "version": self.version, "views": [view.have.clone() for view in self._views],
            }  # fmt: skip

    def from_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `to_dict` returned."""
        with self._changed:
            self.optimizer.load_state_dict(saved["optimizer"])
            self._fragment.take(saved["weights"], self.master)
            self.version = int(saved["version"])
            for view, have in zip(self._views, saved["views"], strict=True):
                view.have.copy_(have)

    def _round(self, worker: int, payload: torch.Tensor) -> None:
        self._codec.decode(payload, self._gradients[worker])
        wanted = self.version + 1
        if min(self._clock) >= self._clock[worker]:
            for other in self._gradients[1:]:
                self._gradients[0].add_(other)
            self._step(len(self._gradients))
            self._views[0].encode(self.master)
        self._wait(lambda: self.version >= wanted)

    def _step(self, num_gradients: int) -> None:
        flat = self._gradients[0].mul_(1.0 / num_gradients)
        for weight, gradient in zip(self._weights, self._fragment.views(flat), strict=True):
            weight.grad = gradient
        for own, theirs in zip(self.optimizer.param_groups, self._groups, strict=True):
            own.update({key: value for key, value in theirs.items() if key != "params"})
        self.optimizer.step()
        self.version += 1
        self._changed.notify_all()

    def _ahead(self, worker: int) -> int:
        return self._clock[worker] - min(self._clock)

    def _wait(self, until: Any) -> None:
        self._changed.wait_for(lambda: self.failure is not None or until())
        self._check()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


class Desk(threading.Thread):
    """Where one remote worker is served: takes its pushes and sends answers until it says goodbye."""

    def __init__(self, server: ShardServer, team: Team, worker: int, tags: tuple[int, int], stamp: Stamp) -> None:
        super().__init__(name=f"syncline-server-{worker}", daemon=True)
        self._server, self._team, self._worker, self._tags, self._stamp = server, team, worker, tags, stamp
        size = server._views[0].payload.numel()
        self._in, self._out = Box([size]), Box([size])

    def run(self) -> None:
        """Serve."""
        sequence = 0
        while True:
            sequence += 1
            stamp = Stamp(self._stamp.codec, self._stamp.layout, sequence, sequence)
            try:
                self._team.receive(self._in[0].tensor, self._worker, self._tags[0]).wait()
                flags, origin, detail = self._in[0].open(stamp)
            except (RuntimeError, SynchronizationError) as error:
                self._server.fail(SynchronizationError(f"worker {self._worker} is lost: {str(error).splitlines()[0]}"))
                return
            if flags & CLOSE:
                self._server.leave(self._worker)
                return
            if not self._answer(stamp, flags, origin, detail):
                return

    def _answer(self, stamp: Stamp, flags: int, origin: int, detail: int) -> bool:
        out = self._out[0]
        try:
            if flags & NONFINITE:
                self._server.fail(BadGradientError(origin, detail))
            self._server.exchange(self._worker, self._in[0].payload, out.payload)
            out.seal(stamp)
        except BadGradientError as bad:
            out.seal(stamp, NONFINITE, bad.rank, bad.parameter)
        except Exception as error:  # whatever it is, the worker must hear of it, or it would wait for ever
            self._server.fail(error)
            out.seal(stamp, FAILED, self._team.rank)
        try:
            self._team.send(out.tensor, self._worker, self._tags[1]).wait()
        except RuntimeError as error:
            self._server.fail(SynchronizationError(f"worker {self._worker} is lost: {str(error).splitlines()[0]}"))
        return self._server.failure is None


class BadGradientError(NonFiniteError):
    """A worker's gradient is not finite: whose, and which parameter of the shard."""

    def __init__(self, rank: int, parameter: int) -> None:
        super().__init__(f"a gradient of rank {rank} is not finite.")
        self.rank, self.parameter = rank, parameter


def _twin(
    inner: Optimizer, fragment: Fragment, weights: list[nn.Parameter]
) -> tuple[Optimizer, list[dict[str, object]]]:
    """Return an optimizer like the inner one on the shard's weights, and the inner groups it follows."""
    twins = dict(zip(map(id, fragment.parameters), weights, strict=True))
    made, followed = [], []
    for group in inner.param_groups:
        own = [twins[id(p)] for p in group["params"] if id(p) in twins]
        if own:
            made.append({**{k: v for k, v in group.items() if k != "params"}, "params": own})
            followed.append(group)
    if sum(len(group["params"]) for group in made) != len(weights):
        raise SynchronizationError("the optimizer does not have every parameter that requires a gradient.")
    kind: Any = type(inner)
    return kind(made), followed
