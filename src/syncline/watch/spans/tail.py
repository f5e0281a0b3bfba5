"""Files that grow: the new lines of every file of a folder, and whole files when they appear or change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 4096
MAX_LINE = 1 << 20
MAX_READ = 8 << 20
"""Bytes read of one file in one look; the rest comes with the next."""


@dataclass
class _Place:
    inode: int
    at: int
    changed_ns: int


class Tail:
    """Follows the files of a folder whose name ends in one of `suffixes`; truncated and replaced files start anew."""

    def __init__(self, folder: str | os.PathLike[str], suffixes: tuple[str, ...]) -> None:
        self._folder = Path(folder)
        self._suffixes = suffixes
        self._places: dict[str, _Place] = {}

    def new_lines(self) -> Iterator[tuple[Path, bytes]]:
        """Give each complete new line with its file."""
        for path, status in self._files():
            place = self._place(path, status)
            if status.st_size <= place.at:
                continue
            try:
                with path.open("rb") as file:
                    file.seek(place.at)
                    data = file.read(MAX_READ)
            except OSError:
                continue
            end = data.rfind(b"\n") + 1
            if end == 0 and len(data) >= MAX_LINE:
                end = len(data)  # a line that never ends is skipped, not awaited
            place.at += end
            for line in data[:end].splitlines():
                yield path, line

    def new_files(self) -> Iterator[Path]:
        """Give each file that is new or has changed, once it has not changed for one look."""
        for path, status in self._files():
            known = self._places.get(path.name)
            place = self._place(path, status)
            settled = known is not None and status.st_mtime_ns == place.changed_ns
            place.changed_ns = status.st_mtime_ns
            if settled and place.at != status.st_mtime_ns:
                place.at = status.st_mtime_ns
                yield path

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return
        wanted = [name for name in names if name.endswith(self._suffixes)][:MAX_FILES]
        for gone in self._places.keys() - set(wanted):
            del self._places[gone]
        for name in wanted:
            path = self._folder / name
            try:
                status = path.stat()
            except OSError:
                continue
            if path.is_file():
                yield path, status

    def _place(self, path: Path, status: os.stat_result) -> _Place:
        place = self._places.get(path.name)
        if place is None or place.inode != status.st_ino or (place.at > status.st_size and place.at < 1 << 50):
            place = self._places[path.name] = _Place(status.st_ino, 0, status.st_mtime_ns)
        return place
