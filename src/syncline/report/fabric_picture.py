"""The picture of a fabric: an SVG, a page that can be explored, or a PNG.

    fabric = load("dgx-h100-superpod")
    Path("fabric.svg").write_text(draw_svg(fabric))
    Path("fabric.html").write_text(draw_html(fabric, {"GPUs": "1,024"}))

Small fabrics are drawn with every device and cable, larger ones with equal things collapsed and counted; the counts
on a picture always add up to the fabric's.
"""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import ArrayLike

from syncline.fabric.fabric import Fabric
from syncline.report.picture.compose import compose
from syncline.report.picture.page import page
from syncline.report.picture.raster import write_png
from syncline.report.picture.svg import render

__all__ = ["draw_html", "draw_svg", "write_png"]


def draw_svg(fabric: Fabric, *, title: str | None = None, link_load: ArrayLike | None = None) -> str:
    """Return a self-contained SVG of the fabric. `link_load` (one utilisation per link, 0 to 1) colours the links."""
    return render(compose(fabric, title or fabric.name, link_load))


def draw_html(
    fabric: Fabric,
    facts: Mapping[str, object] | None = None,
    *,
    title: str | None = None,
    link_load: ArrayLike | None = None,
) -> str:
    """Return one self-contained page with the picture (pan, zoom, hover, filters) and, beside it, a table of facts."""
    name = title or fabric.name
    sheet = compose(fabric, name, link_load)
    return page(render(sheet), name, sheet.filters, facts or {})
