"""Parameter server: workers push gradients and pull weights; shards of the model live on the first ranks.

    optimizer = syncline.torch.ParameterServer(optimizer, model, servers=2, mode="asynchronous", staleness=4)

Every rank is a worker; the first `servers` ranks also serve, each a shard, on threads of their own. The servers step
with optimizers like the one that is wrapped, and follow its rates, so schedulers work as they do elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from syncline.codec.low_rank import LowRank
from syncline.errors import NonFiniteError, SynchronizationError
from syncline.runtime.periodic.averaging import Averaging, at_least
from syncline.runtime.periodic.fragment import Fragment, cut
from syncline.runtime.periodic.shard_server import CLOSE, BadGradientError, Desk, ShardServer
from syncline.runtime.periodic.target import target
from syncline.runtime.periodic.wrapper import Closure, Wrapper, evaluate
from syncline.runtime.sync.finite import is_finite
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.tensors import tensor_codec
from syncline.runtime.wire.message import FAILED, NONFINITE, Box, Stamp
from syncline.runtime.wire.team import Team

MODES = ("synchronous", "asynchronous")


class Counter:
    """A worker's side of one shard: the gradient that goes, the weights that come."""

    def __init__(self, fragment: Fragment, settings: Settings, team: Team, server: int) -> None:
        self.fragment, self.server = fragment, server
        self._team = team
        scheme = settings.scheme
        self.codec = tensor_codec(scheme, torch.device("cpu"))
        self.gradient, self.weights = fragment.new(), fragment.new()
        fragment.read(self.weights)
        self.residual = fragment.new() if settings.uses_feedback else None
        self._state = self.codec.new_state(fragment.num_elements, seed=team.rank * 4099 + server)
        size = scheme.wire_bytes(fragment.num_elements)
        self.out, self.come = Box([size]), Box([size])
        self._whole = scheme.name == "fp32"
        self.stamp = Stamp(settings.fingerprint(scheme.name), fragment.layout.fingerprint(), 0, 0)
        self.tags = (2 * server, 2 * server + 1)
        self._works: list[Any] = []

    def push(self, flags: int = 0) -> int:
        """Encode this rank's gradient and send it; return the parameter that is not finite, or -1."""
        last = self.stamp
        self.stamp = Stamp(last.codec, last.layout, last.sequence + 1, last.sequence + 1)
        bad = -1
        if not flags:
            bad = self._encode()
        self.out[0].seal(self.stamp, flags or (NONFINITE if bad >= 0 else 0), self._team.rank, max(bad, 0))
        if self.server != self._team.rank:
            if not flags:
                self._works = [self._team.receive(self.come[0].tensor, self.server, self.tags[1])]
            self._works.append(self._team.send(self.out[0].tensor, self.server, self.tags[0]))
        return bad

    def wait(self) -> None:
        """Wait until what was pushed has left and the answer, if one is due, has come."""
        for work in self._works:
            work.wait()
        self._works = []

    def pull(self) -> None:
        """Take the answer over."""
        self.codec.decode(self.come[0].payload, self.weights, add=not self._whole)
        self.fragment.write(self.weights)

    def _encode(self) -> int:
        self.fragment.read_gradients(self.gradient)
        if not is_finite(self.gradient):
            first = int(torch.nonzero(~torch.isfinite(self.gradient))[0])
            return self.fragment.layout.parameter_at(first)
        self.codec.encode(self.gradient, self.out[0].payload, self._state, self.residual)
        return -1


class ParameterServer(Wrapper):
    """Wraps any optimizer: gradients go to servers, weights come back.

    servers    ranks that serve, the first ones of the group; each has about as many elements
    mode       "synchronous": a step waits for the gradients of all; "asynchronous": each gradient is a step
    staleness  asynchronous only: pushes a worker may be ahead of the slowest; None: any number
    codec      both ways, with error feedback where the codec needs it
    Other options are those of `Settings`.
    """

    name = "parameter-server"

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        servers: int = 1,
        mode: str = "synchronous",
        codec: str = "int8",
        *,
        staleness: int | None = None,
        group: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(optimizer)
        self.mode, rounds = mode, _rounds(mode, staleness)
        chosen = self._target = target(model, group)
        settings = Settings.given({"warmup": 0, **options}, codec=codec)
        if isinstance(settings.scheme, LowRank):
            raise SynchronizationError(f'a parameter server cannot send codec "{codec}".', hint='Use "int8" or "sign".')
        meaning = {"method": self.name, "servers": servers, "mode": mode, "staleness": staleness}
        self._averaging: Averaging = Averaging(chosen, settings, meaning)
        self._averaging.compare(chosen)
        team = self._averaging.team
        if at_least("servers", servers, 1) > team.size:
            raise SynchronizationError(f"servers={servers} is more than the {team.size} ranks.")
        parts = cut(chosen, servers)
        self._counters = [Counter(part, settings, team, k) for k, part in enumerate(parts)]
        self._rank = team.rank
        self._server: ShardServer | None = None
        self._desks: list[Desk] = []
        self._sent_bytes = 0
        if team.rank < len(parts):
            self._serve(parts[team.rank], settings, team, staleness, rounds)
        if chosen.replaces is not None:
            chosen.replaces.require_backward_grad_sync = False

    @property
    def wire_bytes(self) -> int:
        """What this rank has sent as a worker, in all; answers of servers are as long."""
        return self._sent_bytes

    @torch.no_grad()
    def step(self, closure: Closure = None) -> Any:
        """Push this step's gradients and take the weights that come back."""
        loss = evaluate(closure)
        began = time.perf_counter()
        bad = [(counter, counter.push()) for counter in self._counters]
        for counter, parameter in bad:
            self._finish(counter, parameter)
        self.waited_s += time.perf_counter() - began
        self.num_steps += 1
        return loss

    @torch.no_grad()
    def synchronize(self) -> None:
        """Make all replicas equal: every rank takes what the servers have; every rank calls it at the same step."""
        team = self._averaging.team
        for counter in self._counters:
            self._averaging.barrier()
            master = counter.weights
            if counter.server == self._rank and self._server is not None:
                master.copy_(self._server.master)
            else:
                master.zero_()
            team.all_reduce(master)
            counter.fragment.write(master)
        if self._server is not None:
            self._server.everyone_has_it()

    def close(self) -> None:
        """Say goodbye to the servers and end the threads; every rank calls it."""
        if self._counters:
            for counter in self._counters:
                counter.push(CLOSE)
                counter.wait()
            if self._server is not None:
                self._server.leave(self._rank)
            for desk in self._desks:
                desk.join()
            self._counters = []
        if self._target.replaces is not None:
            self._target.replaces.require_backward_grad_sync = True
        super().close()

    def _serve(self, part: Fragment, settings: Settings, team: Team, staleness: int | None, rounds: bool) -> None:
        server = self._server = ShardServer(part, self.inner, settings.scheme, team.size, staleness, rounds)
        counter = self._counters[team.rank]
        self._desks = [
            Desk(server, team, worker, counter.tags, counter.stamp)
            for worker in range(team.size)
            if worker != team.rank
        ]
        for desk in self._desks:
            desk.start()

    def _finish(self, counter: Counter, bad: int) -> None:
        come = counter.come[0]
        if counter.server == self._rank:
            assert self._server is not None
            try:
                if bad >= 0:
                    self._server.fail(BadGradientError(self._rank, bad))
                self._server.exchange(self._rank, counter.out[0].payload, come.payload)
            except BadGradientError as error:
                raise self._not_finite(counter, error.rank, error.parameter) from None
        else:
            try:
                counter.wait()
            except RuntimeError as error:
                raise SynchronizationError(f"server {counter.server} did not answer.", detail=str(error)) from error
            self._sent_bytes += len(counter.out[0].tensor)
            flags, origin, detail = come.open(counter.stamp)
            if flags & FAILED:
                raise SynchronizationError(f"server {origin} reported a failure.", hint=f"See the error of {origin}.")
            if flags & NONFINITE:
                raise self._not_finite(counter, origin, detail)
        counter.pull()

    def _not_finite(self, counter: Counter, rank: int, parameter: int) -> NonFiniteError:
        name = counter.fragment.names[parameter]
        return NonFiniteError(
            f'the gradient of "{name}" on rank {rank} is not finite at step {self.num_steps}.',
            where=f"rank {self._rank}, step {self.num_steps}",
            hint="Find what overflows.",
        )

    def _save(self) -> dict[str, object]:
        return {
            "mode": self.mode,
            "rank": self._rank,
            "server": {} if self._server is None else self._server.to_dict(),
            "have": [counter.weights.clone() for counter in self._counters],
            "residuals": [c.residual.clone() for c in self._counters if c.residual is not None],
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        found = (state["mode"], state["rank"], len(state["have"]))
        mine = (self.mode, self._rank, len(self._counters))
        if found != mine:
            raise SynchronizationError(
                f"the saved state belongs to a {found[0]} server, rank {found[1]}, {found[2]} shards; this is "
                f"{mine[0]}, rank {mine[1]}, {mine[2]} shards.",
                hint="Every rank loads its own state, with the same number of servers.",
            )
        if self._server is not None:
            self._server.from_dict(state["server"])
        for counter, have in zip(self._counters, state["have"], strict=True):
            counter.weights.copy_(have)
        for counter, residual in zip(self._counters, state["residuals"], strict=False):
            assert counter.residual is not None
            counter.residual.copy_(residual)


def _rounds(mode: str, staleness: int | None) -> bool:
    if mode not in MODES:
        raise SynchronizationError(f'mode="{mode}" is unknown.', hint=f"Known: {', '.join(MODES)}.")
    if staleness is not None:
        at_least("staleness", staleness, 0)
        if mode == "synchronous":
            raise SynchronizationError('staleness needs mode="asynchronous": a synchronous step waits for all.')
    return mode == "synchronous"
