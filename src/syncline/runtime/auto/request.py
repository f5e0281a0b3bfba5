"""What a user asks of `synchronize`: a codec, a measured choice, or the settings of `syncline calibrate tune`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from syncline.codec.names import PLAIN, canonical
from syncline.describe.document import read_document, read_text
from syncline.errors import SynchronizationError
from syncline.program.choice import CLASSES
from syncline.runtime.auto.auto import TUNE_VARIABLE

AUTO = "auto"
SETTINGS_VARIABLE = "SYNCLINE_SETTINGS"
BASE = "int8"
"""What is taken where nothing is measured."""
# Earlier versions of `tune` wrote periodic_s as well, which nothing reads.
KEYS = {"codec", "accuracy", "why", "predicted_s", "tried_s", "periodic_s", "num_ranks", "rate", "notes"}


@dataclass(frozen=True)
class CodecRequest:
    """A codec by name, or a choice: measured as the run goes, or `plain`."""

    base: str
    accuracy: str = ""
    is_plain: bool = False
    reason: str = "as given"

    @property
    def chooses(self) -> bool:
        """Whether gradients travel in a codec by choice, or plain, rather than in one by name."""
        return bool(self.accuracy)

    def agreed(self) -> dict[str, object]:
        """Return what must be the same on every rank."""
        return {"accuracy": self.accuracy, "plain": self.is_plain}

    def by_name(self, what: str) -> CodecRequest:
        """Return this where only a codec by name will do: a measured choice becomes the usual codec of its class."""
        if not self.chooses:
            return self
        if self.is_plain or os.environ.get(TUNE_VARIABLE):
            raise SynchronizationError(
                f'"{PLAIN}" and `syncline calibrate tune` do not support {what}.',
                hint=f'Give {what} a codec, such as "{BASE}".',
            )
        return CodecRequest(BASE, reason=f'codec="{AUTO}" does not measure {what}; give a codec for another')


def asked(codec: str, accuracy: str, settings: str | os.PathLike[str] | None) -> CodecRequest:
    """Return what is asked for; a file of settings goes before `codec`, and `syncline calibrate tune` before both."""
    if accuracy == "exact":
        raise SynchronizationError('accuracy="exact" was removed.', hint=f'codec="{PLAIN}" loses nothing.')
    if accuracy not in CLASSES:
        raise SynchronizationError(f'accuracy="{accuracy}" is unknown.', hint="Known: safe, aggressive.")
    if os.environ.get(TUNE_VARIABLE):
        return CodecRequest(BASE, accuracy)
    path = settings or os.environ.get(SETTINGS_VARIABLE, "")
    if path:
        return _from_file(Path(path))
    if codec == AUTO:
        return CodecRequest(BASE, accuracy)
    return CodecRequest(BASE, accuracy, is_plain=True) if canonical(codec) == PLAIN else CodecRequest(codec)


def _from_file(path: Path) -> CodecRequest:
    document = read_document(read_text(path), str(path))
    data = document.data
    if not isinstance(data, dict) or "codec" not in data:
        raise SynchronizationError(
            f"{path} holds no settings: there is no codec in it.",
            hint="Write it with `syncline calibrate tune -- COMMAND`.",
        )
    if "codecs" in data or str(data["codec"]).startswith("local-sgd"):
        raise SynchronizationError(
            f"{path} is of an earlier version: codecs for each bucket, and local SGD, are no longer chosen.",
            hint="Run `syncline calibrate tune` again; for local SGD use syncline.torch.DiLoCo(every=...).",
        )
    unknown = sorted(set(data) - KEYS)
    if unknown:
        raise SynchronizationError(
            f'{path} has a setting "{unknown[0]}", which is unknown.', hint=f"Known: {', '.join(sorted(KEYS))}."
        )
    accuracy = data.get("accuracy", "safe")
    if not isinstance(data["codec"], str) or accuracy not in CLASSES:
        raise SynchronizationError(f"{path}: codec or accuracy is not what `syncline calibrate tune` writes.")
    codec, reason = canonical(data["codec"]), f"as {path} says"
    if codec == PLAIN:
        return CodecRequest(BASE, accuracy, is_plain=True, reason=reason)
    return CodecRequest(codec, reason=reason)
