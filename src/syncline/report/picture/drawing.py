"""A Drawing: the scene a layout made, with captions for its left margin and notes for its foot."""

from __future__ import annotations

from dataclasses import dataclass, field

from syncline.report.picture.scene import Scene


@dataclass(frozen=True)
class Caption:
    """Lines of text in the left margin at a height of the scene; a device row's first line is strong."""

    y: float
    lines: list[str]
    row: float | None = None
    strong: bool = False


@dataclass
class Drawing:
    """What a layout hands to the frame around it."""

    scene: Scene
    captions: list[Caption] = field(default_factory=list)
    aggregated: bool = False
    notes: list[str] = field(default_factory=list)
    lane_names: tuple[str, ...] = ()
    """What the lanes of this drawing are, if not the network's rails or planes (axes of a torus)."""
