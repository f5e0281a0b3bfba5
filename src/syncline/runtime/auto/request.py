"""What a user asks of `synchronize`: a codec, a measured choice, or the settings of `syncline calibrate tune`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from syncline.codec.names import PLAIN, canonical
from syncline.describe.document import read_document, read_text
from syncline.errors import SynchronizationError
from syncline.runtime.auto.auto import TUNE_VARIABLE

AUTO = "auto"
SETTINGS_VARIABLE = "SYNCLINE_SETTINGS"
BASE = "int8"
"""What is taken where nothing is measured."""
KEYS = {"codec", "why", "tried_s", "num_ranks"}


@dataclass(frozen=True)
class CodecRequest:
    """A codec by name, or a choice: `auto`, measured as the run goes, or `plain`."""

    base: str
    choice: str = ""
    reason: str = "as given"

    def agreed(self) -> dict[str, object]:
        """Return what must be the same on every rank."""
        return {"choice": self.choice}

    def by_name(self, what: str) -> CodecRequest:
        """Return this where only a codec by name will do: a measured choice becomes the usual codec."""
        if not self.choice:
            return self
        if self.choice == PLAIN or os.environ.get(TUNE_VARIABLE):
            raise SynchronizationError(
                f'"{PLAIN}" and `syncline calibrate tune` do not support {what}.',
                hint=f'Give {what} a codec, such as "{BASE}".',
            )
        return CodecRequest(BASE, reason=f'codec="{AUTO}" does not measure {what}; give a codec for another')


def asked(codec: str, settings: str | os.PathLike[str] | None = None) -> CodecRequest:
    """Return what is asked for; a file of settings goes before `codec`, and `syncline calibrate tune` before both."""
    path = settings or os.environ.get(SETTINGS_VARIABLE, "")
    if os.environ.get(TUNE_VARIABLE):
        return CodecRequest(BASE, AUTO)
    if path:
        return _named(_in_file(Path(path)), f"as {path} says")
    return CodecRequest(BASE, AUTO) if codec == AUTO else _named(codec)


def _named(codec: str, reason: str = "as given") -> CodecRequest:
    name = canonical(codec)
    return CodecRequest(BASE, PLAIN, reason) if name == PLAIN else CodecRequest(name, reason=reason)


def _in_file(path: Path) -> str:
    data = read_document(read_text(path), str(path)).data
    written = "Write it with `syncline calibrate tune -- COMMAND`."
    if not isinstance(data, dict) or not isinstance(data.get("codec"), str):
        raise SynchronizationError(f"{path} holds no settings: there is no codec in it.", hint=written)
    unknown = sorted(set(data) - KEYS)
    if unknown:
        raise SynchronizationError(f'{path} has a setting "{unknown[0]}", which is unknown.', hint=written)
    return str(data["codec"])
