"""What a user asks of `synchronize`: a codec, a measured choice, or the settings that `syncline tune` wrote."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from syncline.codec.names import PLAIN, canonical
from syncline.describe.document import read_document, read_text
from syncline.errors import SynchronizationError
from syncline.program.choice import CLASSES, Local
from syncline.runtime.auto.auto import TUNE_VARIABLE

AUTO = "auto"
SETTINGS_VARIABLE = "SYNCLINE_SETTINGS"
BASE = "int8"
INSTEAD = {"exact": "fp32", "safe": "int8", "aggressive": "int8"}
"""What is taken where nothing is measured, by accuracy class."""
KEYS = {"codec", "codecs", "accuracy", "why", "predicted_s", "tried_s", "periodic_s", "num_ranks", "rate", "notes"}


@dataclass(frozen=True)
class CodecRequest:
    """A codec by name, or a choice: measured as the run goes (no codecs), or fixed for each bucket."""

    base: str
    accuracy: str = ""
    codecs: tuple[str, ...] = ()
    reason: str = "as given"

    @property
    def chooses(self) -> bool:
        """Whether buckets get codecs by choice rather than one by name."""
        return bool(self.accuracy)

    def agreed(self) -> dict[str, object]:
        """Return what must be the same on every rank."""
        return {"accuracy": self.accuracy, "codecs": list(self.codecs)}

    def by_name(self, what: str) -> CodecRequest:
        """Return this where only a codec by name will do: a measured choice becomes the usual codec of its class."""
        if not self.chooses:
            return self
        if self.codecs or os.environ.get(TUNE_VARIABLE):
            raise SynchronizationError(
                f'"{PLAIN}", codecs for each bucket, local SGD and `syncline tune` are not there for {what}.',
                hint=f'Give {what} one codec, such as "{BASE}".',
            )
        return CodecRequest(
            INSTEAD[self.accuracy], reason=f'codec="{AUTO}" does not measure {what}; give a codec for another'
        )


def asked(codec: str, accuracy: str, settings: str | os.PathLike[str] | None) -> CodecRequest:
    """Return what is asked for; a file of settings goes before `codec`, and `syncline tune` before both."""
    if accuracy not in CLASSES:
        raise SynchronizationError(f'accuracy="{accuracy}" is unknown.', hint=f"Known: {', '.join(CLASSES)}.")
    if os.environ.get(TUNE_VARIABLE):
        return CodecRequest(BASE, accuracy)
    path = settings or os.environ.get(SETTINGS_VARIABLE, "")
    if path:
        return _from_file(Path(path))
    if codec == AUTO:
        return CodecRequest(BASE, accuracy)
    return CodecRequest(BASE, accuracy, (PLAIN,)) if canonical(codec) == PLAIN else CodecRequest(codec)


def _from_file(path: Path) -> CodecRequest:
    document = read_document(read_text(path), str(path))
    data = document.data
    if not isinstance(data, dict) or "codec" not in data:
        raise SynchronizationError(
            f"{path} holds no settings: there is no codec in it.", hint="Write it with `syncline tune -- COMMAND`."
        )
    unknown = sorted(set(data) - KEYS)
    if unknown:
        raise SynchronizationError(
            f'{path} has a setting "{unknown[0]}", which is unknown.', hint=f"Known: {', '.join(sorted(KEYS))}."
        )
    listed = data.get("codecs") or [data["codec"]]
    accuracy = data.get("accuracy", "safe")
    if not isinstance(listed, list) or not all(isinstance(codec, str) for codec in listed) or accuracy not in CLASSES:
        raise SynchronizationError(f"{path}: codec, codecs or accuracy is not what `syncline tune` writes.")
    reason = f"as {path} says"
    local = Local.named(listed[0])
    if local is not None and len(set(listed)) == 1:
        return CodecRequest(BASE, accuracy, (local.name,), reason)
    codecs = tuple(map(canonical, listed))
    if len(set(codecs)) == 1 and codecs[0] != PLAIN:
        return CodecRequest(codecs[0], reason=reason)
    return CodecRequest(BASE, accuracy, codecs, reason)
