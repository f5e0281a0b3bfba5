"""`syncline audit`: is this host (or a captured one, or all of them) fit to train on?

Exit status is that of a Nagios check: 0 ok, 1 warning, 2 critical, 3 unknown. So that wrong arguments are not read
as CRITICAL, errors of this verb exit with 3, not 2.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.shell.output import JsonOption, emit, err, examples
from syncline.describe.plain import json_text

if TYPE_CHECKING:
    from syncline.auditing.report import HostReport
    from syncline.questions.audit import AuditAnswer

RUNS_BARE = True
EXIT_ON_ERROR = 3
MOST_UNREAD = 20
EPILOG = examples(
    "syncline audit",
    "syncline audit --cluster cluster.yaml --exit npd",
    "syncline audit --active --only 'active.*'",
    "syncline audit --root h3.tar.gz --junit audit.xml --html audit.html",
    "srun --ntasks-per-node=1 syncline audit --write /shared/audit; syncline audit matrix /shared/audit/*.json",
)
app = typer.Typer(help="Check a host, or many, for what slows or breaks training.", epilog=EPILOG)

Roots = Annotated[
    list[Path] | None, typer.Option("--root", metavar="TREE", help="A captured tree or archive instead of this host.")
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster: what this host should have.")
]
HostName = Annotated[str | None, typer.Option("--host", help="Which host of the cluster this is (default: by name).")]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="RULE", help="Only these rules: net.*, gpu.direct.")]
Ignore = Annotated[list[str] | None, typer.Option("--ignore", metavar="RULE", help="Skip these rules.")]
Write = Annotated[
    Path | None, typer.Option("--write", metavar="DIR", help="Write DIR/HOST.json; only one rank of a host does.")
]
Active = Annotated[
    bool, typer.Option("--active", help="Also load processors, memory, disks, GPUs and RDMA ports, for seconds.")
]
Anyway = Annotated[bool, typer.Option("--anyway", help="With --active: load the host although a job runs on it.")]
Peers = Annotated[
    int | None,
    typer.Option(
        "--peers", metavar="N", help="Also exchange packets with N - 1 other hosts that share the --write folder."
    ),
]
ExitStyle = Annotated[
    str, typer.Option("--exit", help="nagios (0 1 2 3), npd (0 1 2), nhc (0 1), none; auto: nagios, none under MPI.")
]
UnknownOk = Annotated[bool, typer.Option("--unknown-ok", help="Ignore what could not be checked.")]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page: findings, evidence and fixes.")]
Every = Annotated[bool, typer.Option("--all", help="Name the rules that passed or do not apply.")]


@app.callback(invoke_without_command=True, epilog=EPILOG)
def audit(
    context: typer.Context,
    root: Roots = None,
    cluster: Cluster = None,
    host: HostName = None,
    only: Only = None,
    ignore: Ignore = None,
    write: Write = None,
    active: Active = False,
    anyway: Anyway = False,
    peers: Peers = None,
    exit_style: ExitStyle = "auto",
    unknown_ok: UnknownOk = False,
    junit: Junit = None,
    html: Html = None,
    every: Every = False,
    json: JsonOption = False,
) -> None:
    """Check a host for what slows or breaks training: read-only, in seconds, root only where the kernel asks for it.

    The first line stands alone. What cannot be read is UNKNOWN with the reason; what does not apply is said once.
    """
    from syncline.questions.audit import AuditAnswer
    from syncline.questions.audit import audit as ask

    if context.invoked_subcommand is not None:
        return
    _check_style(exit_style)
    if (rank := _local_rank()) != 0:
        err().print(f"local rank {rank}: rank 0 of this host audits it", soft_wrap=True)
        return
    answer = ask(
        root or [], cluster=cluster, host=host, only=only or [], ignore=ignore or [], active=active, anyway=anyway
    )
    if unknown_ok:
        answer = answer.without_unknown()
    if peers is not None:
        answer = AuditAnswer((_probe(answer.hosts[0], write, peers),))
    if write is not None:
        _write(write, answer)
    _show(answer, junit, every, json, html)
    raise typer.Exit(_status(answer, exit_style))


@app.command(
    short_help="Compare reports of hosts: who is the odd one out?",
    epilog=examples("syncline audit matrix /shared/audit/*.json", "syncline audit matrix *.json --exit none --json"),
)
def matrix(
    reports: Annotated[list[Path], typer.Argument(metavar="JSON", help="What `syncline audit --json` printed.")],
    exit_style: ExitStyle = "nagios",
    unknown_ok: UnknownOk = False,
    junit: Junit = None,
    json: JsonOption = False,
) -> None:
    """Compare drivers, firmware, MTU, settings and counts across hosts: the majority decides, ties are reported."""
    _check_style(exit_style)
    _compare(reports, exit_style, unknown_ok, junit, json)


@app.command(epilog=examples("syncline audit rules", "syncline audit rules --json"))
def rules(json: JsonOption = False) -> None:
    """List the rules: what each asks, and when it applies."""
    from syncline.questions.audit import audit_rules

    answer = audit_rules()
    width = max(len(r.id) for r in answer.rules)
    emit(answer.to_json(), json, [f"{r.id:<{width}}  {r.severity.label:<8}  {r.about}" for r in answer.rules])


@app.command(
    short_help="Save what an audit reads, to audit it elsewhere.",
    epilog=examples(
        "syncline audit capture h3.tar.gz",
        "syncline audit capture h3/ && syncline audit --root h3/",
        "srun --ntasks-per-node=1 sh -c 'syncline audit capture /shared/$(hostname).tar.gz'",
    ),
)
def capture(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new folder, or a new .tar.gz file.")],
    json: JsonOption = False,
) -> None:
    """Write what an audit of this host reads to a folder or archive.

    Holds hardware and settings; no keys, no user's files or processes, and of the environment and the kernel command
    line only what the rules look at. `syncline/manifest.json` inside says what it holds and what could not be read.
    """
    from syncline.auditing.capture import HELD, NOT_HELD
    from syncline.auditing.capture import capture as capture_host
    from syncline.host.root import Root

    done = capture_host(Root.live(), path)
    unread = [f"  {name}: {reason}" for name, reason in done.unreadable.items()]
    lines = [
        f"wrote {done.path}: host {done.host}, {done.num_files:,} files, {done.num_commands} commands, "
        f"{done.size_bytes / 1024:,.0f} KiB",
        "", "it holds:", *(f"  {line}" for line in HELD),
        "", "it does not hold:", *(f"  {line}" for line in NOT_HELD),
        *(["", f"could not be read ({len(unread)}):", *unread[:MOST_UNREAD]] if unread else []),
    ]  # fmt: skip
    if len(unread) > MOST_UNREAD:
        lines.append(f"  and {len(unread) - MOST_UNREAD} more, in syncline/manifest.json")
    emit(done.to_json(), json, [*lines, "", f"audit it anywhere: syncline audit --root {done.path}"])


def _compare(paths: list[Path], style: str, unknown_ok: bool, junit: Path | None, json: bool) -> None:
    from syncline.questions.audit import audit_matrix

    answer = audit_matrix(paths)
    if unknown_ok:
        answer = answer.without_unknown()
    _show(answer, junit, False, json)
    raise typer.Exit(_status(answer, style))


def _show(answer: AuditAnswer, junit: Path | None, every: bool, json: bool, html: Path | None = None) -> None:
    from syncline.describe.files import write_text
    from syncline.report.audit_junit import junit as junit_text
    from syncline.report.text.audit import audit_lines

    if junit is not None:
        write_text(junit, junit_text(list(answer.hosts), answer.across))

    lines = list(audit_lines(answer.hosts, answer.across, every=every))
    if html is not None:
        from syncline.report.page.findings import findings_page

        hosts = ", ".join(report.host for report in answer.hosts[:4])
        write_text(html, findings_page(f"Audit of {hosts}", lines, answer.findings))
    emit(answer.to_json(), json, lines)


def _probe(report: HostReport, folder: Path | None, num_hosts: int) -> HostReport:
    """Add what is lost between this host and the others, and where their names lead."""
    from dataclasses import replace

    from syncline.auditing.probe import probe
    from syncline.errors import UsageError
    from syncline.host.host import Host
    from syncline.host.interface import IP_ADDRESS
    from syncline.host.lookup import ask
    from syncline.host.root import Root

    if folder is None:
        raise UsageError("--peers needs --write DIR, a folder that all hosts share.", hint="Add --write /shared/audit.")
    root = Root.live()
    usable = [i for i in Host(root).socket_interfaces if i.ipv4]
    if not usable and (why := root.problems.get(f"`{' '.join(IP_ADDRESS)}`")):
        raise UsageError(f"the addresses of this host cannot be read: {why}.",
                         hint="--peers asks the program `ip` (Debian: apt install iproute2).")  # fmt: skip
    if not usable:
        raise UsageError("no interface has an IPv4 address to reach peers from.", hint="Set NCCL_SOCKET_IFNAME.")
    address = usable[0].ipv4[0].split("/")[0]
    job = "-".join(os.environ[name] for name in _JOBS if os.environ.get(name, "").isalnum())
    found = probe(folder / f"doors{job and '-' + job}", report.host, address, usable[0].mtu, num_hosts)
    asked = {peer: ask(root, peer, key=f"getent-peer-{peer}") for peer in found}
    names = {peer: addresses for peer, addresses in asked.items() if addresses is not None}
    lost = {peer: (shares.small, shares.large) for peer, shares in found.items()}
    return replace(report, lost=lost, names={**report.names, **names})


def _write(folder: Path, answer: AuditAnswer) -> None:
    from dataclasses import replace

    from syncline.describe.files import make_folder, write_text

    make_folder(folder)
    for report in answer.hosts:
        name = report.host.replace("/", "-")
        write_text(folder / f"{name}.json", json_text(replace(answer, hosts=(report,), across=None).to_json()) + "\n")


def _status(answer: AuditAnswer, style: str) -> int:
    """Return the exit status: Nagios, node-problem-detector (0 ok, 1 problem, 2 unknown), NHC (0, 1) or always 0.

    mpirun and torchrun end every rank when one exits with more than 0, so there `auto` says 0.
    """
    from syncline.finding import Severity

    status = answer.severity
    if style == "auto":
        style = "none" if _ends_together() else "nagios"
    if style == "nagios":
        return int(status)
    problem = status in (Severity.WARNING, Severity.CRITICAL)
    if style == "npd":
        return 1 if problem else 2 if status is Severity.UNKNOWN else 0
    return int(problem) if style == "nhc" else 0


def _check_style(style: str) -> None:
    from syncline.errors import UsageError

    if style not in ("auto", "nagios", "npd", "nhc", "none"):
        raise UsageError(f'no exit style is called "{style}".', hint="One of: auto, nagios, npd, nhc, none.")


_JOBS = ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID")


def _ends_together() -> bool:
    """Say whether a launcher would end the audits of the other hosts when this one exits with more than 0."""
    shared = ("TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    return any(os.environ.get(name) for name in shared)


def _local_rank() -> int:
    """Return this process's number on its host, as torchrun, Slurm, Open MPI or MPICH tell it."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return 0
