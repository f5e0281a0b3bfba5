"""`syncline validate`: predictions against published measurements."""

from __future__ import annotations

import contextlib
import io
from json import loads as parse_json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.shell.derive import app_of
from syncline.cli.shell.output import JsonOption, emit, examples
from syncline.describe.guide import cite
from syncline.describe.plain import JsonObject
from syncline.errors import SynclineError
from syncline.questions import validate as questions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from syncline.validation.claims import ClaimFile

app = app_of(questions)
VERDICTS = ("reproduced", "conditional", "refuted", "undecided", "not here")


@app.command(
    epilog=examples(
        "syncline validate claims",
        "syncline validate claims volume C51",
        "syncline validate claims C06 --files claims",
        "syncline validate claims --data mine.yaml --json",
    )
)
def claims(
    context: typer.Context,
    only: Annotated[list[str] | None, typer.Argument(metavar="CLAIM|AREA", help="C01, fabric, ...")] = None,
    data: Annotated[Path | None, typer.Option("--data", help=f"YAML of claims ({cite('claims')}).")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Read what scripts of the repository printed last instead of running them.")
    ] = False,
    files: Annotated[
        Path | None,
        typer.Option("--files", metavar="DIR", help="Write what the commands read there, and print the commands."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check published claims about networks for training.

    Each is computed by commands that can be run again; --files writes the clusters and jobs that they name.

    Reproduced: every case gives what is stated; refuted: none does; conditional: some do, and the cases say which;
    undecided: what is computed cannot judge it. What would change a verdict stands under it.
    """
    from syncline.validation.claims import judge, load_claims

    if files is not None:
        _write_given(files, load_claims(data), only or (), json)
        return

    def started(claim: str, script: str) -> None:
        typer.echo(f"{claim}: running {script} (minutes; --quick reads what it printed last)", err=True)

    found = judge(load_claims(data), answers(context.find_root().command), only or (), quick=quick, started=started)
    verdicts = [verdict.to_json() for verdict in found]
    counted = {word: sum(verdict["verdict"] == word for verdict in verdicts) for word in VERDICTS}
    emit({"claims": verdicts, "counted": counted}, json, _claim_lines(verdicts, counted))


def _write_given(folder: Path, found: ClaimFile, only: Sequence[str], as_json: bool) -> None:
    """Write the descriptions that the commands of claims name, a folder a claim, and show the commands."""
    from syncline.describe.files import write_text
    from syncline.errors import UsageError
    from syncline.validation.claims import select

    rows: list[JsonObject] = []
    for claim in select(found, only):
        here, given = folder / claim.id, found.descriptions(claim)
        for name, text in given.items():
            if Path(claim.id).name != claim.id or Path(name).name != name:
                raise UsageError(
                    f'"{claim.id}/{name}" would be written outside the folder.', hint="Use names without slashes."
                )
            here.mkdir(parents=True, exist_ok=True)
            write_text(here / name, text)
        for command in found.commands(claim):
            where = f"cd {here} && " if given.keys() & set(command.split()) else ""
            rows.append({"claim": claim.id, "command": f"{where}{command}"})
    lines = [f"{row['claim']}  {row['command']}" for row in rows]
    emit({"commands": rows}, as_json, lines)


def answers(root: Any) -> Callable[[list[str]], tuple[Any, int]]:
    """Return what runs a command of syncline in this process: its JSON and its exit status."""

    def ask(words: list[str]) -> tuple[Any, int]:
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                status = root.main(args=[*words, "--json"], prog_name="syncline", standalone_mode=False)
        except SynclineError as error:
            return error.to_json(), 2
        return parse_json(out.getvalue() or "{}"), status if isinstance(status, int) else 0

    return ask


def _claim_lines(verdicts: list[JsonObject], counted: dict[str, int]) -> list[str]:
    from syncline.report.text.validate import claim_lines

    lines = [line for verdict in verdicts for line in claim_lines(verdict)]
    return [*lines, "", ", ".join(f"{count} {word}" for word, count in counted.items() if count)]
