"""Slurm host lists: `gpu[001-004,007],login` to names, and back.

>>> expand("gpu[08-10],login")
['gpu08', 'gpu09', 'gpu10', 'login']
>>> compress(["gpu08", "gpu09", "gpu10", "login"])
'gpu[08-10],login'
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from syncline.errors import DescriptionError

MAX_HOSTS = 1_000_000
"""The largest cluster that can be described."""

_NUMBERED = re.compile(r"(.*?)([0-9]{1,12})\Z", re.DOTALL)
_ITEM = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?\Z")
_PIECE = re.compile(r"[^\[\]]+|\[[^\[\]]*\]")


def expand(text: str, where: str = "") -> list[str]:
    """Return the names of a host list, in its order; brackets may stand anywhere and more than once."""
    names: list[str] = []
    for item in _split(text, where):
        pieces = _PIECE.findall(item)
        if "".join(pieces) != item:
            raise _bad(item, where)
        choices = [_range(piece, item, where) if piece[0] == "[" else [piece] for piece in pieces]
        size = 1
        for choice in choices:
            size *= len(choice)
        if len(names) + size > MAX_HOSTS:
            raise DescriptionError(f'"{text[:60]}" names more than {MAX_HOSTS:,} hosts.', where=where)
        names += ["".join(parts) for parts in itertools.product(*choices)]
    return names


def compress(names: Iterable[str]) -> str:
    """Return the shortest host list of these names: runs of numbers become ranges; the order is kept by prefix."""
    prefixes: dict[str, list[str]] = {}
    for name in names:
        match = _NUMBERED.match(name)
        prefix, digits = match.groups() if match else (name, "")
        prefixes.setdefault(prefix, []).append(digits)
    return ",".join(_one_prefix(prefix, digits) for prefix, digits in prefixes.items())


def _one_prefix(prefix: str, digits: list[str]) -> str:
    plain = [prefix] if "" in digits else []
    numbers = sorted({d for d in digits if d}, key=lambda d: (len(d), d))
    if len(numbers) == 1:
        return ",".join([*plain, prefix + numbers[0]])
    ranges = [f"{run[0]}-{run[-1]}" if len(run) > 1 else run[0] for run in _runs(numbers)]
    return ",".join([*plain, f"{prefix}[{','.join(ranges)}]"] if ranges else plain)


def _runs(numbers: list[str]) -> list[list[str]]:
    """Cut sorted digit strings where the next is not one more, or is written wider."""
    runs: list[list[str]] = []
    for number in numbers:
        last = runs[-1][-1] if runs else ""
        if last and len(last) == len(number) and int(last) + 1 == int(number):
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _split(text: str, where: str) -> list[str]:
    """Split at the commas outside brackets."""
    items, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise _bad(text, where)
        if char == "," and depth == 0:
            items.append(text[start:i])
            start = i + 1
    if depth:
        raise _bad(text, where)
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _range(piece: str, item: str, where: str) -> list[str]:
    names: list[str] = []
    for part in piece[1:-1].split(","):
        match = _ITEM.match(part.strip())
        if match is None:
            raise _bad(item, where)
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first):
            raise _bad(item, where)
        if int(last) - int(first) >= MAX_HOSTS:
            raise DescriptionError(f'"{item[:60]}" names more than {MAX_HOSTS:,} hosts.', where=where)
        names += [f"{i:0{len(first)}d}" for i in range(int(first), int(last) + 1)]
    return names


def _bad(text: str, where: str) -> DescriptionError:
    return DescriptionError(
        f'cannot read "{text[:60]}" as a list of hosts.', where=where, hint='Write it as "gpu[001-004,007],login".'
    )
