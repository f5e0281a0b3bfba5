"""A vote inside a site: an average is taken over in the step after all ranks of the site have it.

Each rank of a site hears on its own when an average has arrived. DDP keeps these ranks replicas, and they stay replicas
only if all of them take it over in the same step. The vote is under way while they compute, and nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from syncline.runtime.alive.agreement import Gathering
from syncline.runtime.periodic.target import Target
from syncline.runtime.sync.settings import Settings
from syncline.runtime.wire.team import Team, agreed_name


class Vote:
    """Which launches, by serial, had landed on every rank of the site when the last step ended."""

    def __init__(self, target: Target, settings: Settings) -> None:
        site = target.site
        size, rank = dist.get_world_size(site), dist.get_rank(site)
        name = f"{agreed_name(site, target.device)}/site"
        self._team = Team(name, range(size), rank, target.device, settings.wire_timeout_s)
        self._serials: list[int] = []
        self._gathering: Gathering | None = None
        self._landed: set[int] = set()

    def begin(self, flights: Sequence[tuple[int, bool]]) -> None:
        """Say of each launch that is under way whether it has landed here; all ranks of the site have the same ones."""
        self._serials = [serial for serial, _ in flights]
        self._gathering = Gathering([float(landed) for _, landed in flights], self._team) if flights else None

    def take(self) -> None:
        """Take the votes that the site's ranks cast after the last step."""
        self._landed = set()
        if self._gathering is not None:
            columns = zip(*self._gathering.rows(), strict=True)
            self._landed = {serial for serial, votes in zip(self._serials, columns, strict=True) if all(votes)}
            self._gathering = None

    def has_landed(self, serial: int) -> bool:
        """Tell whether a launch had landed everywhere."""
        return serial in self._landed
