"""How a cluster is put up, as one page: racks, cables, classes and arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.describe import units
from syncline.report.page.page import render
from syncline.report.picture.elevation import cables_svg, elevations_svg

if TYPE_CHECKING:
    from syncline.questions.fabric_build import FabricBuild


def build_page(answer: FabricBuild) -> str:
    """Return the page."""
    made = answer.installation
    bill = [
        [line.part, f"{line.length_m:g} m", f"{line.count:,}",
         units.show_money(line.price_usd) if line.unit_price_usd is not None else "-"]
        for line in made.cable_bill
    ]  # fmt: skip
    return render(
        "fabric_build",
        title=f"How {made.fabric.name} is put up",
        text=answer,
        racks=elevations_svg(made),
        cables=cables_svg(made),
        bill=bill,
    )
