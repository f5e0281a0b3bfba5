"""Which cluster is this?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.auditing.discover import FabricPort, describe, look
from syncline.describe.files import check_writable
from syncline.describe.hostlist import expand
from syncline.fabric import build, save
from syncline.host.host import Host
from syncline.host.root import Root
from syncline.questions.answer import Answer, Parameter, question


@dataclass(frozen=True)
class DiscoveredCluster(Answer):
    """The cluster file that was written of what is there; its notes say what was guessed."""

    schema_name: ClassVar[str] = "discover"

    written: str
    hosts: int
    gpus: int
    notes: str
    ports: Mapping[str, tuple[FabricPort, ...]]
    """RDMA ports by host."""


@question(
    "syncline discover cluster.yaml",
    "syncline discover cluster.yaml --root h1.tar.gz --root h2.tar.gz",
    "syncline discover cluster.yaml --slurm /etc/slurm/topology.conf",
    "syncline discover cluster.yaml --names 'gpu[001-064]' --network 'rail-optimized NDR'",
)
def discover(
    target: Annotated[Path, Parameter("The cluster file to write.")],
    *,
    roots: Annotated[
        Sequence[Path], Parameter("Captured trees instead of this host.", metavar="TREE", names=("--root",))
    ] = (),
    slurm: Annotated[Path | None, Parameter("Hosts and switches from a Slurm topology file.")] = None,
    nccl: Annotated[Path | None, Parameter("The host from an NCCL topology file or dump.")] = None,
    names: Annotated[str | None, Parameter("As many hosts like this one: gpu[001-064].")] = None,
    gpu: Annotated[str | None, Parameter("The GPU's part, where the host does not show it.")] = None,
    network: Annotated[str | None, Parameter('The network: "rail-optimized NDR", say.')] = None,
) -> DiscoveredCluster:
    """Write a cluster description from PCI, RDMA, LLDP, nvidia-smi, Slurm and NCCL files; guesses go into its notes."""
    check_writable(target)
    many = expand(names, "--names") if names else []
    seen = [look(Host(root), gpu) for root in [Root.captured(path) for path in roots] or [Root.live()]]
    spec = describe(seen, slurm=slurm, nccl=nccl, names=many, gpu=gpu, network=network)
    fabric = build(spec)
    save(spec, target)
    ports = {one.name: one.ports for one in seen}
    return DiscoveredCluster(str(target), fabric.num_hosts, fabric.num_gpus, spec.notes, ports)


COMMANDS = {"": discover}
