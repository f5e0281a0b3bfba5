"""How a cluster is put up, as one page: racks, cables, classes and arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.report.page.page import render
from syncline.report.picture.elevation import cables_svg, elevations_svg

if TYPE_CHECKING:
    from syncline.questions.clusters.build import FabricBuild


def page(answer: FabricBuild) -> str:
    """Return the page."""
    made = answer.installation
    return render(
        "fabric_build",
        title=f"How {made.fabric.name} is put up",
        text=answer,
        racks=elevations_svg(made),
        cables=cables_svg(made),
        bill=made.cable_bill,
    )


def pictures(answer: FabricBuild) -> dict[str, str]:
    """Return racks and cables drawn."""
    made = answer.installation
    return {"racks.svg": str(elevations_svg(made)), "cables.svg": str(cables_svg(made))}
