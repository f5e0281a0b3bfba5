"""Ranks that connected anew brought to one state: the newest round of each fragment that any of them has.

A rank may be lost while its last messages are under way, so that some of the others have an average and some have not.
It is the same average for all, so those without it take the agreed weights and the outer momentum from one that has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.periodic.shared import SharedFragment
from syncline.runtime.wire.team import Team

TAG = 1 << 30


def reconcile(parts: Sequence[SharedFragment], team: Team, step: int, is_new: bool) -> tuple[int, int, frozenset[int]]:
    """Bring all parts to their newest round, on every rank; return this rank's step, the furthest one, and who was new.

    Nothing is changed before all has arrived, so that it can be done again where one more rank is lost meanwhile.
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
