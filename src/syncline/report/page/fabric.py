"""The page of a cluster: its picture."""

from __future__ import annotations

from syncline.questions.fabric import InventoryAnswer
from syncline.report.fabric_picture import draw_html


def page(answer: InventoryAnswer) -> str:
    """Return the interactive picture of a cluster with its figures."""
    return draw_html(answer.fabric, dict(answer.to_json()))
