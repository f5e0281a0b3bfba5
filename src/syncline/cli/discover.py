"""`syncline discover`: a cluster description from what is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.shell.output import JsonOption, emit, examples

if TYPE_CHECKING:
    from rich.console import Console

EPILOG = examples(
    "syncline discover cluster.yaml",
    "syncline discover cluster.yaml --root h1.tar.gz --root h2.tar.gz",
    "syncline discover cluster.yaml --slurm /etc/slurm/topology.conf",
    "syncline discover cluster.yaml --names 'gpu[001-064]' --network 'rail-optimized NDR'",
)
app = typer.Typer()


@app.command(epilog=EPILOG)
def discover(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The cluster file to write.")],
    root: Annotated[
        list[Path] | None, typer.Option("--root", metavar="TREE", help="Captured trees instead of this host.")
    ] = None,
    slurm: Annotated[Path | None, typer.Option(help="Hosts and switches from a Slurm topology file.")] = None,
    nccl: Annotated[Path | None, typer.Option(help="The host from an NCCL topology file or dump.")] = None,
    names: Annotated[str | None, typer.Option(help="As many hosts like this one: gpu[001-064].")] = None,
    gpu: Annotated[str | None, typer.Option(help="The GPU's part, where it cannot be told.")] = None,
    network: Annotated[str | None, typer.Option(help='The network: "rail-optimized NDR", say.')] = None,
    json: JsonOption = False,
) -> None:
    """Write a cluster description from PCI, RDMA, LLDP, nvidia-smi, Slurm and NCCL files; guesses go into its notes."""
    from syncline.auditing.discover import describe, look
    from syncline.describe.files import check_writable
    from syncline.describe.hostlist import expand
    from syncline.fabric import build, save
    from syncline.host.host import Host
    from syncline.host.root import Root

    check_writable(target)
    hosts = [Host(Root.captured(path)) for path in root or []] or [Host(Root.live())]
    many = expand(names, "--names") if names else []
    seen = [look(one, gpu) for one in hosts]
    spec = describe(seen, slurm=slurm, nccl=nccl, names=many, gpu=gpu, network=network)
    fabric = build(spec)
    save(spec, target)
    payload = {
        "written": str(target), "hosts": fabric.num_hosts, "gpus": fabric.num_gpus, "notes": spec.notes,
        "ports": {one.name: [port.to_json() for port in one.ports] for one in seen},
    }  # fmt: skip

    def text(console: Console) -> None:
        console.print(f"wrote {target}: hosts {fabric.num_hosts:,}, GPUs {fabric.num_gpus:,}", soft_wrap=True)
        for note in filter(None, spec.notes.split("; ")):
            console.print(f"  note: {note}", soft_wrap=True)
        console.print(f"look at it: syncline fabric show {target}", soft_wrap=True)

    emit(payload, json, text)
