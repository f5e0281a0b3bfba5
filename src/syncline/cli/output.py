"""How verbs speak: text to people, one strict JSON object to programs, progress to a terminal and nowhere else.

@app.command(epilog=examples("syncline fabric show", "syncline fabric show eos --json"))
def show(name: str = "default", json: JsonOption = False) -> None:
    from syncline.fabric.load import load      # heavy imports belong inside the command

    fabric = load(name)
    emit({"gpus": fabric.num_gpus}, json, lambda console: console.print(f"{fabric.num_gpus} GPUs"))
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

WIDTH_WHEN_PIPED = 120

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def emit(payload: Mapping[str, Any], as_json: bool, text: Callable[[Console], None]) -> None:
    """Print a verb's answer: `payload` as JSON, or whatever `text` writes on the console."""
    if as_json:
        print_json(payload)
    else:
        text(out())


def print_json(payload: Mapping[str, Any]) -> None:
    """Print `payload` as one strict JSON object on stdout."""
    print(json_text(payload, ascii_only=(sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")))


def json_text(payload: Mapping[str, Any], *, ascii_only: bool = False) -> str:
    """Return `payload` as strict JSON; NumPy values become plain ones, and a number that does not exist is null."""
    return json.dumps(_plain(payload), indent=2, ensure_ascii=ascii_only, allow_nan=False)


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
    from rich.console import Console

    # Markup is off because names such as "gpu[0-7]" would be eaten; a fixed width when piped keeps output comparable.
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDTH_WHEN_PIPED
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, without importing NumPy to ask
        value = value.tolist()
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")


def _key(key: object) -> str:
    if isinstance(key, Enum):
        return str(key.value)
    if isinstance(key, (str, int)) and not isinstance(key, bool):
        return str(key)
    raise TypeError(f"a JSON key must be a string, not {key!r}")
