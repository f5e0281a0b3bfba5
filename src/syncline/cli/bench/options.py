"""The options of `syncline bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.derive import rare

Cluster = Annotated[
    str | None,
    typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster; without one nothing is predicted."),
]
Size = Annotated[str, typer.Option(help="Sizes: one, several with commas, or a range that doubles (1KiB..1GiB).")]
Begin = Annotated[str | None, typer.Option("-b", help="Smallest size, as nccl-tests writes it (8, 32M).")]
End = Annotated[str | None, typer.Option("-e", help="Largest size, as nccl-tests writes it.")]
Factor = Annotated[int, typer.Option("-f", help="Each size is this many times the last (default 2).")]
Step = Annotated[str | None, typer.Option("-i", help="Each size is this many bytes more than the last.")]
Algorithm = Annotated[str, typer.Option("--algorithm", "-a", help="vendor (the backend's own), families; by commas.")]
Dtype = Annotated[str, rare("--dtype", "-d", help="float, double, half, bfloat16, int32, int64 or uint8.")]
CodecName = Annotated[str, typer.Option("--codec", help="What families send their bytes in: raw, int8, bf16, ...")]
Backend = Annotated[str | None, rare(help="gloo, nccl or mpi (default: nccl where there are GPUs, else gloo).")]
WarmUp = Annotated[int, rare("--warm-up", "-w", min=0, help="Repetitions that do not count.")]
Repeats = Annotated[int, typer.Option("--repeats", "-n", min=1, help="Repetitions that count.")]
Budget = Annotated[float, rare("--budget", min=0, help="Seconds for one size; fewer repetitions past it.")]
Deadline = Annotated[float, rare(min=0.1, help="Seconds after which a rank that does not answer is named.")]
Local = Annotated[int | None, typer.Option(metavar="N", help="Start N ranks on this machine, for a quick try.")]
PlacementName = Annotated[str | None, rare("--placement", help="packed, spread or rail-aware.")]
Routing = Annotated[str, rare(help="How the fabric routes: ecmp, adaptive, spray or static.")]
Transport = Annotated[str | None, rare(help="rdma, efa, tcp or ideal (default: tcp, on nccl rdma).")]
Cost = Annotated[bool, typer.Option("--cost", help="Price the gap: GPU-hours and dollars a day.")]
Exposed = Annotated[float, rare(help="With --cost: share of a step that waits for communication.")]
GpuHour = Annotated[float | None, typer.Option("--gpu-hour", help="With --cost: dollars a GPU-hour (or a cloud's).")]
Trace = Annotated[Path | None, typer.Option(help="Write the last repetition's timeline (.json, .parquet).")]
Check = Annotated[bool, typer.Option("--check", help="Exit like a Nagios check: 0 ok, 1 warning, 2 critical.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page: measured and predicted, findings.")]
Read = Annotated[Path | None, typer.Option(metavar="LOG", help="Judge a log of nccl-tests or rccl-tests instead.")]
Collective = Annotated[str | None, typer.Option(help="With --read: the collective, where the log does not say it.")]
Ranks = Annotated[int, typer.Option(help="With --read: the ranks, where the log does not say them.")]
