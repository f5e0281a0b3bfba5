"""`syncline simulate slots`: a job by time slots under synchronised clocks, against sending when ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.packet.options import BackgroundOption, BufferOption
from syncline.cli.shell.output import JsonOption, emit
from syncline.describe.plain import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console


def slots(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or preset.")],
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="allreduce:64MiB, alltoall:8MiB, incast:32:2MB, permutation:2MB ...")
    ],
    clock_error: Annotated[
        str, typer.Option(help="How far a host's clock may be from the truth; guards are twice that.")
    ] = "100ns",
    transport: Annotated[str, typer.Option(help="What best effort uses: dcqcn, dctcp, ndp, roce ...")] = "dcqcn",
    routing: Annotated[str, typer.Option(help="Of best effort: ecmp, adaptive, spray ...; slots know paths.")] = "ecmp",
    buffer: BufferOption = None,
    background: BackgroundOption = None,
    seed: Annotated[int, typer.Option(help="Seed of hashes and clocks.")] = 0,
    json: JsonOption = False,
) -> None:
    """Lay a job into time slots that hosts keep by their clocks, and run it against best effort."""
    from syncline.cli.packet.buffers import read_job
    from syncline.describe import units
    from syncline.fabric import load
    from syncline.questions.simulated.packets import PacketQuestion
    from syncline.sim.packet import packet_network
    from syncline.sim.packet.slots import compare_slots

    network = packet_network(load(cluster))
    asked = PacketQuestion(buffer=buffer, background=background)
    options = asked.options(network, transport, routing, seed)
    found = compare_slots(
        network, read_job(network, job, seed), options, units.time(clock_error), beside=asked.beside()
    )
    payload: JsonObject = {
        "cluster": network.fabric.name, "job": job, "transport": options.transport, "routing": routing, "seed": seed,
        **asked.shown(), **found.to_json(),
    }  # fmt: skip
    emit(payload, json, lambda console: _show(console, payload))


def _show(console: Console, found: Mapping[str, Any]) -> None:
    from rich.table import Table

    from syncline.describe.units import show_time

    best = found["best_effort"]
    console.print(
        f"{found['job']} on {found['cluster']}: {found['num_messages']:,} messages in time slots, clocks within "
        f"{show_time(found['clock_error_s'])}, so a guard of {show_time(found['guard_s'])} between two", soft_wrap=True,
    )  # fmt: skip
    console.print(
        f"planned end {show_time(found['planned_s'])}; {show_time(found['bare_s'])} without guards, of which "
        f"{(found['guards'] - 1) / 2:,.0f} follow each other on the way to the end", soft_wrap=True,
    )  # fmt: skip
    if found["break_even_s"] > 0:
        console.print(f"as fast as best effort with clocks within {show_time(found['break_even_s'])}", soft_wrap=True)
    else:
        console.print("never as fast as best effort, with clocks however good", soft_wrap=True)
    table = Table("", "clocks off", "time", "change", "deepest queue", "p99", "late", "pauses")
    rows = [(found["transport"], best), *(("slots", row) for row in found["scheduled"])]
    for name, row in rows:
        table.add_row(
            name, show_time(row["real_error_s"]) if row is not best else "", show_time(row["time_s"]),
            f"{row['time_s'] / best['time_s'] - 1:+.1%}" if row is not best else "",
            f"{row['deepest_queue_bytes'] / 1e3:,.1f} kB", show_time(row["p99_s"]),
            f"{row['late']:,}" if row is not best else "", f"{row['pauses']:,}",
        )  # fmt: skip
    console.print(table)
    console.print("p99: of messages; late: messages whose data had not arrived when their slot came", soft_wrap=True)
