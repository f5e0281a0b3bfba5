"""Where files are read from: a folder on disk, or a dictionary (an archive read into memory, a test).

A tree answers four questions about a path relative to its root: what is there, where a link points, what a folder
lists, what a file holds. It follows no link itself; `Root` does that, and never out of the tree.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from syncline.errors import FileError

MAX_ARCHIVE_BYTES = 256 * 2**20
MAX_ARCHIVE_MEMBERS = 200_000


class PathKind(Enum):
    """What stands at a path."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"  # a pipe, a socket, a device: never opened


@dataclass(frozen=True)
class SymbolicLink:
    """A symbolic link in memory."""

    target: str


@dataclass(frozen=True)
class DeniedFile:
    """A file in memory that answers every read with an error, as files without permission do."""

    number: int = errno.EACCES


Entry = bytes | SymbolicLink | DeniedFile


class Tree(Protocol):
    """Files below one root. Paths are relative, without leading slash; errors are OSError."""

    def kind(self, path: str) -> PathKind | None:
        """Return what is there, or None."""

    def target(self, path: str) -> str:
        """Return where a link points."""

    def names(self, path: str) -> list[str]:
        """Return what a folder holds, in order."""

    def read(self, path: str, limit: int) -> bytes:
        """Return at most `limit` bytes of a file."""


@dataclass(frozen=True)
class FolderTree:
    """The files below a folder of this machine."""

    folder: Path

    def kind(self, path: str) -> PathKind | None:
        try:
            mode = os.lstat(self.folder / path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(mode):
            return PathKind.LINK
        if stat.S_ISDIR(mode):
            return PathKind.FOLDER
        return PathKind.FILE if stat.S_ISREG(mode) else PathKind.OTHER

    def target(self, path: str) -> str:
        return os.readlink(self.folder / path)

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(self.folder / path))

    def read(self, path: str, limit: int) -> bytes:
        # O_NONBLOCK: what became a pipe since it was looked at must not hang the audit.
        descriptor = os.open(self.folder / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            parts, left = [], limit
            while left > 0 and (part := file.read(min(left, 65536))):
                parts.append(part)
                left -= len(part)
        return b"".join(parts)


@dataclass
class MemoryTree:
    """Files held in memory; folders are where files are."""

    entries: dict[str, Entry]
    _folders: dict[str, set[str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for path in self.entries:
            parent, name = _split(path)
            while name and name not in self._folders.setdefault(parent, set()):
                self._folders[parent].add(name)
                parent, name = _split(parent)

    def kind(self, path: str) -> PathKind | None:
        entry = self.entries.get(path)
        if isinstance(entry, SymbolicLink):
            return PathKind.LINK
        if entry is not None:
            return PathKind.FILE
        return PathKind.FOLDER if path in self._folders or path == "" else None

    def target(self, path: str) -> str:
        entry = self.entries[path]
        if not isinstance(entry, SymbolicLink):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return entry.target

    def names(self, path: str) -> list[str]:
        if path and path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return sorted(self._folders.get(path, ()))

    def read(self, path: str, limit: int) -> bytes:
        entry = self.entries[path]
        if isinstance(entry, DeniedFile):
            raise OSError(entry.number, os.strerror(entry.number))
        if isinstance(entry, SymbolicLink):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return entry[:limit]


def open_tree(path: Path) -> Tree:
    """Return the tree in a folder or in a .tar, .tar.gz or .tgz file."""
    if path.is_dir():
        return FolderTree(path)
    if not path.exists():
        raise FileError(f'there is no "{path}".', hint="Name a folder or archive that `syncline audit capture` wrote.")
    try:
        return MemoryTree(_members(path))
    except (tarfile.TarError, OSError, EOFError) as error:
        raise FileError(
            f'"{path}" is neither a folder nor an archive that can be read{_reason(error)}.',
            hint="Name a folder or archive that `syncline audit capture` wrote.",
        ) from None


def _reason(error: Exception) -> str:
    """Return the system's reason; the formats that the library tried in turn would not help."""
    return f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""


def _members(path: Path) -> dict[str, Entry]:
    """Read an archive into memory: nothing is unpacked, so no name in it can reach a file of this machine."""
    entries: dict[str, Entry] = {}
    total = 0
    with tarfile.open(path, "r:*") as archive:
        for count, member in enumerate(archive):
            name = os.path.normpath(member.name).lstrip("/")
            total += max(0, member.size)
            if total > MAX_ARCHIVE_BYTES or count >= MAX_ARCHIVE_MEMBERS:
                raise FileError(
                    f'"{path}" holds more than {MAX_ARCHIVE_BYTES // 2**20} MiB or {MAX_ARCHIVE_MEMBERS:,} files.',
                    hint="A capture has some thousand small files; was this made by `syncline audit capture`?",
                )
            if name.startswith("..") or name == ".":
                continue
            if member.issym():
                entries[name] = SymbolicLink(member.linkname)
            elif member.isreg() and (file := archive.extractfile(member)) is not None:
                entries[name] = file.read()
    return _under_one_folder(entries)


def _under_one_folder(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Drop the single top folder that archives usually have."""
    tops = {name.split("/", 1)[0] for name in entries}
    if len(tops) == 1 and "/" in next(iter(entries)) and tops.isdisjoint(("sys", "proc", "etc", "syncline")):
        return {name.split("/", 1)[1]: entry for name, entry in entries.items() if "/" in name}
    return dict(entries)


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent, name
