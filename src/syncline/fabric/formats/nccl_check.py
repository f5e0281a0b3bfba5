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
_CHILDREN = {
    "system": ("cpu",),
    "cpu": ("pci", "nic"),
    "pci": ("pci", "gpu", "nic", "pcilink"),
    "nic": ("net",),
    "gpu": ("nvlink", "c2c"),
}
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
    root = _Parser(text, source).document()
    meaning = _Meaning(source)
    meaning.system(root)
    nodes = list(_walk(root))
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


class _Parser:
    """Reads character by character as NCCL does, and stops where NCCL stops."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source
        self.at = 0
        self.count = self.depth = 0
        self.line = 1

    def fail(self, why: str, hint: str = "") -> DescriptionError:
        return DescriptionError(f"NCCL cannot read this: {why}.", where=f"{self.source} line {self.line}", hint=hint)

    def document(self) -> _Node:
        """Read the whole file; NCCL skips what is not <system>, so a file without one has no effect at all."""
        holder = _Node("", 1, {})
        self.children(holder, ("system",), top=True)
        if not holder.children:
            raise self.fail("there is no <system> element, so NCCL would ignore the file")
        return holder.children[0]

    def children(self, head: _Node, known: tuple[str, ...], *, top: bool = False, ignored: bool = False) -> None:
        while True:
            if self.count > MAX_ELEMENTS:
                raise self.fail(f"it has more than {MAX_ELEMENTS} elements", "Leave out devices that no rank uses.")
            tag = self.tag()
            if tag is None:
                if top:
                    return
                raise self.fail(f"<{head.name}> is never closed")
            node, form = tag
            if form == "close":
                if top or (node.name != head.name and not ignored):
                    raise self.fail(f"</{node.name}> closes <{head.name}>" if not top else f"stray </{node.name}>")
                return
            self.element(head, node, form, known)

    def element(self, head: _Node, node: _Node, form: str, known: tuple[str, ...]) -> None:
        used = node.name in known
        if used:
            self.count += 1
            head.children.append(node)
            if len(head.children) > MAX_CHILDREN:
                raise self.fail(f"<{head.name}> has more than {MAX_CHILDREN} elements inside")
        if form == "open":
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise self.fail(f"it is nested more than {MAX_DEPTH} elements deep")
            self.children(node, _CHILDREN.get(node.name, ()) if used else (), ignored=not used)
            self.depth -= 1

    def tag(self) -> tuple[_Node, str] | None:
        """Read one tag (skipping comments); None at the end of the file."""
        while True:
            char = self.skip_blanks()
            if char == "":
                return None
            if char != "<":
                raise self.fail(f"expected '<' but found {char!r}", "Indent with blanks; no tabs, no text.")
            self.next()
            line = self.line
            name, _, last = self.token(values=False)
            if not name.startswith("!--"):
                break
            self.comment(name[3:] + last)
        if name == "" and last == "/":
            name, _, last = self.token(values=False)
            if last != ">":
                raise self.fail(f"</{name} is followed by {last!r} instead of '>'")
            return _Node(name, line, {}), "close"
        return self.opened(name, last, line)

    def opened(self, name: str, last: str, line: int) -> tuple[_Node, str]:
        attributes: dict[str, str] = {}
        count = 0
        while last == " ":
            key, value, last = self.token(values=True)
            count += 1
            attributes.setdefault(key, value)
        if count > MAX_ATTRIBUTES:
            raise self.fail(f"<{name}> has {count} attributes; NCCL drops all after the first {MAX_ATTRIBUTES}")
        form = "open"
        if last == "/":
            form = "single"
            _, _, last = self.token(values=False)
        if last != ">":
            hint = "NCCL takes no XML prolog." if name.startswith("?") else "Write each tag on one line."
            raise self.fail(f"<{name}: expected '>' but found {last!r}", hint)
        return _Node(name, line, attributes), form

    def token(self, *, values: bool) -> tuple[str, str, str]:
        """Read a name, its value where one follows, and the character after it."""
        start = self.at
        while True:
            char = self.next()
            if char == "=":
                if not values:
                    raise self.fail(f"'=' after {self.text[start : self.at - 1][:20]!r}, where no value may stand")
                name = self.text[start : self.at - 1]
                return name, self.value(), self.next()
            if self.at - start > MAX_CHARS + 1:
                raise self.fail(f"a name has more than {MAX_CHARS} characters")
            if char in " >/\n\r":
                return self.text[start : self.at - 1], "", char

    def value(self) -> str:
        quote = self.next()
        if quote not in "\"'":
            raise self.fail(f"expected a quote after '=' but found {quote!r}")
        start = self.at
        while self.next() != quote:
            pass
        value = self.text[start : self.at - 1]
        if len(value) > MAX_CHARS:
            raise self.fail(f"a value has {len(value):,} characters; NCCL reads {MAX_CHARS}")
        return value

    def comment(self, seen: str) -> None:
        while not seen.endswith("-->"):
            end = self.text.find("-->", max(0, self.at - 2))
            if end < 0:
                raise self.fail("a comment is never closed")
            self.line += self.text.count("\n", self.at, end + 3)
            self.at = end + 3
            return

    def skip_blanks(self) -> str:
        while self.at < len(self.text) and self.text[self.at] in " \n\r":
            self.next()
        return self.text[self.at] if self.at < len(self.text) else ""

    def next(self) -> str:
        if self.at >= len(self.text):
            raise self.fail("the file ends inside a tag")
        char = self.text[self.at]
        self.at += 1
        self.line += char == "\n"
        return char


class _Meaning:
    """Asks every element for what NCCL's topology code needs from it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.warnings: list[str] = []
        self.bus_ids: dict[str, int] = {}
        self.names: dict[str, int] = {}

    def system(self, node: _Node) -> None:
        if (version := self.number(node, "version")) != 1:
            raise self.fail(node, f"the version is {version}; NCCL needs 1", "RCCL writes 2 and is another format.")
        for cpu in node.children:
            self.cpu(cpu)

    def cpu(self, node: _Node) -> None:
        self.number(node, "numaid")
        arch, vendor = node.attributes.get("arch"), node.attributes.get("vendor")
        if arch is not None and not arch.startswith(ARCHITECTURES):
            self.warn(node, f'arch="{arch}" is none of {", ".join(ARCHITECTURES)}')
        if arch == "x86_64" and vendor is not None:
            if not vendor.startswith(VENDORS):
                self.warn(node, f'vendor="{vendor}" is no processor vendor NCCL knows')
            for name in ("familyid", "modelid"):
                self.number(node, name)
        self.each(node)

    def each(self, node: _Node) -> None:
        checks: dict[str, Callable[[_Node], object]] = {
            "pci": self.pci, "gpu": self.gpu, "nic": self.each, "net": self.net, "nvlink": self.nvlink,
            "c2c": self.c2c, "pcilink": lambda n: self.bus_id(n, "target"),
        }  # fmt: skip
        for child in node.children:
            checks[child.name](child)

    def pci(self, node: _Node) -> None:
        bus_id = self.bus_id(node, "busid")
        if bus_id in self.bus_ids:
            raise self.fail(node, f'busid "{bus_id}" is already that of line {self.bus_ids[bus_id]}')
        if bus_id != bus_id.lower():
            self.warn(node, f'busid "{bus_id}" has capitals; NCCL looks devices up in small letters')
        self.bus_ids[bus_id] = node.line
        class_ = node.attributes.get("class")
        if class_ is None:
            self.warn(node, "no class: NCCL asks the machine, and fails if it has no such device")
        elif prefix_value(CLASSES, class_) is None:
            self.warn(node, f'class="{class_}" is unknown to NCCL, which takes it for a PCIe bridge')
        speed = node.attributes.get("link_speed")
        if speed and prefix_value(LANE_SPEEDS, speed) is None:
            self.warn(node, f'link_speed="{speed}" is unknown to NCCL, which takes it for 8 GT/s')
        self.each(node)

    def gpu(self, node: _Node) -> None:
        for name in ("dev", "sm", "rank", "gdr"):
            if name in node.attributes:
                self.number(node, name)
        self.each(node)

    def net(self, node: _Node) -> None:
        name = node.attributes.get("name")
        if not name:
            raise self.fail(node, "a <net> has no name, by which NCCL finds it again")
        if name in self.names:
            self.warn(node, f'net "{name}" is also on line {self.names[name]}; NCCL uses the first')
        self.names[name] = node.line
        if node.attributes.get("keep") == "1":
            self.warn(node, f'net "{name}" has keep="1": NCCL would use it though no plugin reports it')
        if "speed" in node.attributes and self.number(node, "speed") <= 0:
            self.warn(node, f'net "{name}" has no speed; NCCL counts 10 Gb/s')

    def nvlink(self, node: _Node) -> None:
        self.number(node, "count")
        class_ = node.attributes.get("tclass", "")
        if not node.attributes.get("target"):
            raise self.fail(node, "an <nvlink> has no target")
        if class_ and prefix_value(CLASSES, class_) is None:
            self.warn(node, f'tclass="{class_}" is unknown to NCCL, which takes it for an NVSwitch')

    def c2c(self, node: _Node) -> None:
        for name in ("bw", "count"):
            self.number(node, name)

    def number(self, node: _Node, name: str) -> int:
        value = node.attributes.get(name)
        if value is None:
            raise self.fail(node, f"<{node.name}> has no {name}")
        number = strtol(value)
        if number is None:
            raise self.fail(node, f'{name}="{value}" is not a number')
        return number

    def bus_id(self, node: _Node, name: str) -> str:
        value = node.attributes.get(name)
        if value is None:
            raise self.fail(node, f"<{node.name}> has no {name}")
        if not BUS_ID.match(value):
            raise self.fail(node, f'{name}="{value}" is not a bus id such as 0000:1a:00.0')
        return value

    def warn(self, node: _Node, text: str) -> None:
        self.warnings.append(f"line {node.line}: {text}.")

    def fail(self, node: _Node, why: str, hint: str = "") -> DescriptionError:
        return DescriptionError(f"NCCL cannot use this: {why}.", where=f"{self.source} line {node.line}", hint=hint)
