"""The ranks of one replica as one: where a model is sharded, a replica is in the crew with all its ranks or not at all.

Its first rank asks the crew and tells the others; what one of them met in a step, all of them act on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from syncline.errors import SynchronizationError, SynclineError
from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.periodic.crew import Crew, Formation, Ticket
from syncline.runtime.periodic.crew_averaging import is_loss
from syncline.runtime.wire.team import Team, agreed_name

LONG_S = 86400.0


class Alone:
    """A replica of one rank."""

    def any(self, failed: bool) -> bool:
        """Tell whether this step failed on any rank of the replica."""
        return failed

    def all_lost(self, lost: Iterable[int]) -> list[int]:
        """Return the replicas that any rank of this one found lost."""
        return list(lost)

    def check(self, failure: Exception | None) -> None:
        """Raise, on every rank of the replica, what is no loss: a number that is none, say."""
        if failure is not None and not is_loss(failure):
            raise failure


class Replica(Alone):
    """The ranks that hold the shards of one replica."""

    def __init__(self, shards: dist.ProcessGroup) -> None:
        device = torch.device("cpu")
        name = agreed_name(shards, _device_of(shards))
        rank, size = dist.get_rank(shards), dist.get_world_size(shards)
        self.team = Team(f"{name}/replica", range(size), rank, device, LONG_S)
        self.rank = rank

    def any(self, failed: bool) -> bool:
        """Tell whether this step failed on any rank of the replica."""
        flag = torch.tensor([float(failed)])
        self.team.all_reduce(flag)
        return bool(flag.item())

    def all_lost(self, lost: Iterable[int]) -> list[int]:
        """Return the replicas that any rank of this one found lost."""
        rows = exchange_json({"lost": sorted(lost)}, self.team)
        return sorted({int(rank) for row in rows for rank in row["lost"]})

    def check(self, failure: Exception | None) -> None:
        """Raise, on every rank of the replica, what is no loss."""
        fatal = "" if failure is None or is_loss(failure) else str(failure)
        failures = [str(row["fatal"]) for row in exchange_json({"fatal": fatal}, self.team) if row["fatal"]]
        super().check(failure)
        if failures:
            raise SynchronizationError(f"another rank of this replica failed: {failures[0]}")

    def shared(self, ask: Callable[[], Any]) -> Any:
        """Return what the first rank gets when it asks; an error of its is raised by all."""
        own: dict[str, Any] = {}
        if self.rank == 0:
            try:
                own = {"value": ask()}
            except SynclineError as error:
                own = {"error": error.message, "hint": error.hint}
        answer = exchange_json(own, self.team)[0]
        if "error" in answer:
            raise SynchronizationError(str(answer["error"]), hint=str(answer["hint"] or ""))
        return answer["value"]


class ReplicaCrew(Crew):
    """A crew as each rank of a sharded replica sees it: its first rank asks, and all take the answer."""

    def __init__(self, crew: Crew, replica: Replica) -> None:
        self._crew, self._replica = crew, replica
        self.rank, self.num_ranks, self.store = crew.rank, crew.num_ranks, crew.store
        self.name = f"{crew.name}/shard-{replica.rank}"
        self.formation, self.history = crew.formation, crew.history

    def enter(self, meaning: Mapping[str, Any]) -> Formation:
        """Start the crew with all other replicas, or be let in."""
        return self._take(lambda: self._crew.enter(meaning))

    def form_anew(self, lost: Iterable[int]) -> Formation:
        """Go on after a loss with the replicas that come."""
        gone = self._replica.all_lost(lost)
        return self._take(lambda: self._crew.form_anew(gone))

    def waiting(self, step: int | str) -> list[Ticket]:
        """Return who is to be let in at this step."""
        rows = self._replica.shared(lambda: [[one.number, one.rank] for one in self._crew.waiting(step)])
        return [Ticket(*row) for row in rows]

    def let_in(self, tickets: Iterable[Ticket]) -> Formation:
        """Form anew with those who wait."""
        return self._take(lambda: self._crew.let_in(tickets))

    def leave(self) -> None:
        """Say that this replica has come to its end."""
        if self._replica.rank == 0:
            self._crew.leave()

    def _take(self, ask: Callable[[], Formation]) -> Formation:
        def plain() -> Any:
            found = ask()
            return [found.number, list(found.members), sorted(found.new)]

        number, members, new = self._replica.shared(plain)
        self.formation = Formation(int(number), tuple(members), frozenset(new))
        if self._replica.rank:
            self.history.append(self.formation.line())
        return self.formation


def _device_of(group: dist.ProcessGroup) -> torch.device:
    """Return a device that a group can send from."""
    uses_nccl = dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if uses_nccl else torch.device("cpu")
