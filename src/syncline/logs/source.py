"""Logs as streams of bytes, wherever they are: files, folders, stdin; plain, gzip, bzip2, xz or zstd.

Whatever cannot be read is a sentence in `Sources.unread`, never the end of the run. Folders are walked once: a link
that leads back is skipped.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

BLOCK_BYTES = 1 << 22
STDIN = "-"
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"),
)  # fmt: skip
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)


@dataclass(frozen=True)
class Unread:
    """Something that was asked for and could not be read, or not to its end."""

    path: str
    reason: str


@dataclass
class Sources:
    """The logs of one diagnosis; iterate to get (name, blocks) and read `unread` afterwards."""

    paths: Sequence[str | Path]
    unread: list[Unread] = field(default_factory=list)
    num_bytes: int = 0
    num_files: int = 0
    on_bytes: Callable[[int], None] | None = None

    def __iter__(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        seen: set[tuple[int, int]] = set()
        for path in self.paths:
            if str(path) == STDIN:
                self.num_files += 1
                yield "stdin", self._blocks("stdin", cast(BufferedReader, sys.stdin.buffer))
                continue
            for name in self._files(Path(path), seen, top=True):
                yield from self._open(name)

    def _files(self, path: Path, seen: set[tuple[int, int]], *, top: bool) -> Iterator[Path]:
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            self._skip(path, error)
            return
        if (status.st_dev, status.st_ino) in seen:
            if top and not stat.S_ISDIR(status.st_mode):
                self.unread.append(Unread(str(path), "the same file was named before"))
            return
        seen.add((status.st_dev, status.st_ino))
        if stat.S_ISDIR(status.st_mode):
            yield from self._folder(path, seen)
        elif stat.S_ISREG(status.st_mode) or (top and stat.S_ISFIFO(status.st_mode)):
            yield path
        else:
            self.unread.append(Unread(str(path), "not a file (a device or socket)"))

    def _folder(self, path: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            self._skip(path, error)
            return
        for name in names:
            yield from self._files(path / name, seen, top=False)

    def _open(self, path: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
        try:
            file = path.open("rb")
        except OSError as error:
            self._skip(path, error)
            return
        with file:
            self.num_files += 1
            yield str(path), self._blocks(str(path), file)

    def _blocks(self, name: str, file: BufferedReader) -> Iterator[bytes]:
        """Yield the bytes of a file, unpacked; what breaks on the way is noted and what came before it is kept."""
        try:
            head = file.peek(8)
            kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
            stream = _unpacked(kind, file) if kind else file
            if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what Windows redirects
                stream = codecs.EncodedFile(stream, "utf-8", "utf-16", errors="replace")
            yield from _spelled(self._counted(stream))
        except _BROKEN as error:
            at = f"after {self.num_bytes:,} bytes in all" if self.num_bytes else "at the start"
            self.unread.append(Unread(name, f"stopped {at}: {_reason(error)}"))
        except ModuleNotFoundError:
            self.unread.append(Unread(name, "zstd needs Python 3.14 or the zstandard package; unpack it with zstd -d"))

    def _counted(self, stream: Any) -> Iterator[bytes]:
        while block := stream.read(BLOCK_BYTES):
            self.num_bytes += len(block)
            if self.on_bytes:
                self.on_bytes(len(block))
            yield block

    def _skip(self, path: Path, error: Exception) -> None:
        self.unread.append(Unread(str(path), _reason(error)))


_LISTED = re.compile(rb'"MESSAGE" ?: ?\[([\d, ]*)\]')
"""A message that journald wrote as numbers (`journalctl -o json`), because it holds colours or is not plain text."""


def _spelled(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a journal in JSON with such messages as text; any other stream as it is."""
    carry, is_journal = b"", None
    for data in blocks:
        if is_journal is None:
            is_journal = data.lstrip()[:1] == b"{"
        if not is_journal:
            yield data
            continue
        block = carry + data
        cut = block.rfind(b"\n") + 1
        whole, carry = block[:cut], block[cut:]
        if len(carry) > BLOCK_BYTES:  # a line without an end is not a journal's
            whole, carry = block, b""
        if whole:
            yield _with_text(whole)
    if carry:
        yield _with_text(carry)


def _with_text(block: bytes) -> bytes:
    if b'"MESSAGE":[' not in block and b'"MESSAGE" : [' not in block:
        return block
    return _LISTED.sub(_text_of, block)


def _text_of(match: re.Match[bytes]) -> bytes:
    numbers = [int(part) for part in match[1].split(b",") if part.strip()]
    if any(number > 255 for number in numbers):
        return match[0]
    return b'"MESSAGE":' + json.dumps(bytes(numbers).decode("utf-8", "replace"), ensure_ascii=False).encode()


def _unpacked(kind: str, stream: Any) -> Any:
    if kind == "gzip":
        return _Tolerant(gzip.GzipFile(fileobj=stream))
    if kind == "bzip2":
        return bz2.BZ2File(stream)
    if kind == "xz":
        return lzma.LZMAFile(stream)
    try:
        return import_module("compression.zstd").ZstdFile(stream)
    except ModuleNotFoundError:
        return import_module("zstandard").ZstdDecompressor().stream_reader(stream)


class _Tolerant:
    """A gzip reader that hands out in small pieces, so that a truncated file gives all it has before it fails."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read1(min(size, 1 << 20))


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the compressed file is cut off"
    if isinstance(error, RecursionError):
        return "folders are nested too deep"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
