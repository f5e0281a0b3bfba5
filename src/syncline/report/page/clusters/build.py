"""What is drawn of an installation: racks, and where cables run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.describe import units
from syncline.report.page.page import Drawing
from syncline.report.picture.elevation import cables_svg, elevations_svg
from syncline.report.table import table

if TYPE_CHECKING:
    from syncline.questions.clusters.build import FabricBuild


def drawings(answer: FabricBuild) -> list[Drawing]:
    """Return racks, cables and what the cables cost by length."""
    made = answer.installation
    bill = table(
        made.cable_bill,
        {
            "cable": lambda line: line.part,
            "length": lambda line: f"{line.length_m:g} m",
            "count": lambda line: f"{line.count:,}",
            "price": lambda line: "-" if line.unit_price_usd is None else units.show_money(line.price_usd),
        },
        words=("cable",),
    )
    return [Drawing("Racks", elevations_svg(made)), Drawing("Cables", cables_svg(made)), Drawing("", bill)]


def pictures(answer: FabricBuild) -> dict[str, str]:
    """Return racks and cables drawn."""
    made = answer.installation
    return {"racks.svg": str(elevations_svg(made)), "cables.svg": str(cables_svg(made))}
