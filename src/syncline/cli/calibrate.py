"""`syncline calibrate`: what a system really gives, from a sweep of hosts, a measured step or a log of nccl-tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from syncline.cli.shell.output import JsonOption, emit, err, examples, tell
from syncline.cli.tune import EPILOG as TUNE_EPILOG
from syncline.cli.tune import tune
from syncline.describe.plain import JsonObject

if TYPE_CHECKING:
    from syncline.rehearse.calibrate import CalibrationSweep, HostCalibration


class CalibrateGroup(TyperGroup):
    """`syncline calibrate CLUSTER` is short for `syncline calibrate hosts CLUSTER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `hosts` in front unless a command or the manual is asked for."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["hosts", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=CalibrateGroup,
    help="Fit predictions to what was measured: a step, a log of nccl-tests, a sweep of the hosts, a script.\n\n"
    "`syncline calibrate CLUSTER` is short for `syncline calibrate hosts CLUSTER`.",
    epilog=examples(
        "syncline calibrate step h100-64-rail job.yaml --measured 4.6s --out profile.yaml",
        "syncline calibrate collective h100-64-rail all_reduce.log --out profile.yaml",
        "syncline calibrate cluster.yaml --out calibrated.yaml",
    ),
)
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


@app.command("step", epilog=examples(
    "syncline calibrate step h100-64-rail job.yaml --measured 4.6s --out profile.yaml",
    "syncline calibrate step cluster.yaml job.yaml --log train.log --out profile.yaml",
    "syncline calibrate step cluster.yaml job.yaml --trace rank0.pt.trace.json.gz --out profile.yaml",
    "syncline step cluster.yaml other-job.yaml --profile profile.yaml",
))  # fmt: skip
def step(
    cluster: Cluster,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job that was measured: a file, or one that ships.")],
    measured: Annotated[str | None, typer.Option(help="The time of one step, with its unit: 4.6s, 830ms.")] = None,
    log: Annotated[Path | None, typer.Option(help="A training log with step lines.")] = None,
    trace: Annotated[Path | None, typer.Option(help="A trace: PyTorch profiler, Nsight, Chakra.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps that the trace holds, if it does not say.")] = None,
    profile: Annotated[Path | None, typer.Option(help="A profile to add this run to.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the profile.")] = None,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Fit the model to one measured step of a job.

    Five multipliers, for predictions of its other splits, sizes and scales.

    They are matrix products, attention, passes over memory, exchanges and the host. What one time cannot tell apart
    keeps its prior; a trace tells more.
    """
    from syncline.describe.files import check_writable
    from syncline.questions.calibrate import calibrate_step

    if out is not None:
        check_writable(out)
    answer = calibrate_step(cluster, job, measured=measured, log=log, trace=trace, steps=steps, profile=profile)
    if out is not None:
        answer.save(out)
    tell(answer, json, out)


@app.command("collective", epilog=examples(
    "syncline calibrate collective h100-64-rail all_reduce.log --out profile.yaml",
    "syncline calibrate collective cluster.yaml alltoall.json --ranks 16 --profile profile.yaml --out profile.yaml",
    "syncline simulate allreduce --cluster h100-64-rail --algorithm nccl --profile profile.yaml",
))  # fmt: skip
def collective(
    cluster: Cluster,
    log: Annotated[Path, typer.Argument(metavar="LOG", help="The output of nccl-tests, text or JSON.")],
    op: Annotated[str, typer.Option(help="The operation, if the log does not name it: all_reduce.")] = "",
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Ranks of the run (default: as the log says, else the whole cluster).")
    ] = None,
    profile: Annotated[Path | None, typer.Option(help="A profile to add this sweep to.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the profile.")] = None,
    json: JsonOption = False,
) -> None:
    """Fit the model of NCCL to a log of nccl-tests.

    The profile is for `simulate --algorithm nccl --profile`.
    """
    from syncline.describe.files import check_writable
    from syncline.questions.calibrate import calibrate_collective

    if out is not None:
        check_writable(out)
    answer = calibrate_collective(cluster, log, op=op, ranks=ranks, profile=profile)
    if out is not None:
        answer.save(out)
    tell(answer, json, out)


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
    from syncline.rehearse.calibrate import CalibrationSweep, write_calibrated
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
    lines = _lines(cluster, found, where, out)
    emit(payload, json, lambda console: console.print("\n".join(lines)))


def _lab(cluster: str, sweep: CalibrationSweep, scale: float | None, hosts: int | None) -> tuple[HostCalibration, bool]:
    from syncline.rehearse.calibrate import calibrate_lab

    return calibrate_lab(cluster, sweep, scale=scale, hosts=hosts, tell=_tell), True


def _live(cluster: str, sweep: CalibrationSweep) -> tuple[HostCalibration, bool]:
    from syncline.cli.bench.start import join
    from syncline.fabric import load
    from syncline.program import place
    from syncline.rehearse.calibrate import calibrate_live

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
