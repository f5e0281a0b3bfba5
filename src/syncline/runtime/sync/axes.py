"""The axes of a mesh beside those that gradients are averaged over, and which parameters are whole there.

Tensor, sequence and expert parallelism cut some parameters over an axis and leave others whole on all its ranks, which
then hold replicas without ever averaging them: each computes the same gradient. A codec keeps those replicas equal only
if it encodes them apart from what is cut (`Layout.apart`). What is cut, DTensors say; a plain parameter of a model that
has DTensors is whole where ranks begin with equal bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from syncline.codec.low_rank import LowRank
from syncline.errors import SynchronizationError
from syncline.runtime.alive.agreement import exchange_json
from syncline.runtime.alive.replicas import compare, fingerprints
from syncline.runtime.sync.bucket import Axes
from syncline.runtime.sync.settings import Settings
from syncline.runtime.wire.team import Team


class MeshAxes:
    """The lines of this rank's mesh: for each axis the ranks that differ in their place on it alone."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], data: Sequence[dist.ProcessGroup]) -> None:
        self.parameters = parameters
        self.groups: dict[str, dist.ProcessGroup] = {}
        self._cut: dict[str, set[str]] = {name: set() for name in parameters}
        self._teams: dict[str, Team] = {}
        averaged = [tuple(dist.get_process_group_ranks(group)) for group in data]
        self._plain = [name for name, parameter in parameters.items() if _spec(parameter) is None]
        for name, parameter in parameters.items():
            for axis, group, is_cut in _placed(parameter):
                if tuple(dist.get_process_group_ranks(group)) in averaged or dist.get_world_size(group) == 1:
                    continue
                self.groups.setdefault(axis, group)
                if is_cut:
                    self._cut[name].add(axis)

    def connect(self, name: str, device: torch.device, settings: Settings) -> None:
        """Make a team of every line, under a name that all ranks of the mesh have agreed on."""
        for axis, group in self.groups.items():
            ranks = dist.get_process_group_ranks(group)
            self._teams[axis] = Team(f"{name}/{axis}", ranks, dist.get_rank(), device, settings.wire_timeout_s)

    @property
    def lines(self) -> list[Team]:
        """A team for each axis: this rank's line of it."""
        return list(self._teams.values())

    def agree(self, everyone: Team, settings: Settings, *, equal_parts: bool) -> None:
        """Find out which plain parameters are whole on each axis, alike on every rank, and refuse what is not right."""
        if not self.groups:
            return
        if settings.nan == "skip" and settings.keeps_error(settings.codec):
            raise SynchronizationError(
                f'nan="skip" (and a scaler) does not work with codec "{settings.codec}" on a mesh with the axis '
                f'"{next(iter(self.groups))}": a step that one rank of it leaves out has changed what the others owe.',
                hint='Use nan="raise", or a codec without error feedback, such as "int8".',
            )
        flags = torch.zeros(len(self.groups), len(self._plain), device=everyone.device)
        own = fingerprints([local(self.parameters[name]) for name in self._plain])
        for row, (axis, team) in enumerate(self._teams.items()):
            rooms = [torch.empty_like(own, device=team.device) for _ in range(team.size)]
            team.all_gather(rooms, own.to(team.device)).wait()
            flags[row] = (torch.stack(rooms) != own.to(team.device)).any(dim=0).to(flags)
            if equal_parts or isinstance(settings.scheme, LowRank):
                self._check_sizes(axis, team)
        everyone.all_reduce(flags)
        for row, axis in enumerate(self.groups):
            for column, name in enumerate(self._plain):
                if flags[row, column]:
                    self._cut[name].add(axis)

    def cut(self, name: str) -> Axes:
        """Return the axes on which a parameter is cut; one that is not known is apart from all others."""
        return tuple(sorted(self._cut.get(name, {f"?{name}"} if self.groups else ())))

    def compare(self, step: int) -> None:
        """Raise on every rank of a line that holds a whole parameter differently."""
        for axis, team in self._teams.items():
            whole = {name: local(p) for name, p in self.parameters.items() if axis not in self._cut[name]}
            compare(fingerprints(list(whole.values())), list(whole), team, step, axis)

    def _check_sizes(self, axis: str, team: Team) -> None:
        sizes = {name: local(parameter).numel() for name, parameter in self.parameters.items()}
        for rank, row in enumerate(exchange_json(sizes, team)):
            for name, size in sizes.items():
                if row[name] != size:
                    raise SynchronizationError(
                        f'"{name}" is cut unevenly on the axis "{axis}": rank {team.names[rank]} holds {row[name]} '
                        f"elements and rank {team.names[team.rank]} {size}. Their buckets would not be alike.",
                        hint="Choose sizes that the axis divides, or FSDP2 with a codec other than powersgd.",
                    )


def local(parameter: Any) -> torch.Tensor:
    """Return what this rank holds of a parameter."""
    held: torch.Tensor = (parameter.to_local() if hasattr(parameter, "to_local") else parameter).detach()
    return held


def _spec(parameter: Any) -> Any:
    """Return how a parameter lies on its mesh; DDP keeps that of a DTensor beside the local tensor it works on."""
    return getattr(parameter, "_spec", None) or getattr(parameter, "_st_info", None)


def _placed(parameter: Any) -> Iterator[tuple[str, dist.ProcessGroup, bool]]:
    """Yield the axes of a parameter's mesh: name, this rank's line, and whether the parameter is cut there."""
    spec = _spec(parameter)
    if spec is None:
        return
    names = spec.mesh.mesh_dim_names or [f"axis {dim}" for dim in range(spec.mesh.ndim)]
    for dim, placement in enumerate(spec.placements):
        yield names[dim], spec.mesh.get_group(dim), not placement.is_replicate()
