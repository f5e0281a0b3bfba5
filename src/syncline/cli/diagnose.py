"""`syncline diagnose`: what went wrong first, from logs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.shell.output import JsonOption, emit, examples, progress, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from syncline.diagnose import LogRule
    from syncline.questions.diagnose import DiagnosisAnswer

EPILOG = examples(
    "syncline diagnose job.log",
    "syncline diagnose slurm-4242.out /var/log/kern.log.gz nccl-logs/ --json",
    "dmesg | syncline diagnose - --cluster cluster.yaml",
    "syncline diagnose job.log --rules our-rules/ --exit nagios",
)
app = typer.Typer()
RUNS_BARE = True

Logs = Annotated[
    list[str] | None,
    typer.Argument(metavar="LOG", help="Files, folders, or - for stdin (read too where none is named); packed too."),
]
Rules = Annotated[
    list[Path] | None, typer.Option("--rules", metavar="DIR", help="Rules of your own, added to those that ship.")
]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="The cluster, if known.")]
Exit = Annotated[
    str, typer.Option("--exit", help="none (0 when done) or nagios (0 ok, 1 warning, 2 critical, 3 nothing read).")
]
ListRules = Annotated[bool, typer.Option("--list", help="List the rules instead.")]
CheckRules = Annotated[bool, typer.Option("--check-rules", help="Try every rule on its own example instead.")]


@app.command(epilog=EPILOG)
def diagnose(
    logs: Logs = None,
    rules: Rules = None,
    cluster: Cluster = None,
    exit_style: Exit = "none",
    list_rules: ListRules = False,
    check_rules: CheckRules = False,
    json: JsonOption = False,
) -> None:
    """Say what went wrong first in NCCL, PyTorch, verbs and kernel logs of any size.

    Each cause comes with the lines that show it, what it means, what to do and how sure that is; what it led to stands
    below it. What cannot be read is listed. Nothing is changed or sent anywhere.
    """
    from syncline.diagnose import read_rules, shipped_rules
    from syncline.errors import FileError, UsageError

    if exit_style not in ("none", "nagios"):
        raise UsageError(f'no exit style is called "{exit_style}".', hint="One of: none, nagios.")
    book = shipped_rules()
    for path in rules or []:
        book = read_rules(path, book)
    if list_rules:
        _list(book, json)
        return
    if check_rules:
        _check(book, json)
        return
    if not logs and sys.stdin.isatty():
        raise UsageError("no log is named.", hint="Name files or folders, or - for stdin.")
    answer = _run(logs or ["-"], rules or [], cluster)
    diagnosis = answer.diagnosis
    if diagnosis.nothing_read and exit_style == "none":
        empty = "there is nothing in it" if diagnosis.num_files else "the folder holds no file"
        why = "; ".join(f"{item.path}: {item.reason}" for item in diagnosis.unread[:3]) or empty
        raise FileError(
            f"no log could be read: {why}.", hint="Name files or folders that you may read, or - for stdin."
        )
    tell(answer, json)
    if exit_style == "nagios":
        raise typer.Exit(int(diagnosis.severity))


def _run(logs: list[str], rules: list[Path], cluster: str | None) -> DiagnosisAnswer:
    from syncline.questions.diagnose import diagnose

    with progress() as shown:
        task = shown.add_task("reading", total=_total(logs))
        return diagnose(logs, rules=rules, cluster=cluster, on_bytes=lambda count: shown.advance(task, count))


def _total(logs: list[str]) -> int | None:
    """Return the bytes to read, where that can be known before."""
    try:
        paths = [Path(log) for log in logs]
        return sum(path.stat().st_size for path in paths) if all(path.is_file() for path in paths) else None
    except (OSError, ValueError):
        return None


def _list(book: Mapping[str, LogRule], as_json: bool) -> None:
    from syncline.audit.environment import rule_ids

    rows = [
        {"id": rule.id, "severity": rule.severity.label, "title": rule.title, "fix": rule.fix}
        for rule in book.values()
        if not rule.signal
    ]
    payload = {"rules": rows, "environment": list(rule_ids())}
    lines = [f"{row['id']:32} {row['severity']:9} {row['title']}" for row in rows]
    lines.append(f"and {len(rule_ids())} of the environment (nccl.env.*)")
    emit(payload, as_json, lambda console: console.print("\n".join(lines), soft_wrap=True))


def _check(book: Mapping[str, LogRule], as_json: bool) -> None:
    from syncline.diagnose.examples import failing_examples
    from syncline.errors import RuleError

    with progress() as shown:
        task = shown.add_task("trying rules", total=None)
        failing = failing_examples(book, lambda done, total: shown.update(task, completed=done, total=total))
    if failing:
        id_, found = next(iter(failing.items()))
        raise RuleError(
            f'the example of rule "{id_}" is not matched by it.',
            where=book[id_].where,
            detail=f"It gives: {', '.join(found) or 'nothing'}. In all {len(failing)} rules fail on their example.",
            hint="Fix the pattern or the example.",
        )
    tried = sum(1 for rule in book.values() if rule.example)
    emit({"tried": tried}, as_json, lambda console: console.print(f"{tried} rules find their examples."))
