"""`syncline simulate buffers`: the smallest buffer, marks and pauses that keep a job near its ideal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.packet.options import PacketTransport
from syncline.cli.shell.output import JsonOption, progress, tell

if TYPE_CHECKING:
    from syncline.sim.packet.sizing import BufferTrial


def buffers(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or preset.")],
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="allreduce:64MiB, alltoall:8MiB, incast:32:2MB, permutation:2MB or a file."),
    ],
    transport: PacketTransport = "dcqcn",
    routing: Annotated[str, typer.Option(help="auto (as the cluster file has it), ecmp, adaptive, spray ...")] = "auto",
    within: Annotated[float, typer.Option(help="How much longer than with ample buffers the job may take.")] = 0.05,
    pfc: Annotated[bool | None, typer.Option("--pfc/--no-pfc", help="Pause instead of dropping.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of hashes and marks.")] = 0,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Find the smallest switch buffer, the ECN marks and the PFC thresholds a job needs, by simulation."""
    from syncline.questions.simulated.buffers import buffers as ask

    with progress() as bar:
        task = bar.add_task("ideal", total=None)

        def tried(row: BufferTrial) -> None:
            bar.update(task, description=f"tried a buffer of {row.buffer_bytes / 1e6:.2f} MB")

        answer = ask(cluster, job, transport=transport, routing=routing, within=within, pfc=pfc, seed=seed, tried=tried)
    tell(answer, json)
