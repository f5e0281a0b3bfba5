"""`syncline calibrate`: what hosts cost, fitted to a short sweep, into a cluster file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.output import JsonOption, emit, err, examples

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.bench.rehearsal.calibrate import Calibrated, Sweep

app = typer.Typer(
    help="Fit latency, posting, adding and efficiency of hosts to a short sweep; write a calibrated cluster file.",
)
EPILOG = examples(
    "syncline calibrate cluster.yaml --out calibrated.yaml",
    "torchrun --nproc-per-node 8 -m syncline calibrate cluster.yaml --out calibrated.yaml",
)

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write the cluster file with its calibration.")]
Scale = Annotated[float | None, typer.Option(help="Factor on all rates of the lab (default: what this machine can).")]
Hosts = Annotated[int | None, typer.Option(help="Only so many hosts of the cluster.")]
Sizes = Annotated[str, typer.Option(help="Sizes to fit to, by comma.")]
Repeats = Annotated[int, typer.Option(min=3, max=100, help="How often each is measured.")]


# A group reads no options after its arguments unless told so.
@app.callback(invoke_without_command=True, epilog=EPILOG, context_settings={"allow_interspersed_args": True})
def calibrate(
    cluster: Cluster,
    out: Out = None,
    scale: Scale = None,
    hosts: Hosts = None,
    sizes: Sizes = "128KiB,512KiB,2MiB",
    repeats: Repeats = 5,
    json: JsonOption = False,
) -> None:
    """Measure a short sweep and fit the costs of the hosts to it.

    Started by torchrun, srun or mpirun it measures those ranks over their own network; otherwise it builds an emulated
    copy of the cluster here (`syncline lab`).
    """
    from syncline import units
    from syncline.bench.rehearsal.calibrate import Sweep, write_calibrated
    from syncline.fabric import load
    from syncline.files import check_writable
    from syncline.runtime.launch import detect

    if out is not None:
        check_writable(out)
    sweep = Sweep(sizes=tuple(units.size(text) for text in sizes.split(",")), repeats=repeats)
    live = detect(os.environ) is not None
    found, first = _live(cluster, sweep) if live else _lab(cluster, sweep, scale, hosts)
    if not first:
        return
    where = "the cluster itself" if live else "a lab on one machine"
    payload = _payload(cluster, found, where)
    if out is not None:
        write_calibrated(load(cluster).spec, found, f"{where}, {sizes}", out)
        payload["written"] = str(out)
    emit(payload, json, lambda console: _show(console, payload))


def _lab(cluster: str, sweep: Sweep, scale: float | None, hosts: int | None) -> tuple[Calibrated, bool]:
    from syncline.bench.rehearsal.calibrate import calibrate_lab

    return calibrate_lab(cluster, sweep, scale=scale, hosts=hosts, tell=_tell), True


def _live(cluster: str, sweep: Sweep) -> tuple[Calibrated, bool]:
    from syncline.bench.rehearsal.calibrate import calibrate_live
    from syncline.cli.bench_start import join
    from syncline.fabric import load
    from syncline.program import place

    with join(None) as group:
        return calibrate_live(group, place("packed", load(cluster), group.size), sweep), group.rank == 0


def _tell(text: str) -> None:
    console = err()
    if console.is_terminal:
        console.print(f"[dim]{text}[/]")


def _payload(cluster: str, found: Calibrated, where: str) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "measured_on": where,
        "ranks": found.num_ranks,
        "costs": found.fit.costs.to_json(),
        "median_error": found.fit.median_error,
        "worst_error": found.fit.worst_error,
        "rows": [
            {"algorithm": row.algorithm, "size_bytes": row.size_bytes, "measured_s": row.measured_s,
             "predicted_s": row.predicted_s, "gap": row.gap, "fitted": row.calibrated_on}
            for row in found.rows
        ],
    }  # fmt: skip


def _show(console: Console, payload: dict[str, Any]) -> None:
    from syncline import units

    costs = payload["costs"]
    console.print(
        f"{payload['cluster']}, {payload['ranks']} ranks on {payload['measured_on']}: "
        f"{costs['efficiency']:.1%} of the line rate, {units.show_time(costs['latency_s'])} a message, "
        f"{units.show_time(costs['post_s'])} to post one, {units.show_time(costs['start_s'])} to start, "
        f"{units.show_bandwidth(1 / costs['add_s_per_byte'])} added"
    )
    console.print(
        f"fitted to {sum(row['fitted'] for row in payload['rows'])} measurements with a median error of "
        f"{payload['median_error']:.1%}, at worst {payload['worst_error']:.1%}"
    )
    beyond = [row for row in payload["rows"] if not row["fitted"]]
    for row in beyond:
        size = units.show_size(row["size_bytes"])
        console.print(f"  beyond the fit: {row['algorithm']} {size}: {row['gap']:+.1%}")
    if "written" in payload:
        console.print(f"wrote {payload['written']}")
