"""`syncline nccl`: what to set for NCCL on a cluster, and whether it took effect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from syncline.cli.shell.output import JsonOption, emit, examples, tell

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
JobFile = Annotated[Path | None, typer.Argument(metavar="JOB", help="A job file: its ranks and collectives.")]
Release = Annotated[str | None, typer.Option("--nccl", help="NCCL release (default: the cluster's, else 2.27).")]
Ranks = Annotated[int | None, typer.Option("--ranks", "-n", help="Ranks of the job (default: all, or the job's).")]
Tuner = Annotated[
    bool, typer.Option("--tuner", help="Also write a tuner file: the model's choices, not measured here.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the files into this folder.")]
Logs = Annotated[list[str], typer.Argument(metavar="LOG", help="NCCL logs (NCCL_DEBUG=INFO), folders, or -.")]
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
    tuner: Tuner = False,
    json: JsonOption = False,
) -> None:
    """Print variables and start files, or write them (--out).

    Files: nccl.env, nccl-topology.xml, job.sbatch, mpijob.yaml, pytorchjob.yaml, topology.conf, topology-labels.yaml
    and kueue-topology.yaml; with --tuner also nccl-tuner.csv (where the model says that NCCL's own choice is poor:
    measure it).
    """
    from syncline.questions.advise import advise
    from syncline.report.text.check.advice import advice_lines

    answer = advise(cluster, job, nccl=nccl, ranks=ranks, tuner=tuner)
    written = answer.write(out) if out is not None else []
    payload = {**answer.to_json(), **({"written": [str(path) for path in written]} if written else {})}
    lines = advice_lines(answer.bundle, written)
    emit(payload, json, lambda console: console.print("\n".join(lines), soft_wrap=True))


@app.command(
    epilog=examples(
        "syncline nccl check nccl.log --cluster h100-64-rail",
        "syncline nccl check logs/ --cluster cluster.yaml --env nccl-files/nccl.env --json",
    )
)
def check(logs: Logs, cluster: ClusterOption, env: EnvFile = None, json: JsonOption = False) -> None:
    """Say from a log whether what was set took effect.

    Network, GPUDirect, NICs, rails, NVLS, channels and variables.

    Each line is yes, no or unknown. Exit status is 0 whatever it says: it is an answer, not an error.
    """
    from syncline.describe.document import read_text
    from syncline.questions.advise import check_effect

    tell(check_effect(logs, cluster, wanted=_variables(read_text(env)) if env else {}), json)


def _variables(text: str) -> dict[str, str]:
    """Read `export NAME='value'` lines; comments and everything else are left out."""
    found = {}
    for line in text.splitlines():
        name, sign, value = line.strip().removeprefix("export ").partition("=")
        if sign and name.isidentifier() and name.isupper():
            found[name] = value.strip().strip("'\"")
    return found
