"""`syncline calibrate`: what a system really gives, from a sweep of hosts, a measured step or a log of nccl-tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.shell.derive import app_of
from syncline.cli.shell.output import JsonOption, emit, err, examples
from syncline.cli.tune import EPILOG as TUNE_EPILOG
from syncline.cli.tune import tune
from syncline.describe.plain import JsonObject
from syncline.questions import calibrate as questions

if TYPE_CHECKING:
    from syncline.rehearsal.calibrate import CalibrationSweep, HostCalibration


app = app_of(questions)
EPILOG = examples(
    "syncline calibrate hosts cluster.yaml --out calibrated.yaml",
    "torchrun --nproc-per-node 8 -m syncline calibrate hosts cluster.yaml --out calibrated.yaml",
)

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write the cluster file with its calibration.")]
Scale = Annotated[float | None, typer.Option(help="Factor on all rates of the lab (default: what this machine can).")]
Hosts = Annotated[int | None, typer.Option(help="Only this many hosts of the cluster.")]
Sizes = Annotated[str, typer.Option(help="Sizes to fit to, by comma.")]
Repeats = Annotated[int, typer.Option(min=3, max=100, help="How often each is measured.")]


@app.command("hosts", epilog=EPILOG)
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
    from syncline.describe import units
    from syncline.describe.files import check_writable
    from syncline.fabric import load
    from syncline.rehearsal.calibrate import CalibrationSweep, write_calibrated
    from syncline.runtime.launch import detect

    if out is not None:
        check_writable(out)
    sweep = CalibrationSweep(sizes=tuple(units.size(text) for text in sizes.split(",")), repeats=repeats)
    live = detect(os.environ) is not None
    found, first = _live(cluster, sweep) if live else _lab(cluster, sweep, scale, hosts)
    if not first:
        return
    where = "the cluster itself" if live else "a lab on one machine"
    payload = _payload(cluster, found, where)
    if out is not None:
        write_calibrated(load(cluster).spec, found, f"{where}, {sizes}", out)
        payload["written"] = str(out)
    emit(payload, json, _lines(cluster, found, where, out))


def _lab(cluster: str, sweep: CalibrationSweep, scale: float | None, hosts: int | None) -> tuple[HostCalibration, bool]:
    from syncline.rehearsal.calibrate import calibrate_lab

    return calibrate_lab(cluster, sweep, scale=scale, hosts=hosts, tell=_tell), True


def _live(cluster: str, sweep: CalibrationSweep) -> tuple[HostCalibration, bool]:
    from syncline.bench.ranks.launched import join
    from syncline.fabric import load
    from syncline.program import place
    from syncline.rehearsal.calibrate import calibrate_live

    with join(None) as group:
        return calibrate_live(group, place("packed", load(cluster), group.size), sweep), group.rank == 0


def _tell(text: str) -> None:
    console = err()
    if console.is_terminal:
        console.print(f"[dim]{text}[/]")


def _payload(cluster: str, found: HostCalibration, where: str) -> JsonObject:
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


def _lines(cluster: str, found: HostCalibration, where: str, out: Path | None) -> list[str]:
    from syncline.describe import units

    costs, fit = found.fit.costs, found.fit
    lines = [
        f"{cluster}, {found.num_ranks} ranks on {where}: "
        f"{costs.efficiency:.1%} of the line rate, {units.show_time(costs.latency_s)} a message, "
        f"{units.show_time(costs.post_s)} to post one, {units.show_time(costs.start_s)} to start, "
        f"{units.show_bandwidth(1 / costs.add_s_per_byte)} added",
        f"fitted to {sum(row.calibrated_on for row in found.rows)} measurements with a median error of "
        f"{fit.median_error:.1%}, at worst {fit.worst_error:.1%}",
    ]
    lines += [
        f"  beyond the fit: {row.algorithm} {units.show_size(row.size_bytes)}: {row.gap:+.1%}"
        for row in found.rows
        if not row.calibrated_on
    ]
    return [*lines, *([f"wrote {out}"] if out is not None else [])]


# What stands behind the command of `tune` is its own: no option of ours is looked for there.
app.command("tune", epilog=TUNE_EPILOG, context_settings={"allow_interspersed_args": False})(tune)
