"""Files that are whole or not there: writing at once, and opening for reading, with errors that name the file."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from syncline.errors import FileError

_HINT = "Name a file in a folder that exists and that you may write to."
_FOLDER_HINT = "Name a folder that you may write to."


def write_text(path: Path, text: str) -> None:
    """Replace a file's content at once, or leave it as it was; a pipe or /dev/stdout is written to, never replaced."""
    check_writable(path)
    if path.exists() and not path.is_file():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise FileError(f'cannot write "{path}": {error.strerror}.', hint=_HINT) from None
        return
    with atomic(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` and put it in place when the block ends well; else the old file stays."""
    target = Path(os.path.realpath(path))
    check_writable(Path(path))
    if target.exists() and not target.is_file():
        raise FileError(f'"{path}" is not a regular file.')
    temp = target.parent / f".{target.name[:100]}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        with _created(temp, target) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, target)
    except OSError as error:
        raise FileError(f'cannot write "{path}": {error.strerror or error}.', hint=_HINT) from error
    finally:
        with suppress(OSError):
            temp.unlink()


def check_writable(path: Path) -> None:
    """Raise if a file cannot be written there, before the work for it is done."""
    if path.is_dir():
        raise FileError(f'"{path}" is a directory.', hint="Name a file inside it.")
    folder = path.parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)) and not (path.exists() and not path.is_file()):
        reason = "the folder is read-only" if folder.is_dir() else f'there is no folder "{folder}"'
        raise FileError(f'cannot write "{path}": {reason}.', hint=_HINT)


def check_folder(path: Path) -> None:
    """Raise if files cannot be written into a folder that is there or yet to be made, before the work for them."""
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not existing.is_dir():
        raise FileError(f'"{existing}" is a file, not a folder.', hint=_FOLDER_HINT)
    if not os.access(existing, os.W_OK):
        raise FileError(f'cannot write into "{existing}": it is read-only.', hint=_FOLDER_HINT)


def make_folder(path: Path) -> Path:
    """Make a folder, and those above it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f'cannot make the folder "{path}": {error.strerror}.', hint=_FOLDER_HINT) from None
    return path


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading."""
    if os.path.isdir(path):
        raise FileError("is a directory.", where=str(path), hint="Name a file in it.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise FileError("is not a regular file.", where=str(path))
    try:
        return open(path, "rb")
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror or error}.", where=str(path)) from error
    except ValueError as error:
        raise FileError(f"is not a file name: {error}.", where=repr(path)) from error


def _created(temp: Path, target: Path) -> BinaryIO:
    # Mode 0666 lets the umask decide, as for any new file; an old file's mode is kept.
    file = os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb")
    if target.exists():
        os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
    return file
