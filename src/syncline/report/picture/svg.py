"""A Scene as SVG text: self-contained, deterministic, every name escaped."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from syncline.report.picture.frame import Sheet
from syncline.report.picture.palette import style_sheet
from syncline.report.picture.scene import LAYERS, DrawnCable, DrawnPath, Rectangle, Scene, Text, num

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(sheet: Sheet) -> str:
    """Return a finished picture as one SVG document."""
    width, height = num(sheet.around.width), num(sheet.around.height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fabric" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label={_quoted(sheet.label)}>',
        f"<style>{style_sheet()}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]
    lines += ['<g class="around">', *_layers(sheet.around), "</g>"]
    lines += [
        f'<g class="drawing" transform="translate({num(sheet.x)} {num(sheet.y)})">',
        *_layers(sheet.inner),
        "</g>",
    ]
    lines.append("</svg>\n")
    return "\n".join(lines)


def _layers(scene: Scene) -> list[str]:
    lines = []
    for layer in LAYERS:
        if scene.layers[layer]:
            lines += [f'<g class="layer-{layer}">', *(_item(item) for item in scene.layers[layer]), "</g>"]
    return lines


def clean(text: str) -> str:
    """Return the text escaped for XML, without the control characters that XML cannot hold."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def _quoted(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("\ufffd", text))


def _item(item: Rectangle | DrawnCable | Text | DrawnPath) -> str:
    if isinstance(item, Rectangle):
        return _box(item)
    if isinstance(item, DrawnCable):
        return _wire(item)
    return _text(item) if isinstance(item, Text) else _shape(item)


def _title(text: str) -> str:
    return f"<title>{clean(text)}</title>" if text else ""


def _box(box: Rectangle) -> str:
    rect = (
        f'<rect class="{box.look}" x="{num(box.x)}" y="{num(box.y)}" width="{num(box.width)}" '
        f'height="{num(box.height)}" rx="{num(box.radius)}"'
    )
    inner = "".join(_shape(part) for part in box.parts)
    if not box.key and not box.title:
        return f"{rect}/>{inner}"
    key = f" data-key={_quoted(box.key)}" if box.key else ""
    return f'<g class="thing"{key}>{_title(box.title)}{rect}/>{inner}</g>'


def _shape(shape: DrawnPath) -> str:
    title = _title(shape.title)
    width = f' stroke-width="{num(shape.width)}"' if shape.width else ""
    head = f'<path class="{shape.look}" d="{shape.path}"{width}'
    return f"{head}>{title}</path>" if title else f"{head}/>"


def _wire(wire: DrawnCable) -> str:
    lane = f' data-lane="{wire.lane}"' if wire.lane >= 0 else ""
    return (
        f'<path class="w {wire.look}" d="{wire.path}" stroke-width="{num(wire.width)}" '
        f'stroke-opacity="{wire.opacity:.2f}" data-a={_quoted(wire.a)} data-b={_quoted(wire.b)} '
        f'data-tier="{wire.tier}"{lane}>{_title(wire.title)}</path>'
    )


def _text(text: Text) -> str:
    turn = f' transform="rotate({num(text.turn)} {num(text.x)} {num(text.y)})"' if text.turn else ""
    anchor = "" if text.anchor == "start" else f' text-anchor="{text.anchor}"'
    return f'<text class="{text.look}" x="{num(text.x)}" y="{num(text.y)}"{anchor}{turn}>{clean(text.text)}</text>'
