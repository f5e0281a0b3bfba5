"""`syncline nccl`: what to set for NCCL on a cluster, and whether it took effect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from syncline.cli.output import JsonOption, emit, examples

if TYPE_CHECKING:
    from syncline.audit.diagnose.source import Unread
    from syncline.audit.nccl import Bundle, Effect

EPILOG = examples(
    "syncline nccl h100-64-rail",
    "syncline nccl cluster.yaml job.yaml --nccl 2.27 --out nccl-files/",
    "syncline nccl check nccl.log --cluster cluster.yaml --env nccl-files/nccl.env",
)


class _ShowUnlessSaid(TyperGroup):
    """`syncline nccl CLUSTER` is `syncline nccl show CLUSTER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ShowUnlessSaid,
    help="What to set for NCCL on a cluster, each line with its reason, and whether a log shows that it took effect.",
    epilog=EPILOG,
)

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset (`syncline fabric list`).")]
JobFile = Annotated[Path | None, typer.Argument(metavar="[JOB]", help="A job file: its ranks and collectives.")]
Release = Annotated[str | None, typer.Option("--nccl", help="NCCL release (default: the cluster's, else 2.27).")]
Ranks = Annotated[int | None, typer.Option("--ranks", "-n", help="Ranks of the job (default: all, or the job's).")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the files into this folder.")]
Logs = Annotated[list[str], typer.Argument(metavar="LOG...", help="NCCL logs (NCCL_DEBUG=INFO), folders, or -.")]
ClusterOption = Annotated[str, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster.")]
EnvFile = Annotated[Path | None, typer.Option("--env", help="The nccl.env that was meant to be in use.")]


@app.command(
    epilog=examples(
        "syncline nccl h100-64-rail",
        "syncline nccl cluster.yaml job.yaml --out nccl-files/",
        "syncline nccl llama3-24k-roce --ranks 2048 --json",
    )
)
def show(
    cluster: Cluster,
    job: JobFile = None,
    nccl: Release = None,
    ranks: Ranks = None,
    out: Out = None,
    json: JsonOption = False,
) -> None:
    """Print variables, tuner choices and start files for a cluster; with --out, write them.

    Files: nccl.env, nccl-topology.xml, nccl-tuner.csv (where NCCL's own choice is poor), job.sbatch, mpijob.yaml,
    pytorchjob.yaml, topology.conf, topology-labels.yaml and kueue-topology.yaml.
    """
    from syncline.audit.nccl import bundle
    from syncline.fabric import load
    from syncline.workload.read_job import load_job

    made = bundle(load(cluster), load_job(job) if job else None, nccl=nccl, ranks=ranks)
    payload: dict[str, Any] = made.to_json()
    if out is not None:
        payload["written"] = [str(path) for path in made.write(out)]
    emit(payload, json, lambda console: console.print("\n".join(_lines(made, payload)), soft_wrap=True))


@app.command(
    epilog=examples(
        "syncline nccl check nccl.log --cluster h100-64-rail",
        "syncline nccl check logs/ --cluster cluster.yaml --env nccl-files/nccl.env --json",
    )
)
def check(logs: Logs, cluster: ClusterOption, env: EnvFile = None, json: JsonOption = False) -> None:
    """Say from a log whether what was set took effect: network, GPUDirect, NICs, rails, NVLS, channels, variables.

    Each line is yes, no or unknown. Exit status is 0 whatever it says: it is an answer, not an error.
    """
    from syncline.audit.nccl import check_effect
    from syncline.fabric import load
    from syncline.fabric.document import read_text

    wanted = _variables(read_text(env)) if env else {}
    effects, unread = check_effect(logs, load(cluster), wanted)
    payload = {
        "effects": [effect.to_json() for effect in effects],
        "unread": [{"path": item.path, "reason": item.reason} for item in unread],
    }
    emit(payload, json, lambda console: console.print("\n".join(_effects(effects, unread)), soft_wrap=True))


def _variables(text: str) -> dict[str, str]:
    """Read `export NAME='value'` lines; comments and everything else are left out."""
    found = {}
    for line in text.splitlines():
        name, sign, value = line.strip().removeprefix("export ").partition("=")
        if sign and name.isidentifier() and name.isupper():
            found[name] = value.strip().strip("'\"")
    return found


def _lines(made: Bundle, payload: dict[str, Any]) -> list[str]:
    from syncline.audit.nccl.bundle import settings_table

    size = f"{made.num_hosts:,} hosts x {made.gpus_per_host} GPUs"
    lines = [f"{made.cluster}: {size}, NCCL {made.nccl}, {', '.join(made.ops)}", "", *settings_table(made.settings), ""]
    for row in made.tuner:
        lines += [row.line, f"    why: {row.reason}"]
    lines += [""] if made.tuner else []
    lines += [
        f"file {name}: {len(text.splitlines())} lines" for name, text in made.files.items() if "written" not in payload
    ]
    lines += [f"wrote {path}" for path in payload.get("written", [])]
    lines += [f"no {name}: {why}" for name, why in made.skipped.items()]
    lines += [f"assumed: {text}" for text in made.assumed]
    return lines


def _effects(effects: list[Effect], unread: list[Unread]) -> list[str]:
    lines = []
    for effect in effects:
        lines.append(f"{effect.state.upper():8}{effect.text}")
        lines += [f"          {line[:150]}" for line in effect.evidence[: 1 if effect.state == "yes" else 3]]
    lines += [f"not read: {item.path}: {item.reason}" for item in unread]
    return lines
