"""SVG, element by element: text is escaped as in templates, coordinates are written short.

drawing = Svg(200, 100, "a square")
drawing.add("rect", x=10, y=10, width=80, height=80, class_="box", title="hover me")
str(drawing)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from markupsafe import Markup, escape

Value = str | float | None
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def num(value: float) -> str:
    """Write a coordinate: at most one decimal, so that pictures are small and the same on every machine."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def clean(text: str) -> Markup:
    """Return the text escaped for XML, without the control characters that XML cannot hold."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def element(tag: str, *inside: Markup | str, title: Value = "", **attributes: Value) -> Markup:
    """Return one element. `class_` is `class`, `text_anchor` is `text-anchor`; empty attributes are left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{clean(value) if isinstance(value, str) else num(value)}"'
        for name, value in attributes.items()
        if value is not None and value != ""
    )
    content = (f"<title>{clean(str(title))}</title>" if title else "") + "".join(
        part if isinstance(part, Markup) else clean(part) for part in inside
    )
    return Markup(f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>")  # noqa: S704 escaped above


def points(xs: Iterable[float], ys: Iterable[float]) -> str:
    """Return the places of a polyline or polygon."""
    return " ".join(f"{num(x)},{num(y)}" for x, y in zip(xs, ys, strict=True))


class Svg:
    """A drawing: its size, what a screen reader calls it, and its elements in the order in which they are painted.

    A drawing fills the width of its page unless its size `is_fixed`.
    """

    def __init__(self, width: float, height: float, label: str, is_fixed: bool = False, **attributes: Value) -> None:
        self.width, self.height, self._is_fixed = width, height, is_fixed
        self._attributes: dict[str, Value] = {"role": "img", "aria_label": label, **attributes}
        self._elements: list[Markup] = []

    def add(self, tag: str, *inside: Markup | str, title: Value = "", **attributes: Value) -> None:
        """Paint one more element."""
        self._elements.append(element(tag, *inside, title=title, **attributes))

    def text(self, x: float, y: float, words: str, **attributes: Value) -> None:
        """Write a line of text; `text_anchor` is where of it x is."""
        self.add("text", words, x=x, y=y, **attributes)

    def line(self, x1: float, y1: float, x2: float, y2: float, **attributes: Value) -> None:
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)

    def markup(self, **attributes: Value) -> Markup:
        """Return the drawing, to be put into a page."""
        box = f"0 0 {num(self.width)} {num(self.height)}"
        size = {"width": self.width, "height": self.height} if self._is_fixed else {}
        return element("svg", *self._elements, viewBox=box, **attributes, **size, **self._attributes)

    def document(self) -> Markup:
        """Return the drawing as a file of its own."""
        return self.markup(xmlns="http://www.w3.org/2000/svg") + "\n"
