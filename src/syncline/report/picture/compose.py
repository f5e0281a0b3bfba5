"""From a fabric to a finished picture: choose the layout and the level of detail that suit it."""

from __future__ import annotations

from numpy.typing import ArrayLike

from syncline.fabric.fabric import Fabric
from syncline.report.picture import grid, ring
from syncline.report.picture.aggregate import aggregate
from syncline.report.picture.drawing import Drawing
from syncline.report.picture.frame import Sheet, frame
from syncline.report.picture.network import DrawnNetwork, network_of
from syncline.report.picture.tiers import CLASSES, EACH, FULL, draw_tiers

MAX_FULL_HOSTS, MAX_EACH_HOSTS, MAX_EACH_SWITCHES = 8, 96, 72
MAX_WIDTH = 2700.0
"""A picture wider than this is drawn again with its equal outermost groups collapsed too."""
MAX_WIRES = 1800
"""More wires than this would blur, and make the file slow to open."""


def compose(fabric: Fabric, title: str, link_load: ArrayLike | None = None) -> Sheet:
    """Return the finished picture of a fabric."""
    network = network_of(fabric, link_load)
    return frame(network, _drawing(network), title)


def _drawing(network: DrawnNetwork) -> Drawing:
    if grid.fits(network):
        return grid.draw_grid(network)
    if ring.fits(network):
        return ring.draw_ring(network)
    detail = _detail(network)
    drawing = draw_tiers(network, aggregate(network, each=detail != CLASSES), detail)
    if detail == CLASSES and drawing.scene.width > MAX_WIDTH:
        drawing = draw_tiers(network, aggregate(network, outer=False), detail)
    if drawing.scene.width > 2 * MAX_WIDTH:
        drawing = draw_tiers(network, aggregate(network, coarse=True), CLASSES)
        drawing.notes.append(
            "This fabric is too uneven to show its groups: all hosts, and all switches of a level, are one box."
        )
    return drawing


def _detail(network: DrawnNetwork) -> str:
    hosts = network.fabric.num_hosts
    outside = len(network.vertices) - hosts
    if int(network.outside.sum()) > MAX_WIRES or outside > MAX_EACH_SWITCHES or hosts > MAX_EACH_HOSTS:
        return CLASSES
    return FULL if hosts <= MAX_FULL_HOSTS else EACH
