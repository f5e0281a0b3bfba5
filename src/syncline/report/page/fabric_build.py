"""How a cluster is put up, as one page: racks, cables, classes and arithmetic."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from syncline.describe import units
from syncline.install.installation import Installation
from syncline.report.page.shell import document
from syncline.report.picture.elevation import cables_svg, elevations_svg
from syncline.report.text.fabric_build import build_lines
from syncline.version import __version__


def build_page(found: Installation, num_files: int) -> str:
    """Return the page."""
    style = (files("syncline.report.page") / "plan.css").read_text(encoding="utf-8")
    title = f"How {found.fabric.name} is put up"
    rows = "".join(
        f"<tr><td>{escape(line.part)}</td><td>{line.length_m:g} m</td><td>{line.count:,}</td>"
        f"<td>{units.show_money(line.price_usd) if line.unit_price_usd is not None else '-'}</td></tr>"
        for line in found.cable_bill
    )
    body = [
        f"<header><h1>{escape(title)}</h1></header>",
        f'<pre tabindex="0">{escape(chr(10).join(build_lines(found, num_files)))}</pre>',
        "<h2>Racks</h2>", elevations_svg(found), "<h2>Cables</h2>", cables_svg(found),
        f"<table><tr><th>cable</th><th>length</th><th>count</th><th>price</th></tr>{rows}</table>",
        f"<footer>syncline {__version__}</footer>",
    ]  # fmt: skip
    return document(title, style, "".join(body))
