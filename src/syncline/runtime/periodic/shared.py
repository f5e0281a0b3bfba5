"""What ranks share of a fragment under DiLoCo, the outer step on it, and how ranks that connect anew become equal."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.periodic.averaging import Flight
from syncline.runtime.periodic.fragment import Fragment
from syncline.runtime.wire.team import Team

TAG = 1 << 30


class SharedFragment:
    """A fragment with what ranks share of it: agreed weights, outer momentum; and what is under way."""

    def __init__(self, fragment: Fragment, offset: int, *, momentum: bool, streamed: bool) -> None:
        self.fragment = fragment
        self.offset = offset
        self.agreed, self.moved = fragment.new(), fragment.new()
        fragment.read(self.agreed)
        self.momentum = fragment.new() if momentum else None
        self.sent = fragment.new() if streamed else None
        self.flight: Flight | None = None
        self.staleness = 0
        self.num_rounds = 0
        self.guests: frozenset[int] = frozenset()
        """Ranks that came within this fragment's period: their first round counts without them."""
        self.is_plain = False
        """Whether what is under way is to be taken as a plain average, outside the outer steps."""
        self.serial = 0
        """When it was launched, among all launches of this rank."""
        self._scale, self._is_guest = 1.0, False

    def pack(self) -> None:
        """Note where this rank is and how far that is from the agreed weights."""
        self.fragment.read(self.moved)
        if self.sent is not None:
            self.sent.copy_(self.moved)
        self.moved.sub_(self.agreed)

    def pack_among(self, members: Sequence[int], rank: int) -> None:
        """Do the same in a crew: a guest sends nothing, keeps what it has done, and the average is over the others."""
        guests = self.guests.intersection(members)
        counted = len(members) - len(guests)
        self._scale = len(members) / counted if counted else 1.0
        self._is_guest = rank in guests and counted > 0
        if self._is_guest:
            assert self.sent is not None, "without streaming every period begins with all ranks"
            self.sent.copy_(self.agreed)
            self.moved.zero_()
        else:
            self.pack()

    def renew(self) -> None:
        """Leave the buffer to a thread that may still write to it."""
        self.moved = torch.empty_like(self.moved)

    @property
    def outer(self) -> list[torch.Tensor]:
        """What all ranks have in common after a round."""
        return [self.agreed] if self.momentum is None else [self.agreed, self.momentum]

    def adopt(self, outer: Sequence[torch.Tensor], num_rounds: int, step: int) -> None:
        """Take over the outcome of a round from another rank, as if it had arrived here."""
        for own, theirs in zip(self.outer, outer, strict=True):
            own.copy_(theirs)
        self.num_rounds = num_rounds
        if self.flight is None:
            self.fragment.write(self.agreed)
        else:
            self.take(step)

    def outer_step(self, lr: float, momentum: float) -> None:
        """Move the agreed weights along the average that has arrived."""
        if self._scale != 1.0:
            self.moved.mul_(self._scale)
        if self.is_plain:
            lr = 1.0
        elif self.momentum is not None:
            # As torch.optim.SGD with nesterov=True: the first round starts the momentum, it is not damped.
            self.momentum.mul_(momentum).add_(self.moved)
            self.moved.add_(self.momentum, alpha=momentum)
        self.agreed.add_(self.moved, alpha=lr)
        self.num_rounds += 1

    def take(self, step: int) -> None:
        """Go on from the agreed weights, with what was done since the launch."""
        assert self.flight is not None
        self.staleness = step - self.flight.step
        if self.staleness == 0 and not self._is_guest:
            self.fragment.write(self.agreed)
        else:
            assert self.sent is not None
            self.fragment.add(torch.sub(self.agreed, self.sent, out=self.moved))
        self.flight = None
        self.guests, self._scale, self._is_guest, self.is_plain = frozenset(), 1.0, False, False


def reconcile(parts: Sequence[SharedFragment], team: Team, step: int, is_new: bool) -> tuple[int, int, frozenset[int]]:
    """Bring all parts to their newest round, on every rank; return this rank's step, the furthest one, and who was new.

    A rank may be lost while its last messages are under way, so that some of the others have an average and some have
    not. It is the same average for all: those without it take the agreed weights and the outer momentum from one that
    has it. Nothing is changed before all has arrived, so that it can be done again where one more rank is lost.
    """
    own = {"step": -1 if is_new else step, "rounds": [-1 if is_new else part.num_rounds for part in parts]}
    everyone = exchange_json(own, team)
    furthest = max(int(one["step"]) for one in everyone)
    at_step = furthest if is_new else step
    sends, arrived = [], []
    for index, part in enumerate(parts):
        rounds = [int(one["rounds"][index]) for one in everyone]
        newest, source = max(rounds), rounds.index(max(rounds))
        if team.rank == source:
            for peer in (rank for rank, known in enumerate(rounds) if known < newest):
                outer = [tensor.cpu() for tensor in part.outer]
                sends += [(team.send(tensor, peer, TAG + index), tensor) for tensor in outer]
        elif rounds[team.rank] < newest:
            outer = [torch.empty_like(tensor, device="cpu") for tensor in part.outer]
            for tensor in outer:
                team.receive(tensor, source, TAG + index).wait()
            arrived.append((part, outer, newest))
    for work, _ in sends:
        work.wait()
    for part, outer, newest in arrived:
        part.adopt(outer, newest, at_step)
    new = frozenset(rank for rank, one in zip(team.members, everyone, strict=True) if one["step"] < 0)
    return at_step, furthest, new
