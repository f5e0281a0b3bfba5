"""A message with holes, as an operator writes it: `link {port} is down ({reason:text})`.

    {name}          one word: a device, an address, a path
    {name:number}   a number, also negative or with a fraction
    {name:hex}      a number in hexadecimal
    {name:text}     anything up to 80 characters
    {}, ...         one word, or anything up to 160 characters, that no one needs by name
    (a|b)           either; (a|) a part that may be missing

It becomes the fixed text that the fast search looks for and the regular expression that is asked of lines with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from syncline.logs.guard import MAX_LINE

_HOLE = re.compile(r"\{(\w*)(?::(\w+))?\}|\.\.\.|[(|)]|\s+")
_KINDS = {
    "": r"[^\s,;]{1,60}?",
    "number": r"-?\d{1,20}(?:\.\d{1,9})?",
    "hex": r"(?:0x)?[0-9a-fA-F]{1,40}",
    "text": r".{1,80}?",
}
_ANY = r".{0,160}?"
_SHORTEST = 4


def compile_template(template: str) -> tuple[tuple[str, ...], str]:
    """Return the texts of which a line must contain one, and the regular expression, or raise ValueError."""
    if len(template) > MAX_LINE:
        raise ValueError(f"is longer than {MAX_LINE} characters")
    pattern, depth = "", 0
    pieces, bare = [""], ""
    last = 0
    for found in _HOLE.finditer(template):
        literal = template[last : found.start()]
        last = found.end()
        pattern += re.escape(literal)
        bare += literal if depth == 0 else ""
        mark = found[0]
        if mark in ("(", "|", ")"):
            depth += {"(": 1, ")": -1}.get(mark, 0)
            if depth < 0 or (mark == "|" and depth == 0):
                raise ValueError(f'has a "{mark}" outside of brackets; write \\{mark} as {{}}')
            pattern += "(?:" if mark == "(" else mark
        elif mark.isspace():
            pattern += r"\s{1,16}"
            bare += mark if depth == 0 and mark == " " else "\0"
            continue
        elif mark == "...":
            pattern += _ANY
        else:
            kind = found[2] or ""
            if kind not in _KINDS:
                raise ValueError(f'has a hole of the kind "{kind}"; there are: {", ".join(filter(None, _KINDS))}')
            pattern += f"(?P<{found[1]}>{_KINDS[kind]})" if found[1] else _KINDS[kind]
        pieces.append("")
        bare += "\0"
    if depth:
        raise ValueError("has a bracket that is not closed")
    tail = template[last:]
    pattern += re.escape(tail)
    bare += tail
    texts = [piece for piece in bare.split("\0") if len(piece.encode()) >= _SHORTEST]
    if not texts:
        raise ValueError(f"has no fixed text of {_SHORTEST} characters outside of holes and brackets to look for")
    if pattern.endswith(f"{_KINDS['text']})"):
        pattern = pattern[:-2] + ")"  # a text at the end goes to the end
    elif pattern.endswith(("?", "?)")):
        pattern += r"(?=[\s,;.:)\]]|$)"
    return (max(texts, key=len),), pattern


def template_of(line: str) -> str:
    """Return a template that a line fits, with its numbers, addresses and names of devices as holes."""
    return "".join(_holes(line))


_VARIES = re.compile(
    r"(?P<pci>\b(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b)|(?P<address>\b\d{1,3}(?:\.\d{1,3}){3}\b)"
    r"|(?P<device>\b(?:mlx5_|bnxt_re|rdma|en[opsx]\w*\d|eth|ib|bond|swp|Ethernet|nvme|mlx4_)\d[\w/.]*\b)"
    r"|(?P<hex>\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b)|(?P<number>-?\b\d+(?:\.\d+)?\b)"
)


def _holes(line: str) -> Iterator[str]:
    used: dict[str, int] = {}
    last = 0
    for found in _VARIES.finditer(line):
        yield _plain(line[last : found.start()])
        name = found.lastgroup or "word"
        used[name] = used.get(name, 0) + 1
        kind = f":{name}" if name in ("hex", "number") else ""
        yield f"{{{name}{used[name] if used[name] > 1 else ''}{kind}}}"
        last = found.end()
    yield _plain(line[last:])


def _plain(text: str) -> str:
    return re.sub(r"[()|{}]", "{}", text)
