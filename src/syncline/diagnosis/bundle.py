"""An archive for a ticket: the files of an incident without secrets, and the answer beside them."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path

from syncline.errors import FileError

MAX_FILE_BYTES = 64 << 20
_SECRETS = re.compile(
    r"(?i)((?:pass(?:word|wd)?|secret|token|api[-_]?key|access[-_]?key(?:[-_]?id)?|private[-_]?key|authorization|credential)"
    r"\w*[\"']?\s*[:=]\s*(?:bearer\s+|basic\s+)?[\"']?)([^\s\"',;&]{3,})"
)
_SHAPES = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}"
    r"|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    re.DOTALL,
)
_URL = re.compile(r"(\w+://[^\s:/@]+:)[^\s@/]+@")
REMOVED = "[removed]"


def without_secrets(text: str) -> str:
    """Return a text with passwords, tokens, keys and credentials of URLs removed."""
    text = _SHAPES.sub(REMOVED, text)
    text = _SECRETS.sub(rf"\g<1>{REMOVED}", text)
    return _URL.sub(rf"\g<1>{REMOVED}@", text)


def pack(path: Path, files: Sequence[str], answer: str) -> list[Path]:
    """Write the archive and return its path."""
    try:
        with tarfile.open(path, "w:gz") as archive:
            _add(archive, "answer.txt", answer)
            for name in files:
                source = Path(name)
                if source.is_file() and source.stat().st_size <= MAX_FILE_BYTES:
                    _add(archive, f"files/{name.lstrip('./')}", source.read_text("utf-8", "replace"))
    except OSError as error:
        raise FileError(f'cannot write "{path}": {error.strerror}.', hint="Name a file that can be written.") from None
    return [path]


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = without_secrets(text).encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
