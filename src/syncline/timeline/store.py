"""Files that are whole or not there: atomic writing, and opening for reading, with errors that name the file."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from syncline.errors import FileError


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` and put it in place when the block ends well; else the old file stays."""
    target = Path(os.path.realpath(path))
    _check_target(target)
    temp = target.parent / f".{target.name[:100]}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        with _created(temp, target) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, target)
    except OSError as error:
        raise FileError(f"cannot be written: {error.strerror or error}.", where=str(path)) from error
    finally:
        with suppress(OSError):
            temp.unlink()


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading."""
    if os.path.isdir(path):
        raise FileError("is a directory.", where=str(path), hint="Name the timeline file in it.")
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


def _check_target(target: Path) -> None:
    if target.is_dir():
        raise FileError("is a directory.", where=str(target), hint="Give a file name.")
    if target.exists() and not target.is_file():
        raise FileError("is not a regular file.", where=str(target))
    if not target.parent.is_dir():
        raise FileError("cannot be written: its directory does not exist.", where=str(target))
