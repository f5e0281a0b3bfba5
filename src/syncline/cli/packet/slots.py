"""`syncline simulate slots`: a job by time slots under synchronised clocks, against sending when ready."""

from __future__ import annotations

from typing import Annotated

import typer

from syncline.cli.packet.options import BackgroundOption, BufferOption
from syncline.cli.shell.output import JsonOption, tell


def slots(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or preset.")],
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="allreduce:64MiB, alltoall:8MiB, incast:32:2MB, permutation:2MB ...")
    ],
    clock_error: Annotated[
        str, typer.Option(help="How far a host's clock may be from the truth; guards are twice that.")
    ] = "100ns",
    transport: Annotated[str, typer.Option(help="What best effort uses: dcqcn, dctcp, ndp, roce ...")] = "dcqcn",
    routing: Annotated[str, typer.Option(help="Of best effort: auto, ecmp, adaptive ...; slots know paths.")] = "auto",
    buffer: BufferOption = None,
    background: BackgroundOption = None,
    seed: Annotated[int, typer.Option(help="Seed of hashes and clocks.")] = 0,
    json: JsonOption = False,
) -> None:
    """Lay a job into time slots that hosts keep by their clocks, and run it against best effort."""
    from syncline.questions.simulated.packets import PacketQuestion
    from syncline.questions.simulated.slots import slots as ask

    asked = PacketQuestion(buffer=buffer, background=background)
    tell(
        ask(cluster, job, clock_error=clock_error, transport=transport, routing=routing, seed=seed, packets=asked), json
    )
