"""DiLoCo: many local steps, then an outer step with Nesterov momentum along what all ranks moved on average.

    optimizer = syncline.torch.DiLoCo(optimizer, model, every=50, codec="int4")

With outer_lr=1.0 and momentum=0.0 the outer step takes the average itself: local SGD.
Streamed, the model is cut into fragments. Fragment k is launched at its own step of the period: how far it has moved
from the weights agreed on last is averaged in the background while steps go on. When the average arrives, every rank
makes the same outer step, and adds to the new agreed weights what it has itself moved meanwhile: no local step is lost
and none counts twice. The staleness of a fragment is the number of steps between its launch and its arrival.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from syncline.errors import SynchronizationError
from syncline.runtime.periodic.averaging import Averaging, Flight
from syncline.runtime.periodic.crew import Crew, Formation
from syncline.runtime.periodic.crew_averaging import CrewAveraging, check_crew, is_loss
from syncline.runtime.periodic.fragment import cut
from syncline.runtime.periodic.shared import SharedFragment, reconcile
from syncline.runtime.periodic.target import alone, target
from syncline.runtime.periodic.wrapper import Closure, Wrapper
from syncline.runtime.sync.settings import Settings, at_least

METHOD, STATE_VERSION = "diloco", 1
DEFAULT_FRAGMENTS = 8
ATTEMPTS = 5
"""How often those who are left try to connect anew, where one more is lost each time."""


class DiLoCo(Wrapper):
    """Wraps any optimizer: `every` local steps of it, then one outer step that all ranks make alike.

    every      local steps between outer steps
    codec      what outer gradients are sent in, with error feedback where the codec needs it
    outer_lr, momentum   of the outer step, with Nesterov; the defaults are those of the DiLoCo paper
    fragments  number of fragments; default 8, or `every` if that is less
    delay      apply an average exactly so many steps after its launch: runs repeat bit for bit; None: on arrival,
               inside a site when the next fragment is launched. With fragments=1, delay=0 everything is averaged at
               once, while training waits
    group      the ranks to average over, by default the world; levels: see `synchronize`
    crew       in place of a group: training continues without lost ranks, and readmits them when they come back
    Other options are those of `Settings`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        every: int = 50,
        codec: str = "int8",
        *,
        outer_lr: float = 0.7,
        momentum: float = 0.9,
        fragments: int | None = None,
        delay: int | None = None,
        group: Any = None,
        levels: object = None,
        crew: Crew | None = None,
        **options: Any,
    ) -> None:
        super().__init__(optimizer)
        self.num_steps = 0
        self.waited_s = 0.0
        """How long the training thread has waited for others, in all."""
        self.every = at_least("every", every, 1)
        self.outer_lr, self.outer_momentum = outer_lr, momentum
        self.delay = _delay(delay, every)
        chosen = target(model, group, levels) if crew is None else alone(model)
        if crew is not None:
            options = {"wait_s": 0.0, **options}  # those who are left go on, and one that comes back is let in again
        settings = Settings.given({"warmup": 0, **options}, codec=codec, levels=chosen.levels)
        count = at_least("fragments", fragments, 1) if fragments is not None else min(DEFAULT_FRAGMENTS, every)
        meaning = {
            "method": METHOD, "every": every, "outer_lr": outer_lr, "momentum": momentum, "fragments": count,
            "delay": delay,
        }  # fmt: skip
        self._averaging: Averaging
        if crew is None:
            self._averaging = Averaging(chosen, settings, meaning)
        else:
            check_crew(settings, group, levels)
            self._averaging = CrewAveraging(chosen, settings, meaning, crew)
        self._target = chosen
        parts = cut(chosen.names, chosen.parameters, count)
        if chosen.has_site and self.delay is None:
            self.delay = every // len(parts)  # ranks of a site stay replicas: all take an average at one step
        streamed = self.delay != 0 or len(parts) > 1
        self._shared = [
            SharedFragment(part, (k + 1) * every // len(parts) % every, momentum=momentum != 0, streamed=streamed)
            for k, part in enumerate(parts)
        ]
        self._num_launches, self._num_entries = 0, 0
        self._to_launch: list[int] = []
        self._first_door = 0
        """The first step at which every member of the formation asks who is to be let in: some may be past others."""
        if crew is None or crew.formation.number == 0:
            self._averaging.compare(chosen)
        else:
            self._take_place(crew.formation)
        if chosen.replaces is not None:
            chosen.replaces.require_backward_grad_sync = False

    @torch.no_grad()
    def step(self, closure: Closure = None) -> Any:
        """Make a local step; apply what has arrived, and launch what is due."""
        self._look_around()
        loss = self.inner.step(closure)
        self.num_steps += 1
        while not self._advance():
            self.num_steps += 1
        return loss

    @property
    def wire_bytes(self) -> int:
        """What this rank has sent across, in all."""
        return self._averaging.wire_bytes

    @property
    def staleness(self) -> list[int]:
        """Steps between launch and arrival of each fragment, the last time."""
        return [shared.staleness for shared in self._shared]

    @torch.no_grad()
    def synchronize(self) -> None:
        """Finish what is under way and average what ranks have done since: all replicas are then equal.

        It is no outer step: within a period, momentum would carry the weights on without anything new to show the way.
        """
        entries = self._num_entries
        self._land_all()
        for index, shared in enumerate(self._shared):
            if entries == self._num_entries:
                shared.guests, shared.is_plain = frozenset(), True
                self._launch(index)
        self._land_all()

    def close(self) -> None:
        """Finish what is under way, end the threads, and give DDP its averaging back."""
        if self._target.replaces is not None:
            self._target.replaces.require_backward_grad_sync = True
        try:
            with torch.no_grad():
                self._land_all()
        finally:
            self._averaging.close()

    def _arrives(self, shared: SharedFragment, flight: Flight) -> bool:
        if self.delay is not None:
            return self.num_steps - flight.step >= self.delay
        return flight.landed

    def _advance(self) -> bool:
        """Land and launch what this step asks for; False: this rank was let in anew meanwhile, at another step."""
        entries = self._num_entries
        for index, shared in enumerate(self._shared):
            flight = shared.flight
            due = self.num_steps % self.every == shared.offset
            if flight is not None and (due or self._arrives(shared, flight)):
                self._land(shared)
            if due and entries == self._num_entries:
                self._launch(index)
                if self.delay == 0:
                    self._land(shared)
            if entries != self._num_entries:
                return False
        return True

    def _launch(self, index: int) -> None:
        self._to_launch.append(index)
        self._launch_all()

    def _launch_all(self) -> None:
        while self._to_launch:
            with self._going_on():
                shared = self._shared[self._to_launch[0]]
                shared.pack_among(self._averaging.team.members, self._averaging.team.members[self._averaging.rank])
                layout = shared.fragment.layout
                shared.flight = self._averaging.launch(self._to_launch[0], shared.moved, layout, self.num_steps)
                shared.serial = self._num_launches = self._num_launches + 1
                del self._to_launch[0]

    def _land(self, shared: SharedFragment) -> None:
        while (flight := shared.flight) is not None:
            with self._going_on():
                self.waited_s += flight.wait()
            if shared.flight is flight:
                self._apply(shared)
            self._launch_all()

    def _land_all(self) -> None:
        for shared in self._shared:
            self._land(shared)

    def _apply(self, shared: SharedFragment) -> None:
        shared.outer_step(self.outer_lr, self.outer_momentum)
        shared.take(self.num_steps)

    # Ranks that come and go

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[None]:
        """Connect those who are left where a rank of the crew is lost; without a crew the failure stands."""
        try:
            yield
        except (SynchronizationError, RuntimeError) as failure:
            self._go_on(failure)

    def _go_on(self, failure: Exception) -> None:
        averaging = self._averaging
        if not isinstance(averaging, CrewAveraging) or not is_loss(failure):
            raise failure
        averaging.break_off(failure)
        for shared in self._shared:
            if shared.flight is None:
                continue
            if shared.flight.is_whole:
                self._apply(shared)
            else:
                shared.renew()
        for _ in range(ATTEMPTS):
            try:
                return self._take_place(averaging.form_anew())
            except RuntimeError as again:  # one more was lost while the others connected
                failure = again
        raise failure

    def _take_place(self, formation: Formation) -> None:
        """Be at one with the others of a formation, and note what is to be launched again."""
        averaging = self._averaging
        assert isinstance(averaging, CrewAveraging)
        is_new = averaging.is_new
        if is_new:
            for shared in self._shared:
                shared.flight, shared.is_plain = None, False
        self.num_steps, self._first_door, new = reconcile(self._shared, averaging.team, self.num_steps, is_new)
        dropped = sorted((shared.serial, k) for k, shared in enumerate(self._shared) if shared.flight is not None)
        averaging.hand_on([k for _, k in dropped])
        for shared in self._shared:
            shared.flight = None
            if shared.offset:
                shared.guests |= new
        self._to_launch = [] if is_new else [*(k for _, k in dropped), *self._to_launch]
        if is_new:
            self._num_entries += 1
            self.inner.zero_grad()  # of weights that are no more

    def _look_around(self) -> None:
        """See whether a rank of the crew was lost, and let those in that wait, where a period begins."""
        averaging = self._averaging
        if not isinstance(averaging, CrewAveraging):
            return
        if averaging.failure is not None:
            with self._going_on():
                raise averaging.failure
            self._launch_all()
        if self.num_steps == 0 or self.num_steps % self.every:
            return
        entries = self._num_entries
        while entries == self._num_entries and self.num_steps >= self._first_door:
            tickets = averaging.crew.waiting(self.num_steps)
            if not tickets:
                return
            number = averaging.crew.formation.number
            self._land_all()
            if number == averaging.crew.formation.number:  # nobody was lost meanwhile
                with self._going_on():
                    self._take_place(averaging.let_in(tickets))
                self._launch_all()

    def state_dict(self) -> dict[str, object]:
        """Return what this rank needs to go on: the inner optimizer's state, and what is agreed on and under way.

        Weights agreed on and outer momentum are the same on all ranks; residuals and what is under way are this rank's.
        It waits for what is under way to arrive, and calls nobody.
        """
        agreed: dict[str, torch.Tensor] = {}
        momentum: dict[str, torch.Tensor] = {}
        under_way = {}
        for index, shared in enumerate(self._shared):
            agreed |= shared.fragment.named(shared.agreed)
            if shared.momentum is not None:
                momentum |= shared.fragment.named(shared.momentum)
            if shared.flight is not None:
                shared.flight.wait()
                assert shared.sent is not None
                under_way[index] = {
                    "step": shared.flight.step, "moved": shared.moved.clone(), "sent": shared.sent.clone(),
                }  # fmt: skip
        return {
            "version": STATE_VERSION, "method": METHOD, "step": self.num_steps, "inner": self.inner.state_dict(),
            "plan": [self.every, len(self._shared)], "agreed": agreed, "momentum": momentum, "under_way": under_way,
            "exchange": self._averaging.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; of another rank's state, only what is shared."""
        state, found = state_dict, (state_dict.get("version"), state_dict.get("method"))
        if found != (STATE_VERSION, METHOD):
            raise SynchronizationError(
                f"the saved state has version {found[0]!r} and method {found[1]!r}; this is version {STATE_VERSION} of "
                f"{METHOD!r}.",
                hint="Load what this method's state_dict() returned.",
            )
        self.inner.load_state_dict(dict(state["inner"]))
        self.num_steps = int(state["step"])
        self._land_all()
        plan = [self.every, len(self._shared)]
        if list(state["plan"]) != plan and state["under_way"]:
            raise SynchronizationError(
                f"the saved state has every={state['plan'][0]} in {state['plan'][1]} fragments; this is "
                f"every={plan[0]} in {plan[1]}, and fragments were in flight.",
                hint="Call synchronize() before state_dict() to resume with another plan.",
            )
        mine = self._load_exchange(state["exchange"])
        for index, shared in enumerate(self._shared):
            shared.fragment.take(state["agreed"], shared.agreed)
            if shared.momentum is not None:
                shared.fragment.take(state["momentum"], shared.momentum)
            saved = state["under_way"].get(index)
            if saved is None or not mine:
                continue
            assert shared.sent is not None
            shared.flight = Flight(int(saved["step"]), landed=True)
            shared.moved.copy_(saved["moved"])
            shared.sent.copy_(saved["sent"])

    def _load_exchange(self, state: Mapping[str, Any]) -> bool:
        """Take residuals over where they are this rank's own or those of all together; tell whether they were."""
        owner, mine = (state["local_to"], state["num_ranks"]), (self._averaging.rank, self._averaging.num_ranks)
        if owner == mine or owner[0] < 0:
            self._averaging.load_state_dict(state)
            return True
        warnings.warn(
            f"the state is of rank {owner[0]} of {owner[1]} and this is rank {mine[0]} of {mine[1]}: what codecs owe "
            "and what was under way is left out.",
            stacklevel=3,
        )
        return False


def _delay(delay: int | None, every: int) -> int | None:
    if delay is not None and at_least("delay", delay, 0) > every:
        raise SynchronizationError(f"delay={delay} is longer than the {every} steps between launches.")
    return delay
