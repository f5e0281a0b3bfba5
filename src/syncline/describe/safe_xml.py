"""XML from outside, read safely and without loss.

Documents come from dumps and from other people's tools, so a DOCTYPE (and with it every entity but the five of XML
itself), deep nesting, too many elements and long values are refused, each in one sentence with the line. What comes
out is a frozen tree that keeps every element, attribute and comment in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from syncline.errors import DescriptionError

MAX_DEPTH = 64
MAX_VALUE_CHARS = 1_000_000
Attributes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, kept because people explain bus ids in them."""

    text: str


@dataclass(frozen=True, slots=True)
class Element:
    """One XML element; equality ignores the line it was read from."""

    tag: str
    attributes: Attributes = ()
    children: tuple[Element | Comment, ...] = ()
    line: int = field(default=0, compare=False)

    @property
    def elements(self) -> tuple[Element, ...]:
        """The child elements, without the comments."""
        return tuple(child for child in self.children if isinstance(child, Element))

    def get(self, name: str, default: str = "") -> str:
        """Return an attribute's value, or the default where it is missing."""
        return next((value for key, value in self.attributes if key == name), default)

    def walk(self) -> Iterator[Element]:
        """Yield this element and all below it, in document order."""
        yield self
        for child in self.elements:
            yield from child.walk()


def parse_xml(text: str, source: str, *, max_elements: int) -> tuple[tuple[Comment, ...], Element]:
    """Return the comments above the root, and the root; anything unsafe or malformed raises with its line."""
    builder = _Builder()
    _run(text, source, max_elements, builder)
    assert builder.root is not None
    return tuple(builder.before), builder.root


def scan_xml(text: str, source: str, *, max_elements: int) -> str:
    """Return the root's tag of a document that is safe to hand to a less careful parser, or raise."""
    watcher = _Watcher()
    _run(text, source, max_elements, watcher)
    return watcher.tag


def write_xml(before: tuple[Comment, ...], root: Element) -> str:
    """Return the document as text: two blanks a level, double quotes, no prolog."""
    lines = [f"<!--{comment.text}-->" for comment in before]
    _write(root, "", lines)
    return "\n".join(lines) + "\n"


def _write(element: Element, indent: str, lines: list[str]) -> None:
    pairs = "".join(f" {key}={_quoted(value)}" for key, value in element.attributes)
    if not element.children:
        lines.append(f"{indent}<{element.tag}{pairs}/>")
        return
    lines.append(f"{indent}<{element.tag}{pairs}>")
    for child in element.children:
        if isinstance(child, Comment):
            lines.append(f"{indent}  <!--{child.text}-->")
        else:
            _write(child, indent + "  ", lines)
    lines.append(f"{indent}</{element.tag}>")


def _quoted(value: str) -> str:
    if '"' in value or "'" in value:
        return '"' + escape(value, {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}) + '"'
    return quoteattr(value)


class _Watcher:
    """Sees every event and keeps only the root's tag."""

    def __init__(self) -> None:
        self.tag = ""

    def start(self, tag: str, pairs: Attributes, line: int) -> None:
        self.tag = self.tag or tag

    def end(self) -> None:
        pass

    def comment(self, text: str) -> None:
        pass

    def text(self, data: str) -> str:
        return ""


class _Builder(_Watcher):
    """Builds the frozen tree from the leaves up."""

    def __init__(self) -> None:
        super().__init__()
        self.root: Element | None = None
        self.before: list[Comment] = []
        self._open: list[tuple[str, Attributes, int, list[Element | Comment]]] = []

    def start(self, tag: str, pairs: Attributes, line: int) -> None:
        self._open.append((tag, pairs, line, []))

    def end(self) -> None:
        tag, pairs, line, children = self._open.pop()
        element = Element(tag, pairs, tuple(children), line)
        if self._open:
            self._open[-1][3].append(element)
        else:
            self.root = element

    def comment(self, text: str) -> None:
        if self._open:
            self._open[-1][3].append(Comment(text))
        elif self.root is None:
            self.before.append(Comment(text))

    def text(self, data: str) -> str:
        return f'has text between its elements ("{data.strip()[:40]}")' if data.strip() else ""


def _run(text: str, source: str, max_elements: int, watcher: _Watcher) -> None:
    # The text is already decoded, so an encoding named in the prolog must not be tried a second time.
    parser = expat.ParserCreate("utf-8")
    parser.ordered_attributes = True
    parser.buffer_text = True
    depth = count = 0

    def refuse(what: str, hint: str = "") -> DescriptionError:
        return DescriptionError(f"the XML {what}.", where=f"{source} line {parser.CurrentLineNumber}", hint=hint)

    def start(tag: str, values: list[str]) -> None:
        nonlocal depth, count
        depth, count = depth + 1, count + 1
        if depth > MAX_DEPTH:
            raise refuse(f"is nested more than {MAX_DEPTH} elements deep")
        if count > max_elements:
            raise refuse(f"has more than {max_elements:,} elements")
        longest = max((len(v) for v in values), default=0)
        if longest > MAX_VALUE_CHARS:
            raise refuse(f"has an attribute of {longest:,} characters; the limit is {MAX_VALUE_CHARS:,}")
        watcher.start(tag, tuple(zip(values[::2], values[1::2], strict=True)), parser.CurrentLineNumber)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        watcher.end()

    def data(chunk: str) -> None:
        if problem := watcher.text(chunk):
            raise refuse(problem)

    def doctype(*_: object) -> None:
        raise refuse("has a DOCTYPE, which is never read", "Remove the <!DOCTYPE ...> and any entities.")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = data
    parser.CommentHandler = watcher.comment
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = doctype
    try:
        parser.Parse(text.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        raise DescriptionError(
            f"not well-formed XML: {expat.ErrorString(error.code)}.", where=f"{source} line {error.lineno}"
        ) from None
