"""A pickle of plain values read without running it: numbers, texts, lists, tuples and dicts, and nothing else.

The stream is walked opcode by opcode with `pickletools`, which executes nothing; an opcode that would import or call
anything is refused. PyTorch's flight recorder needs no more than this.
"""

from __future__ import annotations

import pickletools
from typing import Any

from syncline.errors import FileError

MAX_VALUES = 5_000_000
_MARK = object()
_CONSTANTS: dict[str, bool | None] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = {
    "INT",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG",
    "LONG1",
    "LONG4",
    "FLOAT",
    "BINFLOAT",
    "UNICODE",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "STRING",
    "BINSTRING",
    "SHORT_BINSTRING",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
}
_EMPTY: dict[str, type] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}


def read_plain_pickle(data: bytes) -> Any:
    """Return what a pickle of plain values holds; a FileError names the first thing in it that is not plain."""
    try:
        return _Walk().run(data)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise FileError(f"not a whole pickle of plain values: {error}.") from None


class _Walk:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_VALUES:
                raise FileError("more values than a dump has.")
            if opcode.name == "STOP":
                return self.stack.pop()
            self.step(opcode.name, argument)
        raise ValueError("it has no end")

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name not in ("PROTO", "FRAME"):
            self.gather(name)

    def gather(self, name: str) -> None:
        stack = self.stack
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self.marked()
            made: Any = tuple(items) if name == "TUPLE" else items if name == "LIST" else _pairs(items)
            stack.append(made)
        elif name == "APPEND":
            value = stack.pop()
            _of(stack[-1], list).append(value)
        elif name == "APPENDS":
            items = self.marked()
            _of(stack[-1], list).extend(items)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _of(stack[-1], dict)[key] = value
        elif name == "SETITEMS":
            items = self.marked()
            _of(stack[-1], dict).update(_pairs(items))
        else:
            raise FileError(f"a pickle with {name}, which is not a plain value; it is not opened.")

    def marked(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("a list without a beginning")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items


def _of(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))
