"""Events of a Chrome trace, a block at a time: a trace of gigabytes is never in memory whole.

The file is cut where one event ends and the next begins. A cut in the wrong place leaves brackets or quotes open, so
that the block does not parse, and the one before is tried: what parses is whole.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from pydantic_core import from_json

from syncline.describe.progress import Meter
from syncline.errors import DescriptionError, FileError

BLOCK_BYTES = 8 << 20
MAX_BLOCK_BYTES = 256 << 20
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
Event = dict[str, Any]


class EventFile:
    """One trace file: `head` and `tail` are what stands around the events, once `blocks` has gone through them."""

    def __init__(self, path: Path, meter: Meter | None = None) -> None:
        self.path = path
        self.meter = meter or Meter()
        self.facts: Event = {}
        """What the trace says of itself: keys of the object that holds the events."""

    def blocks(self) -> Iterator[list[Event]]:
        """Yield the events in the order of the file."""
        try:
            with self.path.open("rb") as raw:
                before, start = self.meter.done, raw.read(2)
                raw.seek(0)
                file = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if start == b"\x1f\x8b" else raw)
                for block in self._cut(file):
                    self.meter.reach(before + raw.tell())
                    yield block
        except OSError as error:
            raise FileError(f'cannot read "{self.path}": {error.strerror or error}.', hint="Name a trace.") from None
        except (EOFError, zlib.error) as error:
            raise DescriptionError(f"the compressed trace is cut off: {error}.", where=str(self.path)) from None

    def _cut(self, file: IO[bytes]) -> Iterator[list[Event]]:
        rest = self._start(file)
        while True:
            more = file.read(BLOCK_BYTES)
            rest += more
            if not more:
                break
            events, rest = _whole(rest)
            if events:
                yield events
            if len(rest) > MAX_BLOCK_BYTES:
                raise self._broken("one event is larger than 256 MiB")
        yield self._last(rest)

    def _start(self, file: IO[bytes]) -> bytes:
        """Return what follows the opening of the list of events."""
        rest = b""
        while True:
            more = file.read(BLOCK_BYTES)
            rest += more
            plain = rest.lstrip()
            if plain.startswith(b"["):
                return plain[1:]
            found = _LIST.search(rest)
            if found is not None:
                self._facts(rest[: found.start()].rstrip().rstrip(b",") + b"}")
                return rest[found.end() :]
            if not more or len(rest) > MAX_BLOCK_BYTES:
                raise self._broken('it has no list "traceEvents"')

    def _last(self, rest: bytes) -> list[Event]:
        """Return the events up to the end of the list, and keep what follows it."""
        for end in _ends(rest):
            try:
                events = from_json(b"[" + rest[:end].rstrip().rstrip(b",") + b"]")
            except ValueError:
                continue
            after = rest[end + 1 :].strip()
            if after.startswith(b","):
                self._facts(b"{" + after[1:])
            return _events(events)
        raise self._broken("its list of events does not end; was the job stopped while it was written?")

    def _facts(self, text: bytes) -> None:
        try:
            found = from_json(text)
        except ValueError:
            return
        if isinstance(found, dict):
            self.facts.update(found)

    def _broken(self, why: str) -> DescriptionError:
        return DescriptionError(
            f"not a whole profiler trace: {why}.", where=str(self.path),
            hint="torch.profiler's export_chrome_trace writes {\"traceEvents\": [...]}.",
        )  # fmt: skip


def _whole(text: bytes) -> tuple[list[Event], bytes]:
    """Return the whole events at the start of a text, and what is left of it."""
    cuts = [match.start() + 1 for match in _BOUNDARY.finditer(text, max(len(text) - (1 << 20), 0))]
    for cut in reversed(cuts):
        try:
            events = from_json(b"[" + text[:cut] + b"]")
        except ValueError:
            continue
        return _events(events), text[cut:].lstrip().removeprefix(b",")
    return [], text


def _ends(text: bytes) -> Iterator[int]:
    """Yield where the list may end, from behind; a list that was never closed ends with the file."""
    at = len(text)
    while (at := text.rfind(b"]", 0, at)) >= 0:
        yield at
    yield len(text)


def _events(values: list[Any]) -> list[Event]:
    return [value for value in values if isinstance(value, dict)]
