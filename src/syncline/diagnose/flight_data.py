"""The flight recorder's own files, which are pickles, read as what they hold: numbers, text, lists and dictionaries.

A pickle is a small program, and loading one runs it. This reads only the instructions that put plain values on the
stack; any that names a class, calls something or builds an object ends the reading with an error, so nothing in a file
is ever run. What PyTorch's recorder writes needs no others.
"""

from __future__ import annotations

import struct
from struct import unpack_from
from typing import Any

MAX_VALUES = 20_000_000
_MARK = object()
_CONSTANTS: dict[int, object] = {0x4E: None, 0x88: True, 0x89: False}  # N, NEWTRUE, NEWFALSE
_FIXED: dict[int, tuple[str, int]] = {
    0x4A: ("<i", 4), 0x4B: ("<B", 1), 0x4D: ("<H", 2), 0x47: (">d", 8),
}  # BININT, BININT1, BININT2, BINFLOAT  # fmt: skip
_SIZED: dict[int, str] = {0x58: "<I", 0x8C: "<B", 0x8D: "<Q"}  # BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
_EMPTY: dict[int, type] = {0x5D: list, 0x7D: dict, 0x29: tuple}
_SKIPPED: dict[int, int] = {0x80: 1, 0x95: 8}  # PROTO, FRAME
_WIDTH = {"<B": 1, "<H": 2, "<I": 4, "<Q": 8}


def plain_values(content: bytes) -> object:
    """Return what a pickle of plain values holds, or raise ValueError where it holds anything else."""
    try:
        return _Reader(content).run()
    except (struct.error, IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"a pickle that is cut off or damaged ({type(error).__name__})") from None


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> object:
        for _ in range(MAX_VALUES):
            code = self.content[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self.stack.pop()
            self.step(code)
        raise ValueError(f"more than {MAX_VALUES:,} values")

    def step(self, code: int) -> None:
        if code in _CONSTANTS:
            self.stack.append(_CONSTANTS[code])
        elif code in _FIXED:
            form, width = _FIXED[code]
            self.stack.append(unpack_from(form, self.content, self.at)[0])
            self.at += width
        elif code in _SIZED:
            self.stack.append(self.take(self.number(_SIZED[code])).decode("utf-8", "replace"))
        elif code == 0x8A:  # LONG1
            self.stack.append(int.from_bytes(self.take(self.number("<B")), "little", signed=True))
        elif code in _EMPTY:
            self.stack.append(_EMPTY[code]())
        elif code in _SKIPPED:
            self.at += _SKIPPED[code]
        else:
            self.gather(code)

    def gather(self, code: int) -> None:
        """Put what lies on the stack into a list, a dictionary, a tuple or the memo."""
        if code == 0x28:  # MARK
            self.stack.append(_MARK)
        elif code in (0x61, 0x65):  # APPEND, APPENDS
            values = self.since_mark() if code == 0x65 else [self.stack.pop()]
            self.into(list).extend(values)
        elif code in (0x73, 0x75):  # SETITEM, SETITEMS
            values = self.since_mark() if code == 0x75 else [self.stack.pop(-2), self.stack.pop()]
            self.into(dict).update(zip(values[::2], values[1::2], strict=True))
        elif code in (0x74, 0x85, 0x86, 0x87):  # TUPLE, TUPLE1 to TUPLE3
            size = code - 0x84
            values = self.since_mark() if code == 0x74 else [self.stack.pop() for _ in range(size)][::-1]
            self.stack.append(tuple(values))
        elif code in (0x71, 0x72, 0x94):  # BINPUT, LONG_BINPUT, MEMOIZE
            self.memo[len(self.memo) if code == 0x94 else self.number("<B" if code == 0x71 else "<I")] = self.stack[-1]
        elif code in (0x68, 0x6A):  # BINGET, LONG_BINGET
            self.stack.append(self.memo[self.number("<B" if code == 0x68 else "<I")])
        else:
            raise ValueError("a pickle of more than plain values, which could run code")

    def number(self, form: str) -> int:
        value = int(unpack_from(form, self.content, self.at)[0])
        self.at += _WIDTH[form]
        return value

    def take(self, size: int) -> bytes:
        if size > len(self.content) - self.at:
            raise IndexError
        self.at += size
        return self.content[self.at - size : self.at]

    def since_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def into(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise TypeError
        return self.stack[-1]
