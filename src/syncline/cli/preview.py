"""`syncline preview`: run a training script as one rank of its world, without a GPU, and price it on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.output import JsonOption, err, examples, tell

EPILOG = examples(
    "syncline preview h100-64-rail -- torchrun --nnodes 8 --nproc-per-node 8 train.py --config 8b.toml",
    "syncline preview cluster.yaml --what-if gpu=H200-SXM5-141GB -- srun -N 8 --ntasks-per-node 8 python train.py",
    "syncline preview cluster.yaml --check 1 --html preview.html -- accelerate launch --num_processes 16 train.py",
    "syncline preview lab.yaml --cpu --measure -- torchrun --nnodes 4 train.py",
)
app = typer.Typer()

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="A cluster file or a preset (`syncline fabric list`).")]
Command = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND", help="What would start the job: torchrun ... train.py ...")
]
World = Annotated[int, typer.Option(help="Number of ranks, instead of the launcher's.", min=0)]
WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if",
        help="gpu=NAME, cluster=FILE, codec=NAME, algorithm=ring or tree, network=2x, network=free, fail=LINK, "
        "bucket=SIZE or world=N; may be repeated.",
    ),
]
Check = Annotated[int, typer.Option(help="Run this many other ranks and say whether they do the same.", min=0, max=5)]
Timeout = Annotated[str, typer.Option(help="The longest that one rank of the script may run.")]
Memory = Annotated[str, typer.Option(help="The most address space that one rank of the script may take.")]
RoutingName = Annotated[str, typer.Option("--routing", help="spray (balanced), ecmp (hashed) or static.")]
Measure = Annotated[
    bool, typer.Option("--measure", help="Time each distinct kernel once on this machine's GPU (with --cpu, its CPU).")
]
Cpu = Annotated[
    bool, typer.Option("--cpu", help="The script computes on the hosts' processors, and talks through gloo.")
]
Measured = Annotated[Path | None, typer.Option(help="Use kernel times of this file, as --measure --keep leaves it.")]
Captured = Annotated[Path | None, typer.Option(help="Price what --keep left in this folder; the script is not run.")]
Keep = Annotated[Path | None, typer.Option(help="Keep what was captured in this folder.")]
Trace = Annotated[Path | None, typer.Option(help="Write the timeline (.json or .json.gz for Perfetto, .parquet).")]
Saved = Annotated[
    Path | None, typer.Option("--workload", help="Write the step's graph, which `syncline.workload` reads.")
]
JobFile = Annotated[
    Path | None,
    typer.Option("--job", help="Write the job file (shape, split, batch); say how `step` of it differs."),
]
Chakra = Annotated[Path | None, typer.Option(help="Write Chakra execution traces of the step into this folder.")]
Html = Annotated[Path | None, typer.Option(help="Write a page: two steps of every captured rank, and all numbers.")]


# What follows `--` is the script's.
@app.command(epilog=EPILOG)
def preview(
    cluster: Cluster,
    command: Command,
    world: World = 0,
    what_if: WhatIf = None,
    check: Check = 0,
    timeout: Timeout = "10min",
    memory: Memory = "16GiB",
    routing: RoutingName = "spray",
    measure: Measure = False,
    measured: Measured = None,
    cpu: Cpu = False,
    keep: Keep = None,
    captured: Captured = None,
    trace: Trace = None,
    workload: Saved = None,
    job: JobFile = None,
    chakra: Chakra = None,
    html: Html = None,
    json: JsonOption = False,
) -> None:
    """Run a training script unmodified, as one rank of its world, and predict its step on a cluster.

    The script runs in one ordinary process with tensors that have shapes and no values, so any world fits a laptop and
    no GPU is needed. Put the command that would start the job after `--`. Every kernel, collective, wait and allocation
    is recorded over a warm-up and two steps, priced for the cluster's GPU and executed on its network. Where the script
    reads a value that does not exist (loss.item()), a stand-in answers and is listed.
    """
    from syncline.describe.files import check_folder, check_writable, write_text
    from syncline.preview.export import save_chakra
    from syncline.questions.preview import preview as ask
    from syncline.timeline import save
    from syncline.workload.graph import save_workload

    for path in (trace, workload, job, html):
        if path is not None:
            check_writable(path)
    for folder in (keep, chakra):
        if folder is not None:
            check_folder(folder)
    answer = ask(
        cluster,
        command,
        world=world,
        what_if=what_if,
        check=check,
        timeout=timeout,
        memory=memory,
        routing=routing,  # type: ignore[arg-type]
        measure=measure,
        measured=measured,
        keep=keep,
        captured=captured,
        beside=job is not None,
        cpu=cpu,
        tell=_tell,
    )
    if trace is not None:
        save(answer.timeline, trace)
    if workload is not None:
        save_workload(answer.graph.workload, workload)
    if job is not None:
        write_text(job, answer.job.to_yaml(answer.launch.script))
    if chakra is not None:
        save_chakra(answer.graph, chakra)
    if html is not None:
        answer.page(html)
    tell(answer, json, trace, workload, job, chakra, html)


def _tell(text: str) -> None:
    console = err()
    if console.is_terminal:
        console.print(f"[dim]{text}[/dim]")
