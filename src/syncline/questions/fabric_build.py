"""How is a cluster put up: racks, cables, addresses, and what is configured on every switch and host?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from syncline.advise import bundle
from syncline.describe.plain import JsonObject
from syncline.errors import SynclineError
from syncline.install.installation import Installation, install
from syncline.install.room import Room
from syncline.questions.answer import Answer, Output, page_output
from syncline.questions.cluster import Cluster, built


@dataclass(frozen=True, eq=False)
class FabricBuild(Answer):
    """Racks, cable schedule, addresses and configurations of a cluster; `write` puts all files into a folder."""

    schema_name: ClassVar[str] = "fabric-build"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write a page with racks, cables and arithmetic.")

    installation: Installation = field(repr=False)
    extra: dict[str, str] = field(repr=False)
    """NCCL's file, and the pictures once they are drawn."""

    @property
    def files(self) -> dict[str, str]:
        """All texts by their path below the folder they are written to."""
        return {**self.installation.files, **self.extra}

    def write(self, folder: str | Path) -> list[Path]:
        """Write the files into a folder, made if need be, and return their paths."""
        return self._whole().write(Path(folder))

    def differences(self, folder: str | Path) -> tuple[str, ...]:
        """Return how the files in a folder differ from what would be written."""
        return self._whole().differences(Path(folder))

    def _whole(self) -> Installation:
        return replace(self.installation, files=self.files)

    def to_json(self) -> JsonObject:
        return self.installation.to_json() | {"files": len(self.files)}


def fabric_build(cluster: Cluster, *, system: str = "auto", room: Room | None = None) -> FabricBuild:
    """Work out how a cluster is put up, down to the configuration of each switch and host.

    >>> answer = fabric_build("h100-64-rail")
    >>> len(answer.installation.cables), answer.to_json()["systems"]
    (1024, {'opensm': 24})
    """
    fabric = built(cluster)
    found = install(fabric, room, system=system)
    extra = {}
    with suppress(SynclineError):  # TPUs do not run NCCL
        extra["hosts/nccl.env"] = bundle(fabric).files["nccl.env"]
    return FabricBuild(found, extra)
