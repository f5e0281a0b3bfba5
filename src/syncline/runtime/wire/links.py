"""The teams of a handle: all its ranks, and for each level of a hierarchy those that this rank exchanges with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from syncline.errors import SynchronizationError
from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.alive.pace import Pace
from syncline.runtime.sync.settings import Settings
from syncline.runtime.wire.levels import members
from syncline.runtime.wire.native_wire import NativeWire, is_there
from syncline.runtime.wire.rails import are_there
from syncline.runtime.wire.team import Team, agreed_name
from syncline.runtime.wire.wire import CollectiveWire, PointToPoint, Wire


class GroupLinks:
    """Wires from the innermost level to the outermost, and the team of all ranks for what is rare and small."""

    def __init__(self, parent: dist.ProcessGroup, settings: Settings, device: torch.device) -> None:
        self.device = device
        self.rank, self.num_ranks = dist.get_rank(parent), dist.get_world_size(parent)
        self._device = team_device(parent, device)
        self._name, self._timeout_s = agreed_name(parent, self._device), settings.wire_timeout_s
        self._pace = None if settings.send_Bps is None else Pace(settings.send_Bps)
        self.team = self._team("all", range(self.num_ranks))
        self._carrier = carrier(self.team, paced=self._pace is not None)
        self.team.names = tuple(dist.get_process_group_ranks(parent))
        levels = members(self.rank, self.num_ranks, settings.levels)
        self.wires: list[Wire] = [self._wire(depth, level) for depth, level in enumerate(levels)]

    @property
    def outermost(self) -> Wire:
        """The level that is compressed."""
        return self.wires[-1]

    def native(self) -> list[NativeWire]:
        """Return the wires that are syncline's own."""
        return [wire for wire in self.wires if isinstance(wire, NativeWire)]

    def break_off(self, text: str) -> None:
        """End every wait on wires that are syncline's own."""
        for wire in self.native():
            wire.break_off(text)

    def close(self) -> None:
        """Say goodbye to the others and end what the wires have of their own."""
        for wire in self.native():
            wire.close()

    def _wire(self, depth: int, level: Sequence[int]) -> Wire:
        if self._carrier == "collectives":
            return CollectiveWire(self._team(f"{depth}-scatter", level), self._team(f"{depth}-gather", level))
        team = self.team if len(level) == self.num_ranks else self._team(str(depth), level)
        if self._carrier == "native" and len(level) > 1:
            return NativeWire(team, timeout_s=self._timeout_s)
        return PointToPoint(team)

    def _team(self, purpose: str, level: Sequence[int]) -> Team:
        team = Team(f"{self._name}/{purpose}", level, self.rank, self._device, self._timeout_s)
        team.pace = self._pace
        return team


class TeamLinks(GroupLinks):
    """The links of one team that no process group holds: a single level, point to point."""

    def __init__(self, team: Team, device: torch.device) -> None:
        self.device = device
        self.rank, self.num_ranks = team.rank, team.size
        self.team = team
        self.wires = [PointToPoint(team)]


def carrier(team: Team, *, paced: bool = False) -> str:
    """Return what carries a team's messages, the same on every rank: NCCL in its groups, else the native wire.

    Gloo does where messages are `paced`, and where any rank cannot have the wire: another system, no IPv4.
    """
    if team.device.type == "cuda":
        if paced:
            raise SynchronizationError("send_Bps does not work with NCCL.", hint="Use a gloo group, or leave it out.")
        return "collectives"
    can = not paced and is_there() and are_there()
    return "native" if all(row["can"] for row in exchange_json({"can": can}, team)) else "point-to-point"


def team_device(parent: dist.ProcessGroup, device: torch.device) -> torch.device:
    """Return where tensors are that the teams of a handle send themselves.

    Where the group is not NCCL's, nothing of ours is: several ranks may share one GPU.
    """
    uses_nccl = device.type == "cuda" and _backend_name(parent, device) == "nccl"
    return device if uses_nccl else torch.device("cpu")


def _backend_name(group: dist.ProcessGroup, device: torch.device) -> str:
    """Return the backend that a group has for a device; "" where it has none."""
    try:
        return str(group._get_backend(device).name())
    except RuntimeError:
        return ""
