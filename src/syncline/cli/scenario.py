"""`syncline scenario`: several jobs on one cluster, with tenants, failures, stragglers and other traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.packet.options import (
    BackgroundOption,
    BufferOption,
    EcnOption,
    LossOption,
    MtuOption,
    PayloadOption,
    PfcOption,
    RecoveryOption,
)
from syncline.cli.packet.simulate import shown
from syncline.cli.shell.output import JsonOption, examples, tell
from syncline.describe.guide import cite

EPILOG = examples(
    "syncline scenario shared.yaml --cluster h100-64-rail",
    "syncline scenario shared.yaml --trace shared.json --json",
    "syncline scenario shared.yaml --level packet --transport dctcp --loss 0.0001 --background 0.2:storage",
)
app = typer.Typer()

File = Annotated[Path, typer.Argument(metavar="FILE", help=f"The scenario ({cite('scenario')} has the keys).")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster, if the file names none.")
]
Level = Annotated[str, typer.Option(help="flow (links shared fairly) or packet (every packet).")]
Transport = Annotated[str | None, typer.Option(help="Packet level: dcqcn (default), dctcp, ndp, roce ...")]
Routing = Annotated[
    str | None, typer.Option(help="Packet level: ecmp, flowlet, adaptive, spray ... (default: the file's).")
]
Seed = Annotated[int | None, typer.Option(help="Packet level: seed of hashes, marks and losses (default: the file's).")]
Trace = Annotated[Path | None, typer.Option(help="Write the timeline (.json for Perfetto, .parquet).")]


@app.command(epilog=EPILOG)
def scenario(
    file: File,
    cluster: Cluster = None,
    level: Level = "flow",
    transport: Transport = None,
    routing: Routing = None,
    seed: Seed = None,
    loss: LossOption = None,
    buffer: BufferOption = None,
    payload: PayloadOption = None,
    mtu: MtuOption = None,
    recovery: RecoveryOption = None,
    pfc: PfcOption = None,
    ecn: EcnOption = None,
    background: BackgroundOption = None,
    trace: Trace = None,
    json: JsonOption = False,
) -> None:
    """Play a scenario and say what each job lost against having the cluster to itself."""
    from syncline.describe.files import check_writable
    from syncline.questions.scenario import scenario as ask
    from syncline.questions.simulated.packets import PacketQuestion
    from syncline.timeline import save

    if trace is not None:
        check_writable(trace)
    answer = ask(
        file, cluster=cluster, level=level, transport=transport, routing=routing, seed=seed,
        record=trace is not None, shown=shown,
        packets=PacketQuestion(loss, buffer, payload, mtu, recovery, pfc, ecn, background),
    )  # fmt: skip
    if trace is not None:
        save(answer.timeline, trace)
    tell(answer, json, trace)
