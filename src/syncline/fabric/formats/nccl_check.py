"""Would NCCL take this topology file? A strict model of its parser, and of what it needs from each element.

NCCL reads topology files with a small parser of its own (src/graph/xml.cc), not with an XML library: no prolog, no
tabs, no line break inside a tag, no entities, and fixed limits. `check_nccl_topology` reads the text by the same rules
and then asks for the attributes that src/graph/topo.cc cannot do without. Facts are those of NCCL 2.28 to 2.30.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from syncline.errors import DescriptionError

MAX_ELEMENTS = 255
"""256 slots, and the parser looks for a free one before it reads the next tag, so the last stays empty."""
MAX_CHILDREN = 640
MAX_ATTRIBUTES = 16
MAX_CHARS = 253
"""Buffers of 255 characters hold the closing quote and the end mark too."""
MAX_DEPTH = 64

CLASSES = {"0x060400": "PCI", "0x080100": "PCI", "0x068000": "NVS", "0x068001": "CPU", "0x03": "GPU", "0x02": "NIC"}
"""How NCCL reads a PCI class, by its first characters; anything else counts as a PCI bridge."""
LANE_SPEEDS = {
    "2.5 GT/s": 15, "5 GT/s": 30, "8 GT/s": 60, "16 GT/s": 120, "32 GT/s": 240, "5.0 GT/s PCIe": 30,
    "8.0 GT/s PCIe": 60, "16.0 GT/s PCIe": 120, "32.0 GT/s PCIe": 240, "64.0 GT/s PCIe": 480,
}  # fmt: skip
"""Units of 100 Mb/s per lane, by the first characters of `link_speed`; anything else counts as 60 (PCIe 3)."""
ARCHITECTURES = ("x86_64", "arm64", "ppc64")
VENDORS = ("GenuineIntel", "AuthenticAMD", "CentaurHauls", "  Shanghai  ")
BUS_ID = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]\Z")
_ATTRIBUTE = re.compile(r""" ([^ >/=\n\r]*)(?:=(?:"([^"]*)"|'([^']*)'))?""")
_TOKEN = re.compile(
    r"""(?P<blanks>[ \n\r]*)(?:<!--(?![^ >/\n\r]*=)(?s:.*?)-->|</(?P<closed>[^ >/=\n\r]*)>|"""
    r"""<(?P<name>(?!!)[^ >/=\n\r]*)(?P<attributes>(?: [^ >/=\n\r]*(?:="[^"]*"|='[^']*')?)*)(?P<single>/?)>)"""
)
"""A comment (whose first word has no =) or a tag, as far as NCCL's parser goes."""
_SYNTAX = "Write each tag on one line, values in quotes right after =; no XML prolog, no tabs, no text between tags."
_CHILDREN = {
    "": ("system",),
    "system": ("cpu",),
    "cpu": ("pci", "nic"),
    "pci": ("pci", "gpu", "nic", "pcilink"),
    "nic": ("net",),
    "gpu": ("nvlink", "c2c"),
}
_NUMBERS = {"cpu": ("numaid",), "nvlink": ("count",), "c2c": ("bw", "count")}
_OPTIONAL_NUMBERS = {"gpu": ("dev", "sm", "rank", "gdr")}
_NUMBER = re.compile(r"\s*([+-]?)(?:0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))")


@dataclass(frozen=True)
class NcclReport:
    """What NCCL would take from a file, and what it would silently read otherwise than written."""

    num_elements: int
    num_gpus: int
    num_nets: int
    warnings: tuple[str, ...]


@dataclass
class _Node:
    name: str
    line: int
    attributes: dict[str, str]
    children: list[_Node] = field(default_factory=list)


def check_nccl_topology(text: str, source: str = "NCCL topology") -> NcclReport:
    """Return what NCCL would read, or raise with the line of the first thing that makes it give up."""
    root = _parse(text, source)
    meaning, nodes = _Meaning(source), _walk(root)
    meaning.check(nodes)
    return NcclReport(
        len(nodes),
        sum(node.name == "gpu" for node in nodes),
        sum(node.name == "net" for node in nodes),
        tuple(meaning.warnings),
    )


def prefix_value(table: dict[str, int] | dict[str, str], text: str) -> int | str | None:
    """Look a value up as NCCL does: the first entry that the text begins with."""
    return next((value for key, value in table.items() if text.startswith(key)), None)


def strtol(text: str) -> int | None:
    """Read a number as C does with base 0 (0x1f, 017, 31, and what follows ignored), or None where C finds none."""
    match = _NUMBER.match(text[:40])
    if match is None:
        return None
    sign, sixteen, eight, ten = match.groups()
    number = int(sixteen, 16) if sixteen else int(ten) if ten else int(eight or "0", 8)
    return -number if sign == "-" else number


def _walk(node: _Node) -> list[_Node]:
    return [node, *(below for child in node.children for below in _walk(child))]


def _parse(text: str, source: str) -> _Node:
    """Return the <system> element as NCCL reads it: what it does not know inside an element is skipped."""
    holder, at, count = _Node("", 1, {}), 0, 0
    stack: list[tuple[_Node, bool]] = [(holder, True)]

    def fail(why: str, hint: str = "") -> DescriptionError:
        where = f"{source} line {text.count(chr(10), 0, at) + 1}"
        return DescriptionError(f"NCCL cannot read this: {why}.", where=where, hint=hint)

    while (token := _TOKEN.match(text, at)) is not None:
        at = token.start() + len(token["blanks"])
        (name, closed), (parent, used) = token.group("name", "closed"), stack[-1]
        if closed is not None:
            if len(stack) == 1 or (used and closed != parent.name):
                raise fail(f"</{closed}> closes <{parent.name}>" if len(stack) > 1 else f"stray </{closed}>")
            stack.pop()
        elif name is not None:
            node = _Node(name, text.count("\n", 0, at) + 1, _attributes(token["attributes"], name, fail))
            known = used and name in _CHILDREN.get(parent.name, ())
            if known:
                count += 1
                parent.children.append(node)
            if len(parent.children) > MAX_CHILDREN:
                raise fail(f"<{parent.name}> has more than {MAX_CHILDREN} elements inside")
            if not token["single"]:
                stack.append((node, known))
        if count > MAX_ELEMENTS:
            raise fail(f"it has more than {MAX_ELEMENTS} elements", "Leave out devices that no rank uses.")
        if len(stack) > MAX_DEPTH + 1:
            raise fail(f"it is nested more than {MAX_DEPTH} elements deep")
        at = token.end()
    rest = text[at:].lstrip(" \n\r")
    if rest:
        at = len(text) - len(rest)
        raise fail(f"{rest.splitlines()[0][:40]!r} is no tag that it understands", _SYNTAX)
    if len(stack) > 1:
        raise fail(f"<{stack[-1][0].name}> is never closed")
    if not holder.children:
        raise fail("there is no <system> element, so NCCL would ignore the file")
    return holder.children[0]


def _attributes(text: str, name: str, fail: Callable[[str], DescriptionError]) -> dict[str, str]:
    pairs = [(key, double or single) for key, double, single in _ATTRIBUTE.findall(text)]
    if len(pairs) > MAX_ATTRIBUTES:
        raise fail(f"<{name}> has {len(pairs)} attributes; NCCL drops all after the first {MAX_ATTRIBUTES}")
    longest = max((len(part) for pair in pairs for part in pair), default=0)
    if longest > MAX_CHARS:
        raise fail(f"an attribute has {longest:,} characters; NCCL reads {MAX_CHARS}")
    return dict(reversed(pairs))


class _Meaning:
    """Asks every element for what NCCL's topology code needs from it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.warnings: list[str] = []
        self.seen: dict[str, int] = {}
        """Bus ids and names of nets, with the line of the first."""

    def check(self, nodes: list[_Node]) -> None:
        for node in nodes:
            for name in _NUMBERS.get(node.name, ()):
                self.number(node, name)
            for name in _OPTIONAL_NUMBERS.get(node.name, ()):
                if name in node.attributes:
                    self.number(node, name)
            if (check := getattr(self, node.name, None)) is not None:
                check(node)

    def system(self, node: _Node) -> None:
        if (version := self.number(node, "version")) != 1:
            raise self.fail(node, f"the version is {version}; NCCL needs 1", "RCCL writes 2 and is another format.")

    def cpu(self, node: _Node) -> None:
        arch, vendor = node.attributes.get("arch"), node.attributes.get("vendor")
        if arch is not None and not arch.startswith(ARCHITECTURES):
            self.warn(node, f'arch="{arch}" is none of {", ".join(ARCHITECTURES)}')
        if arch == "x86_64" and vendor is not None:
            if not vendor.startswith(VENDORS):
                self.warn(node, f'vendor="{vendor}" is no processor vendor NCCL knows')
            for name in ("familyid", "modelid"):
                self.number(node, name)

    def pci(self, node: _Node) -> None:
        bus_id = self.bus_id(node, "busid")
        if bus_id in self.seen:
            raise self.fail(node, f'busid "{bus_id}" is already that of line {self.seen[bus_id]}')
        if bus_id != bus_id.lower():
            self.warn(node, f'busid "{bus_id}" has capitals; NCCL looks devices up in small letters')
        self.seen[bus_id] = node.line
        if "class" not in node.attributes:
            self.warn(node, "no class: NCCL asks the machine, and fails if it has no such device")
        self.known(node, "class", CLASSES, "a PCIe bridge")
        self.known(node, "link_speed", LANE_SPEEDS, "8 GT/s")

    def net(self, node: _Node) -> None:
        name = node.attributes.get("name")
        if not name:
            raise self.fail(node, "a <net> has no name, by which NCCL finds it again")
        if name in self.seen:
            self.warn(node, f'net "{name}" is also on line {self.seen[name]}; NCCL uses the first')
        self.seen.setdefault(name, node.line)
        if node.attributes.get("keep") == "1":
            self.warn(node, f'net "{name}" has keep="1": NCCL would use it though no plugin reports it')
        if "speed" in node.attributes and self.number(node, "speed") <= 0:
            self.warn(node, f'net "{name}" has no speed; NCCL counts 10 Gb/s')

    def nvlink(self, node: _Node) -> None:
        if not node.attributes.get("target"):
            raise self.fail(node, "an <nvlink> has no target")
        self.known(node, "tclass", CLASSES, "an NVSwitch")

    def pcilink(self, node: _Node) -> None:
        self.bus_id(node, "target")

    def known(self, node: _Node, name: str, table: dict[str, int] | dict[str, str], otherwise: str) -> None:
        value = node.attributes.get(name)
        if value and prefix_value(table, value) is None:
            self.warn(node, f'{name}="{value}" is unknown to NCCL, which takes it for {otherwise}')

    def attribute(self, node: _Node, name: str) -> str:
        value = node.attributes.get(name)
        if value is None:
            raise self.fail(node, f"<{node.name}> has no {name}")
        return value

    def number(self, node: _Node, name: str) -> int:
        value = self.attribute(node, name)
        number = strtol(value)
        if number is None:
            raise self.fail(node, f'{name}="{value}" is not a number')
        return number

    def bus_id(self, node: _Node, name: str) -> str:
        value = self.attribute(node, name)
        if not BUS_ID.match(value):
            raise self.fail(node, f'{name}="{value}" is not a bus id such as 0000:1a:00.0')
        return value

    def warn(self, node: _Node, text: str) -> None:
        self.warnings.append(f"line {node.line}: {text}.")

    def fail(self, node: _Node, why: str, hint: str = "") -> DescriptionError:
        return DescriptionError(f"NCCL cannot use this: {why}.", where=f"{self.source} line {node.line}", hint=hint)
