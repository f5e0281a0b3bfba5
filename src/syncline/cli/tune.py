"""`syncline calibrate tune -- COMMAND`: run a script for a while, write how it should synchronise, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from syncline.cli.shell.output import JsonOption, emit, err, examples

EPILOG = examples(
    "syncline calibrate tune --local 2 -- python train.py",
    "syncline calibrate tune -- torchrun --nproc-per-node 8 train.py --batch 16",
    "SYNCLINE_SETTINGS=syncline-tune.yaml torchrun --nproc-per-node 8 train.py",
)

Command = Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND", help="What starts the training.")]
Local = Annotated[int | None, typer.Option(min=2, help="Start COMMAND this many times here, as ranks of one job.")]
Output = Annotated[Path, typer.Option(help="The settings file to write.")]
Timeout = Annotated[float, typer.Option(min=1, help="Give up after this many seconds without an answer.")]


def tune(
    command: Command = None,
    local: Local = None,
    output: Output = Path("syncline-tune.yaml"),
    timeout: Timeout = 900.0,
    json: JsonOption = False,
) -> None:
    """Run COMMAND until `synchronize` has measured and chosen a codec, then write its choice.

    The script must call syncline.torch.synchronize on a DDP model; whatever codec it names, it is measured as
    codec="auto". Its own output goes to stderr.
    """
    from syncline.cli.shell.ranks import run_until
    from syncline.describe.files import check_writable, write_text
    from syncline.errors import UsageError

    if not command:
        raise UsageError("there is no command to tune.", hint="syncline calibrate tune --local 2 -- python train.py")
    check_writable(output)
    found = run_until(command, local, timeout, err().print)
    write_text(output, settings_text(found))
    payload = {**found, "written": str(output)}
    emit(payload, json, _lines(found, output))


def settings_text(found: Mapping[str, Any]) -> str:
    """Return the settings file: YAML that `synchronize(settings=FILE)` reads, with the reasons."""
    import yaml

    kept: dict[str, object] = {
        "codec": found["codec"],
        "why": found["why"],
        "tried_s": {name: round(value, 6) for name, value in found["tried_s"].items()},
        "num_ranks": found["num_ranks"],
    }
    head = (
        "# Written by `syncline calibrate tune`. Use: synchronize(model, settings=FILE), or SYNCLINE_SETTINGS=FILE.\n"
    )
    return head + str(yaml.safe_dump(kept, sort_keys=False, width=110))


def _lines(found: Mapping[str, Any], output: Path) -> list[str]:
    from syncline.describe.units import show_time

    lines = [found["why"], "", f"{'choice':12} {'a step':>12}"]
    for name, took in sorted(found["tried_s"].items(), key=lambda row: row[1]):
        lines.append(f"{name:12} {show_time(took):>12}")
    return [*lines, "", f"wrote {output}: synchronize(model, settings={str(output)!r})"]
