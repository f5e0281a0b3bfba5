"""The page of a cluster: its picture."""

from __future__ import annotations

from syncline.questions.fabric import InventoryAnswer
from syncline.report.fabric_picture import draw_html, draw_svg


def page(answer: InventoryAnswer) -> str:
    """Return the interactive picture of a cluster with its figures."""
    return draw_html(answer.fabric, dict(answer.to_json()))


def pictures(answer: InventoryAnswer) -> dict[str, str]:
    """Return the picture of a cluster."""
    return {"cluster.svg": str(draw_svg(answer.fabric))}
