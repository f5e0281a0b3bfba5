"""What a captured run leaves behind: operations, waits, allocations and notes, in lists that become one JSON file."""

from __future__ import annotations

import json
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

KERNEL, COLLECTIVE, SEND, RECV, SYNC = "kernel", "collective", "send", "recv", "sync"


def _torch_folders() -> tuple[str, ...]:
    """Return where torch lies: it may be outside the environment."""
    found = find_spec("torch")
    return tuple(found.submodule_search_locations or ()) if found is not None else ()


_FOREIGN = tuple(
    {
        str(Path(path).resolve())
        for path in (*sysconfig.get_paths().values(), sys.prefix, Path(__file__).parent, *_torch_folders())
    }
)


class Log:
    """Everything that was seen, in the order in which the host did it."""

    def __init__(self) -> None:
        self.ops: list[list[Any]] = []  # kind, stream, signature, module, line, phase, waits, extra
        self.signatures: dict[Any, int] = {}
        self.specs: list[dict[str, object]] = []
        self.words: dict[str, int] = {"": 0}  # modules and lines
        self.streams: dict[Any, int] = {"default": 0}
        self.last: dict[int, int] = {}  # by stream: its last operation
        self.pending: dict[int, set[int]] = {}  # by stream: what its next operation waits for
        self.groups: dict[tuple[int, ...], int] = {}
        self.allocs: list[list[Any]] = []  # bytes, operation, module, line, label
        self.memory: list[tuple[int, int, int]] = []  # operation, allocation, bytes
        self.boundaries: list[int] = []
        self.stand_ins: dict[tuple[str, str, str], int] = {}
        self.notes: dict[str, None] = {}
        self.facts: dict[str, object] = {}
        self.next_ranks: set[int] = set()  # those that this one's stages will pass something on to
        self._own: dict[Any, str] = {}  # by code: the name of its file, empty where it is not the user's

    def word(self, text: str) -> int:
        return self.words.setdefault(text, len(self.words))

    def note(self, text: str) -> None:
        self.notes.setdefault(text, None)

    def stand_in(self, what: str, value: object) -> None:
        key = (what, str(value), self.line())
        self.stand_ins[key] = self.stand_ins.get(key, 0) + 1

    def add(self, kind: str, stream: int, signature: int, module: str, line: str, phase: str, extra: Any = None) -> int:
        """Append an operation to a stream and return its number."""
        number = len(self.ops)
        waits = sorted(self.pending.pop(stream, ()))
        self.ops.append([kind, stream, signature, self.word(module), self.word(line), phase, waits, extra])
        self.last[stream] = number
        return number

    def wait(self, stream: int, op: int | None) -> None:
        """Make the next operation of a stream wait for another."""
        if op is not None and self.ops[op][1] != stream:
            self.pending.setdefault(stream, set()).add(op)

    def reached(self, stream: int) -> list[int]:
        """Return what must be done for a stream to have come this far: its last operation and what it waits for."""
        last = self.last.get(stream)
        return [*self.pending.get(stream, ()), *(() if last is None else (last,))]

    def line(self) -> str:
        """Return the innermost line of the user's own code."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            own = self._own.get(code)
            if own is None:
                name = code.co_filename
                own = self._own[code] = Path(name).name if is_own(name) else ""
            if own:
                return f"{own}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def write_early(self, path: Path) -> None:
        """Write what the parent needs to start other ranks: whom this one talks to, what its stages pass on."""
        peers = sorted({op[7][3] for op in self.ops if op[0] in (SEND, RECV)} | self.next_ranks)
        _write(path, {"peers": peers, "stages": self.facts.get("stages", {})})

    def write(self, path: Path, status: str, error: str = "") -> None:
        """Write the file that the parent reads."""
        streams = {number: str(name) for name, number in self.streams.items()}
        data = {
            "syncline": "capture 1",
            "status": status,
            "error": error,
            "ops": self.ops,
            "signatures": self.specs,
            "words": list(self.words),
            "streams": streams,
            "groups": [list(ranks) for ranks in self.groups],
            "allocs": self.allocs,
            "memory": self.memory,
            "boundaries": self.boundaries,
            "stand_ins": [[*key, count] for key, count in self.stand_ins.items()],
            "notes": list(self.notes),
            "facts": self.facts,
        }
        _write(path, data)


def _write(path: Path, data: dict[str, object]) -> None:
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(data))
    partial.replace(path)


def is_own(filename: str) -> bool:
    """Whether a file is the user's, and not a library's."""
    path = str(Path(filename).resolve())
    foreign = any(Path(path).is_relative_to(each) for each in _FOREIGN)
    return not (filename.startswith("<") or foreign or "/site-packages/" in path)
