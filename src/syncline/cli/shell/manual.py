"""How a verb's manual names what an option takes: FILE, N, TEXT; never the type that the code has for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from typer.core import TyperArgument, TyperOption

_KINDS = {int: "N", float: "NUMBER", Path: "FILE"}
_FOLDER = "DIR"


class _Word(TyperArgument):
    """An argument: its name alone, in brackets where it may be left out."""

    def display_type_rich(self, ctx: Any) -> None:
        return None

    def _usage_display_name(self) -> str:
        return super()._usage_display_name().replace("{", "").replace("}", "")


def plain(command: Any) -> Any:
    """Return a command whose manual, and those of its commands, reads as other programs' do."""
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            parameter.__class__ = _Word
        elif isinstance(parameter, TyperOption) and not parameter.is_flag and parameter.metavar is None:
            parameter.metavar = _kind(parameter.type_descriptor.annotation, parameter.help or "")
    for below in getattr(command, "commands", {}).values():
        plain(below)
    return command


def _kind(annotation: Any, text: str) -> str:
    """Return what to write for a value of this type, or of a list of it; `text` tells folders from files."""
    found = next((_KINDS[kind] for kind in (annotation, *get_args(annotation)) if kind in _KINDS), "TEXT")
    return _FOLDER if found == _KINDS[Path] and "folder" in text.lower() else found
