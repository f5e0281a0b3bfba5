"""How verbs speak: text to people, one strict JSON object to programs, progress to a terminal and nowhere else.

@app.command(epilog=examples("syncline fabric show", "syncline fabric show eos --json"))
def show(name: str = "default", json: JsonOption = False) -> None:
    from syncline.fabric.load import load      # heavy imports belong inside the command

    fabric = load(name)
    emit({"gpus": fabric.num_gpus}, json, [f"{fabric.num_gpus} GPUs"])
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from syncline.describe.plain import json_text
from syncline.describe.rendering import WIDTH

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress

    from syncline.questions.answer import Answer

JSON_HELP = "Print one JSON object instead of text."
JsonOption = Annotated[bool, typer.Option("--json", help=JSON_HELP)]


def emit(payload: Mapping[str, object], as_json: bool, parts: Iterable[object]) -> None:
    """Print a verb's answer: `payload` as JSON, or its lines and tables."""
    if as_json:
        print_json(payload)
    else:
        print_parts(out(), parts)


def print_parts(console: Console, parts: Iterable[object]) -> None:
    """Print lines and tables: a line that does not fit wraps, a table is fitted to the console."""
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def tell(answer: Answer, as_json: bool, *written: Path | None) -> None:
    """Print an answer as its renderer does, or as JSON, and the files that were written for it."""
    paths = [str(path) for path in written if path is not None]
    if as_json:
        print_json({**answer.to_json(), **({"written": paths} if paths else {})})
        return
    from syncline.report.rendered import parts

    console = out()
    print_parts(console, [*parts(answer, console.width), *(f"wrote {path}" for path in paths)])


def print_json(payload: Mapping[str, object]) -> None:
    """Print `payload` as one strict JSON object on stdout."""
    print(json_text(payload, ascii_only=(sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")))


def out() -> Console:
    """Return a console on stdout."""
    return _console(sys.stdout)


def err() -> Console:
    """Return a console on stderr."""
    return _console(sys.stderr)


def progress() -> Progress:
    """Return a progress display on stderr, silent when that is not a terminal. Use it as a context manager."""
    from rich.progress import Progress

    console = err()
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def examples(*commands: str) -> str:
    """Return the epilog that lists example commands, one a line."""
    return "\n".join(("\b", "Examples:", *(f"  {command}" for command in commands)))


def _console(stream: TextIO) -> Console:
    from syncline.cli.shell.console import RoomyConsole

    # Markup is off because names such as "gpu[0-7]" would be eaten; a fixed width when piped keeps output comparable.
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDTH
    return RoomyConsole(file=stream, width=width, markup=False, highlight=False, emoji=False)
