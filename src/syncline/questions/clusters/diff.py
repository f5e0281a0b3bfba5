"""Is a cluster cabled as it is described?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.document import read_text
from syncline.errors import DescriptionError, UsageError
from syncline.fabric import Fabric, build, load
from syncline.fabric.cable_diff import CableDifference, compare_cables
from syncline.fabric.formats import detect, import_fabric
from syncline.fabric.load import presets
from syncline.questions.answer import Answer, Parameter, question
from syncline.questions.inputs import ClusterArgument, built


@dataclass(frozen=True)
class CableComparison(Answer):
    """What was found against what is described, cable by cable."""

    schema_name: ClassVar[str] = "fabric-diff"

    cluster: str
    found: str
    cables_described: int
    cables_found: int
    switches_taken_for: dict[str, str]
    differences: tuple[CableDifference, ...]

    @property
    def exit_status(self) -> int:
        return 1 if self.differences else 0


@question(
    "syncline fabric diff cluster.yaml ibnetdiscover.out",
    "syncline fabric diff cluster.yaml lldp/ --link 400GbE --json",
    "syncline fabric diff planned.yaml built.yaml",
    help="Compare a described cluster with what was found, cable by cable; exit status 1 where they differ.",
)
def fabric_diff(
    cluster: ClusterArgument,
    found: Annotated[
        str | Path | Fabric,
        Parameter("The cluster as built: its file, or one that import reads.", kind=str),
    ],
    *,
    link: Annotated[str | None, Parameter("What ports run, where the file does not say.")] = None,
) -> CableComparison:
    """Compare a cluster with what was found: another cluster, or a file that `fabric import` reads.

    >>> fabric_diff("h100-64-rail", "h100-64-rail").differences
    ()
    """
    described = built(cluster)
    there = found if isinstance(found, Fabric) else _found(Path(found), described, link)
    return CableComparison(described.name, there.name, **vars(compare_cables(described, there)))


def _found(path: Path, described: Fabric, link: str | None) -> Fabric:
    """Return a preset or cluster file as it is; anything else is imported with the described hosts' model."""
    if str(path) in presets():
        return load(str(path))
    if not path.exists():
        raise UsageError(f'there is no file "{path}".', hint="Give a cluster file, or one that `fabric import` reads.")
    if path.is_file() and path.suffix in (".yaml", ".yml") and not _is_slurm(path):
        return load(path)
    groups = [*described.spec.hosts, *(group for site in described.spec.sites for group in site.hosts)]
    host = groups[0].host.model_dump(exclude_none=True)
    return build(import_fabric(path, host=host, link=link))


def _is_slurm(path: Path) -> bool:
    """Say whether a YAML file is Slurm's topology.yaml (a list) or labels of nodes, and no cluster."""
    try:
        return detect(read_text(path), str(path)) in ("slurm-yaml", "topograph")
    except DescriptionError:
        return False
