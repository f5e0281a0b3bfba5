"""Options of `syncline watch`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell.derive import rare

elsewhere = partial(typer.Option, rich_help_panel="Instead of this host")
job = partial(typer.Option, rich_help_panel="The job")
serving = partial(typer.Option, rich_help_panel="Where it is shown")

Interfaces = Annotated[str | None, typer.Option(help='Interfaces to read, as a pattern: "eth.*|ib.*".')]
Netns = Annotated[list[str] | None, rare(help="Also this network namespace: NAME or NAME=PATH (repeat).")]
Links = Annotated[Path | None, typer.Option(help="YAML that names interfaces as links, with capacity and rail.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="Take names and rates of links from it.")
]
Nics = Annotated[str | None, rare(help="With --cluster: this host's interfaces in the order of its NICs: eth0,eth1.")]
Host = Annotated[str | None, rare(help="Name of this host (default: its host name).")]
Expect = Annotated[
    Path | None,
    typer.Option(
        help="What is expected: a plan, a simulated timeline, a YAML table, or the history of an earlier run."
    ),
]
Rules = Annotated[Path | None, rare(help="YAML of thresholds that differ from the defaults.")]
History = Annotated[Path | None, typer.Option(help="Keep a history in this file (SQLite).")]
HistorySize = Annotated[str, rare(help="Largest size of the history.")]
SpansSocket = Annotated[
    Path | None,
    job(help="Listen here for spans of the runtime (default: where the runtime looks)."),
]
SpansGroup = Annotated[
    str, job(help='Accept spans from jobs of this group too (default for root: "syncline", where the host has it).')
]
SpansJob = Annotated[
    str, job(help="Follow only this job (SYNCLINE_JOB, a scheduler's number, or HOST:PORT where ranks meet).")
]
Timelines = Annotated[Path | None, job(help="Folder in which timelines of the run appear.")]
Inspector = Annotated[Path | None, job(help="Folder of NCCL Inspector's JSON files.")]
Recorder = Annotated[Path | None, job(help="Folder of PyTorch flight recorder dumps.")]
NcclLog = Annotated[Path | None, job(help="Folder of NCCL's logs (NCCL_DEBUG_FILE), to name the rank that hangs.")]
Ras = Annotated[str | None, job(help="Ask NCCL's RAS service at this address which rank hangs: localhost:28028.")]
Terminal = Annotated[bool, typer.Option("--terminal", help="Show it at this terminal.")]
Serve = Annotated[bool, typer.Option("--serve", help="Serve the page and /metrics.")]
Address = Annotated[str, serving(help="Address to serve on; elsewhere than loopback needs a token.")]
Port = Annotated[int, serving(help="Port to serve on; 0 lets the system choose.")]
TokenFile = Annotated[Path | None, serving(help="File with the token that clients must send.")]
TlsCert = Annotated[Path | None, serving(help="Certificate chain for TLS (PEM).")]
TlsKey = Annotated[Path | None, serving(help="Private key of the certificate (PEM).")]
Agents = Annotated[
    list[str] | None, elsewhere("--agent", help="Show other agents instead: URL, or URL#TOKENFILE (repeat).")
]
Prometheus = Annotated[
    str | None,
    elsewhere(help="Show what this Prometheus server has collected, from agents or node_exporter and DCGM: URL."),
]
Alertmanager = Annotated[str | None, serving(help="Also send alerts to this Alertmanager: URL.")]
DemoOption = Annotated[
    bool,
    elsewhere("--demo", help="Show the page with a small training in a lab on this machine, and four faults a minute."),
]
LabName = Annotated[
    str | None,
    elsewhere("--lab", help='Watch a running lab instead: its name, or "any" for the only one (`lab list`).'),
]
Replay = Annotated[
    Path | None, elsewhere(help="Play a timeline, or the last day of a history, instead of watching this host.")
]
Speed = Annotated[
    float | None,
    elsewhere(help="With --replay: seconds of the run in a second (a history: what takes two minutes)."),
]
Otel = Annotated[str | None, serving(help="Also send metrics to this OpenTelemetry collector: URL (OTLP over HTTP).")]
For = Annotated[str | None, typer.Option("--for", help="Stop after this time: 10s, 5min. Default: until interrupted.")]
Every = Annotated[str, rare(help="Interval between updates.")]
Root = Annotated[Path, rare(help="Read /sys and /proc below this folder.")]
Gpus = Annotated[int | None, job(help="GPUs of the job, for the cost of an alert.")]
Price = Annotated[float | None, job(help="Dollars a GPU-hour, for the cost of an alert.")]
