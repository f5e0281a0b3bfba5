"""`syncline simulate buffers`: the smallest buffer, marks and pauses that keep a job near its ideal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.shell.output import JsonOption, emit
from syncline.describe.plain import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from syncline.sim.packet import PacketJob, PacketNetwork, Traffic


def buffers(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or preset.")],
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="allreduce:64MiB, alltoall:8MiB, incast:32:2MB, permutation:2MB or a file."),
    ],
    transport: Annotated[str, typer.Option(help="A set of sim/packet/transports.yaml: dctcp, ndp ...")] = "dcqcn",
    routing: Annotated[str, typer.Option(help="ecmp, flowlet, adaptive, spray, first, valiant or ugal.")] = "ecmp",
    within: Annotated[float, typer.Option(help="How much longer than with ample buffers the job may take.")] = 0.05,
    pfc: Annotated[bool | None, typer.Option("--pfc/--no-pfc", help="Pause instead of dropping.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of hashes and marks.")] = 0,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Find the smallest switch buffer, the ECN marks and the PFC thresholds a job needs, by simulation."""
    from syncline.cli.shell.output import progress
    from syncline.fabric import load
    from syncline.sim.packet import PacketOptions, packet_network
    from syncline.sim.packet.sizing import BufferTrial, size_buffers

    network = packet_network(load(cluster))
    options = PacketOptions(transport, routing, seed, lossless=pfc)  # type: ignore[arg-type]
    asked = read_job(network, job, seed)
    with progress() as bar:
        task = bar.add_task("ideal", total=None)

        def tried(row: BufferTrial) -> None:
            bar.update(task, description=f"tried a buffer of {row.buffer_bytes / 1e6:.2f} MB")

        found = size_buffers(network, [asked], options, within=within, tried=tried)
    payload: JsonObject = {
        "cluster": network.fabric.name, "job": job, "transport": transport, "routing": routing, "seed": seed,
        **found.to_json(),
    }  # fmt: skip
    emit(payload, json, lambda console: _show(console, payload))


def read_job(network: PacketNetwork, text: str, seed: int) -> PacketJob | Traffic:
    """Read "allreduce:64MiB", "incast:32:2MB", "permutation:2MB", "all-pairs:64KiB" or a file of flows."""
    from syncline.describe import units
    from syncline.errors import UsageError
    from syncline.program import lower, packed
    from syncline.sim.candidates import NAMES, find, usual
    from syncline.sim.packet import PacketJob, all_to_all, incast, permutation
    from syncline.sim.packet.flow_file import read_flows

    fabric = network.fabric
    if Path(text).is_file():
        return read_flows(text, fabric)
    name, *rest = text.split(":")
    try:
        if name == "incast" and len(rest) == 2:
            return incast(fabric, int(rest[0]), units.size(rest[1]))
        if name == "permutation" and len(rest) == 1:
            return permutation(fabric, units.size(rest[0]), seed=seed)
        if name == "all-pairs" and len(rest) == 1:
            return all_to_all(fabric, units.size(rest[0]))
    except ValueError:
        pass
    if name in NAMES and len(rest) in (1, 2):
        placed = packed(fabric)
        algorithm = rest[1] if len(rest) == 2 else usual(fabric, NAMES[name], placed.num_ranks)
        return PacketJob(
            lower(find(fabric, NAMES[name], placed.num_ranks, algorithm), placed), units.size(rest[0]), name
        )
    raise UsageError(
        f'the job "{text}" is no file and none of the jobs known.',
        hint="Write allreduce:64MiB, alltoall:8MiB:direct, incast:32:2MB, permutation:2MB or all-pairs:64KiB.",
    )


def _show(console: Console, found: Mapping[str, Any]) -> None:
    from rich.table import Table

    from syncline.describe import units

    kind = "pauses instead of dropping" if found["lossless"] else "drops what does not fit"
    console.print(
        f"{found['job']} on {found['cluster']} ({found['transport']}, {found['routing']}; {kind}): "
        f"{units.show_time(found['ideal_s'])} with ample buffers", soft_wrap=True,
    )  # fmt: skip
    console.print(
        f"smallest buffer a switch for at most {found['within']:.0%} longer: {found['buffer_bytes'] / 1e6:.3g} MB",
        soft_wrap=True,
    )
    if found["lossless"]:
        console.print(
            f"  of it headroom {found['headroom_bytes'] / 1e6:.3g} MB; an ingress is paused from "
            f"{found['pause_bytes'] / 1e3:,.0f} kB on while the switch is otherwise empty", soft_wrap=True,
        )  # fmt: skip
        for row in found["headroom"]:
            console.print(
                f"  {row['ports']:,} ports of {row['rate_Bps'] * 8e-9:g} Gb/s, {units.show_time(row['latency_s'])} "
                f"away (up to {row['length_m']:,.0f} m): {row['headroom_bytes'] / 1e3:,.1f} kB each", soft_wrap=True,
            )  # fmt: skip
    if found["marks"] is not None:
        marks = found["marks"]
        console.print(f"lowest marks: from {units.show_time(marks['low_s'])} to {units.show_time(marks['high_s'])} "
                      f"of link rate, probability {marks['probability']:g}", soft_wrap=True)  # fmt: skip
    elif found["mark_trials"]:
        console.print("no marks that were tried keep the job within that", soft_wrap=True)
    table = Table("buffer", "marks from", "time", "over ideal", "drops", "pauses", "deepest queue")
    for row in [*found["buffer_trials"], *found["mark_trials"]]:
        table.add_row(
            f"{row['buffer_bytes'] / 1e6:,.4g} MB", units.show_time(row["mark_s"]) if row["mark_s"] else "",
            units.show_time(row["time_s"]), f"{row['time_s'] / found['ideal_s'] - 1:+.1%}", f"{row['drops']:,}",
            f"{row['pauses']:,}", f"{row['peak_bytes'] / 1e3:,.0f} kB",
        )  # fmt: skip
    console.print(table)
