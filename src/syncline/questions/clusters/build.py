"""How is a cluster put up: racks, cables, addresses, and what is configured on every switch and host?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.advice import bundle
from syncline.errors import SynclineError
from syncline.install.installation import Installation, InstallationFigures, install
from syncline.install.room import Room
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.questions.inputs import Cluster, ClusterArgument, built


@dataclass(frozen=True)
class FabricBuild(Answer):
    """Racks, cable schedule, addresses and configurations of a cluster; `write` puts all files into a folder."""

    schema_name: ClassVar[str] = "fabric-build"
    content: ClassVar[str] = "figures"
    outputs: ClassVar[Mapping[str, Output]] = {
        "out": Output("Write all files here.", lambda answer, path: answer.write(path), folder=True),
        **page_output("Write a page with racks, cables and arithmetic."),
    }

    installation: Installation = field(repr=False)
    extra: dict[str, str] = field(repr=False)
    """NCCL's file."""

    @property
    def files(self) -> dict[str, str]:
        """All texts by their path below the folder they are written to."""
        return {**self.installation.files, **self.extra, **self.pictures()}

    def write(self, folder: str | Path) -> list[Path]:
        """Write the files into a folder, made if need be, and return their paths."""
        return self._whole().write(Path(folder))

    def differences(self, folder: str | Path) -> tuple[str, ...]:
        """Return how the files in a folder differ from what would be written."""
        return self._whole().differences(Path(folder))

    def _whole(self) -> Installation:
        return replace(self.installation, files=self.files)

    @property
    def figures(self) -> InstallationFigures:
        """What `--json` prints."""
        return replace(self.installation.figures, files=len(self.files))


def fabric_build(cluster: Cluster, *, system: str = "auto", room: Room | None = None) -> FabricBuild:
    """Work out how a cluster is put up, down to the configuration of each switch and host.

    >>> answer = fabric_build("h100-64-rail")
    >>> len(answer.installation.cables), answer.figures.systems
    (1024, {'opensm': 24})
    """
    fabric = built(cluster)
    found = install(fabric, room, system=system)
    extra = {}
    with suppress(SynclineError):  # TPUs do not run NCCL
        extra["hosts/nccl.env"] = bundle(fabric).files["nccl.env"]
    return FabricBuild(found, extra)


@dataclass(frozen=True)
class BuildCheck(Answer):
    """How the files in a folder differ from what would be written there."""

    schema_name: ClassVar[str] = "fabric-build-check"

    folder: str
    files: int
    differences: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        return 1 if self.differences else 0


@question(
    "syncline fabric build cluster.yaml --out build/",
    "syncline fabric build cluster.yaml --system sonic --out build/ --html build.html",
    "syncline fabric build cluster.yaml --check build/",
)
def check_build(
    cluster: ClusterArgument = "h100-64-rail",
    *,
    check: Annotated[
        Path | None, Parameter("Compare the files in a folder; exit 1 where one differs.", metavar="DIR")
    ] = None,
    system: Annotated[
        str, Parameter("What Ethernet switches run: auto (by vendor), sonic, nvue, eos or frr.")
    ] = "auto",
    rack_power: Annotated[
        float | None,
        Parameter("What the room feeds a rack, in kW. Unless given: 45, and racks sold as one (NVL72) what they take."),
    ] = None,
    rack_units: Annotated[int, Parameter("Height of a rack, in U.", rare=True)] = 48,
    rack_weight: Annotated[float, Parameter("What a rack may weigh, in kg.", rare=True)] = 1360.0,
) -> FabricBuild | BuildCheck:
    """Work out racks, cables, addresses and the configuration of every switch and host."""
    power_w = None if rack_power is None else rack_power * 1e3
    room = Room(rack_u=rack_units, rack_power_w=power_w, rack_weight_kg=rack_weight)
    answer = fabric_build(cluster, system=system, room=room)
    if check is None:
        return answer
    return BuildCheck(str(check), len(answer.files), answer.differences(check))
