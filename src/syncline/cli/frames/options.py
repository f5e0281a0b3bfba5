"""Options of `syncline watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Interfaces = Annotated[str | None, typer.Option(help='Interfaces to read, as a pattern: "eth.*|ib.*".')]
Netns = Annotated[list[str] | None, typer.Option(help="Also this network namespace: NAME or NAME=PATH (repeat).")]
Links = Annotated[Path | None, typer.Option(help="YAML that names interfaces as links, with capacity and rail.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="Take names and rates from it.")
]
Nics = Annotated[
    str | None, typer.Option(help="With --cluster: this host's interfaces in the order of its NICs: eth0,eth1.")
]
Host = Annotated[str | None, typer.Option(help="What this host is called (default: its host name).")]
Expect = Annotated[
    Path | None,
    typer.Option(
        help="What is expected: a plan, a simulated timeline, a YAML table, or the history of an earlier run."
    ),
]
Rules = Annotated[Path | None, typer.Option(help="YAML of thresholds that differ from the defaults.")]
History = Annotated[Path | None, typer.Option(help="Keep the past in this file.")]
HistorySize = Annotated[str, typer.Option(help="Most that the past may take.")]
SpansSocket = Annotated[
    Path | None,
    typer.Option(help="Listen here for spans of the runtime (default: where it looks by itself)."),
]
SpansGroup = Annotated[
    str, typer.Option(help='Let jobs of this group report too (default for root: "syncline", where the host has it).')
]
SpansJob = Annotated[
    str, typer.Option(help="Follow this job alone (SYNCLINE_JOB, a scheduler's number, or HOST:PORT where ranks meet).")
]
Timelines = Annotated[Path | None, typer.Option(help="Folder in which timelines of the run appear.")]
Inspector = Annotated[Path | None, typer.Option(help="Folder of NCCL Inspector's JSON files.")]
Recorder = Annotated[Path | None, typer.Option(help="Folder of PyTorch flight recorder dumps.")]
NcclLog = Annotated[Path | None, typer.Option(help="Folder of NCCL's logs (NCCL_DEBUG_FILE), to name who hangs.")]
Ras = Annotated[str | None, typer.Option(help="Ask NCCL's RAS service there who hangs: localhost:28028.")]
Terminal = Annotated[bool, typer.Option("--terminal", help="Show it at this terminal.")]
Serve = Annotated[bool, typer.Option("--serve", help="Serve the page and /metrics.")]
Address = Annotated[str, typer.Option(help="Address to serve on; elsewhere than loopback needs a token.")]
Port = Annotated[int, typer.Option(help="Port to serve on; 0 lets the system choose.")]
TokenFile = Annotated[Path | None, typer.Option(help="File with the token that readers must show.")]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate chain for TLS (PEM).")]
TlsKey = Annotated[Path | None, typer.Option(help="Its key (PEM).")]
Agents = Annotated[
    list[str] | None, typer.Option("--agent", help="Show other agents instead: URL, or URL#TOKENFILE (repeat).")
]
Prometheus = Annotated[
    str | None,
    typer.Option(help="Show what this Prometheus server has collected, from agents or node_exporter and DCGM: URL."),
]
Alertmanager = Annotated[str | None, typer.Option(help="Also send alerts to this Alertmanager: URL.")]
DemoOption = Annotated[
    bool,
    typer.Option(
        "--demo", help="Show the page with a small training in a lab on this machine, and four faults a minute."
    ),
]
LabName = Annotated[
    str | None,
    typer.Option("--lab", help='Watch a running lab instead: its name, or "any" for the only one (`lab list`).'),
]
Replay = Annotated[
    Path | None, typer.Option(help="Play a timeline, or the last day of a history, instead of watching this host.")
]
Speed = Annotated[
    float | None,
    typer.Option(help="With --replay: seconds of the run in a second (a history: what takes two minutes)."),
]
Otel = Annotated[
    str | None, typer.Option(help="Also send metrics to this OpenTelemetry collector: URL (OTLP over HTTP).")
]
For = Annotated[str | None, typer.Option("--for", help="Stop after this time: 10s, 5min. Default: until interrupted.")]
Every = Annotated[str, typer.Option(help="Time between two looks.")]
Root = Annotated[Path, typer.Option(help="Read /sys and /proc below this folder.")]
Gpus = Annotated[int | None, typer.Option(help="GPUs of the job, for the cost of an alert.")]
Price = Annotated[float | None, typer.Option(help="Dollars a GPU-hour, for the cost of an alert.")]
