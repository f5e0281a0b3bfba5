"""The teams of a handle: all its ranks, and for each level of a hierarchy those that this rank exchanges with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from syncline.errors import SynchronizationError
from syncline.runtime.levels import members
from syncline.runtime.pace import Pace
from syncline.runtime.settings import Settings
from syncline.runtime.team import Team, agreed_name
from syncline.runtime.wire import Collectives, PointToPoint, Wire


class GroupLinks:
    """Wires from the innermost level to the outermost, and the team of all ranks for what is rare and small."""

    def __init__(self, parent: dist.ProcessGroup, settings: Settings, device: torch.device) -> None:
        self.device = device
        self.rank, self.num_ranks = dist.get_rank(parent), dist.get_world_size(parent)
        self._name, self._timeout_s = agreed_name(parent, device), settings.timeout_s
        self._collectives = settings.transport == "collectives"
        if settings.transport == "auto":
            self._collectives = device.type == "cuda"
        if settings.send_Bps is not None and self._collectives:
            raise SynchronizationError(
                "send_Bps holds back messages between two ranks, and collectives are the backend's own.",
                hint='Use transport="point-to-point" on the CPU, or leave send_Bps out.',
            )
        self._pace = None if settings.send_Bps is None else Pace(settings.send_Bps)
        self.team = self._team("all", range(self.num_ranks))
        levels = members(self.rank, self.num_ranks, settings.levels)
        self.wires: list[Wire] = [self._wire(depth, level) for depth, level in enumerate(levels)]

    @property
    def outermost(self) -> Wire:
        """The level that is compressed."""
        return self.wires[-1]

    def _wire(self, depth: int, level: Sequence[int]) -> Wire:
        if self._collectives:
            return Collectives(self._team(f"{depth}-scatter", level), self._team(f"{depth}-gather", level))
        return PointToPoint(self.team if len(level) == self.num_ranks else self._team(str(depth), level))

    def _team(self, purpose: str, level: Sequence[int]) -> Team:
        team = Team(f"{self._name}/{purpose}", level, self.rank, self.device, self._timeout_s)
        team.pace = self._pace
        return team


class TeamLinks(GroupLinks):
    """The links of one team that no process group holds: a single level, point to point."""

    def __init__(self, team: Team, device: torch.device) -> None:
        self.device = device
        self.rank, self.num_ranks = team.rank, team.size
        self.team = team
        self.wires = [PointToPoint(team)]
