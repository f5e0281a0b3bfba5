"""The picture of a fabric: an SVG, a page that can be explored, or a PNG.

    fabric = load("dgx-h100-superpod")
    Path("fabric.svg").write_text(draw_svg(fabric))
    Path("fabric.html").write_text(draw_html(fabric, {"GPUs": "1,024"}))

Small fabrics are drawn with every device and cable, larger ones with equal things collapsed and counted; the counts
on a picture always add up to the fabric's.
"""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup
from numpy.typing import ArrayLike

from syncline.describe.raster import write_png
from syncline.fabric.fabric import Fabric
from syncline.report.page.page import render
from syncline.report.picture import grid, ring
from syncline.report.picture.aggregate import aggregate
from syncline.report.picture.facts import fact_rows
from syncline.report.picture.frame import Sheet, frame
from syncline.report.picture.network import DrawnNetwork, network_of
from syncline.report.picture.palette import page_style
from syncline.report.picture.scene import Scene
from syncline.report.picture.tiers import CLASSES, EACH, FULL, draw_tiers

__all__ = ["draw_html", "draw_svg", "write_png"]

MAX_FULL_HOSTS, MAX_EACH_HOSTS, MAX_EACH_SWITCHES = 8, 96, 72
MAX_WIDTH = 2700.0
"""A picture wider than this is drawn again with its equal outermost groups collapsed too."""
MAX_WIRES = 1800
"""More wires than this would blur, and make the file slow to open."""
UNEVEN = "This fabric is too uneven to show its groups: all hosts, and all switches of a level, are one box."


def draw_svg(fabric: Fabric, link_load: ArrayLike | None = None) -> Markup:
    """Return a self-contained SVG of the fabric. `link_load` (one utilisation per link, 0 to 1) colours the links."""
    return _sheet(fabric, link_load).svg


def draw_html(fabric: Fabric, facts: Mapping[str, object]) -> str:
    """Return one self-contained page with the picture (pan, zoom, hover, filters) and a table of facts next to it."""
    style = Markup(page_style())  # noqa: S704 constants
    return render("fabric", title=fabric.name, sheet=_sheet(fabric), colours=style, facts=fact_rows(facts))


def _sheet(fabric: Fabric, link_load: ArrayLike | None = None) -> Sheet:
    network = network_of(fabric, link_load)
    return frame(network, _scene(network))


def _scene(network: DrawnNetwork) -> Scene:
    """Draw the network in the layout and level of detail that suit it."""
    if grid.fits(network):
        return grid.draw_grid(network)
    if ring.fits(network):
        return ring.draw_ring(network)
    detail = _detail(network)
    scene = draw_tiers(network, aggregate(network, each=detail != CLASSES), detail)
    if detail == CLASSES and scene.width > MAX_WIDTH:
        scene = draw_tiers(network, aggregate(network, outer=False), detail)
    if scene.width > 2 * MAX_WIDTH:
        scene = draw_tiers(network, aggregate(network, coarse=True), CLASSES)
        scene.notes.insert(0, UNEVEN)
    return scene


def _detail(network: DrawnNetwork) -> str:
    hosts = network.fabric.num_hosts
    outside = len(network.vertices) - hosts
    if int(network.outside.sum()) > MAX_WIRES or outside > MAX_EACH_SWITCHES or hosts > MAX_EACH_HOSTS:
        return CLASSES
    return FULL if hosts <= MAX_FULL_HOSTS else EACH
