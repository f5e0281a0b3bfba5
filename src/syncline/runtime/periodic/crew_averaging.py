"""Averages over a crew: when a rank is lost those who are left connect anew and take along what their codecs owe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from syncline.codec.low_rank import LowRank
from syncline.errors import AgreementError, NonFiniteError, ReplicaError, SynchronizationError
from syncline.runtime.periodic.averaging import Averaging, Flight
from syncline.runtime.periodic.crew import Crew, Formation, Ticket
from syncline.runtime.periodic.target import Target
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.sync.settings import Settings
from syncline.runtime.wire.links import TeamLinks
from syncline.runtime.wire.team import Team


class CrewAveraging(Averaging):
    """Averages of flat buffers over whoever is in the crew."""

    def __init__(self, target: Target, settings: Settings, meaning: Mapping[str, Any], crew: Crew) -> None:
        self.crew = crew
        self._device = target.device
        self.is_new = True
        """Whether this rank has yet to take over what the others have; only the first formation has no others."""
        self._owed: dict[str, torch.Tensor] = {}
        self._before: dict[int, dict[str, torch.Tensor]] = {}
        super().__init__(target, settings, meaning)

    @property
    def failure(self) -> BaseException | None:
        """What ended the exchange; None: nothing has."""
        return self.synchronizer.failure

    def launch(self, index: int, buffer: torch.Tensor, layout: Layout, step: int, codec: str = "") -> Flight:
        """Begin to average a buffer in place, and remember what was owed before."""
        if self.num_ranks == 1:
            return Flight(step, landed=True)
        self.remember(index, layout)
        return super().launch(index, buffer, layout, step, codec)

    def remember(self, index: int, layout: Layout) -> None:
        """Keep what is owed before a buffer is launched, for the case that it must be launched again."""
        parts = self.synchronizer.residuals
        owed = zip(layout.names, layout.sizes, strict=True)
        self._before[index] = {n: parts[n].clone() if n in parts else torch.zeros(size) for n, size in owed}

    def break_off(self, failure: BaseException) -> None:
        """End what is under way with a failure."""
        self.synchronizer.break_off(failure)

    def form_anew(self) -> Formation:
        """Connect those who are left after a loss."""
        lost = self.synchronizer.lost
        self._part()
        formation = self.crew.form_anew([] if lost is None else [self.team.members[lost]])
        self.is_new = self.is_new or self.crew.rank in formation.new
        self._meet(formation)
        return formation

    def let_in(self, tickets: Sequence[Ticket]) -> Formation:
        """Connect the members and those who wait to be let in; nothing may be under way."""
        self._part()
        formation = self.crew.let_in(tickets)
        self.is_new = self.is_new or self.crew.rank in formation.new
        self._meet(formation)
        return formation

    def hand_on(self, dropped: Iterable[int]) -> None:
        """Owe to the new formation what was owed to the last one, as if what was dropped had never been launched."""
        for index in dropped:
            self._owed |= self._before[index]
        state = self.synchronizer.state_dict(local=True)
        self.synchronizer.load_state_dict({**state, "residuals": {} if self.is_new else self._owed})
        self._owed, self.is_new = {}, False

    def close(self) -> None:
        """Leave the crew, and end the threads."""
        super().close()
        self.crew.leave()

    def _connect(self, target: Target, meaning: Mapping[str, Any]) -> None:
        formation = self.crew.enter({**self._settings.agreed(), **meaning, "parameters": target.described()})
        self.is_new = formation.number > 0
        self._meet(formation)

    def _part(self) -> None:
        """Leave the connections, and take along what is owed; where that was done already, there is nothing new."""
        self._owed |= {name: part.clone() for name, part in self.synchronizer.residuals.items()}
        self.synchronizer.abandon()

    def _meet(self, formation: Formation) -> None:
        name = f"crew/{self.crew.name}/{formation.number}"
        cpu = torch.device("cpu")
        team = Team(name, formation.members, self.crew.rank, cpu, self._settings.timeout_s, self.crew.store)
        self._start(TeamLinks(team, self._device))


def is_loss(failure: BaseException) -> bool:
    """Whether a crew can go on after a failure: a rank is lost or a connection broke, and no number was wrong."""
    return not isinstance(failure, AgreementError | NonFiniteError | ReplicaError)


def check_crew(settings: Settings, group: object, levels: object) -> None:
    """Refuse what cannot go on without a rank, or would not notice that one is lost."""
    if group is not None or levels is not None:
        raise SynchronizationError("crew= stands in place of group= and levels=.", hint="Leave the other two out.")
    if isinstance(settings.scheme, LowRank):
        raise SynchronizationError(
            f'codec "{settings.codec}" keeps factors that all ranks must share, and a crew loses ranks in between.',
            hint='Use "int8" or "int4" in a crew.',
        )
    if not settings.watch_s:
        raise SynchronizationError("a crew needs heartbeats to go on without a rank.", hint="Leave watch_s=0 out.")
    if settings.warmup:
        raise SynchronizationError("a crew has no warmup: ranks may join at any time.", hint="Leave warmup out.")
