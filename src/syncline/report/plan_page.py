"""The report of a plan as one self-contained page."""

from __future__ import annotations

from syncline.fabric import Fabric
from syncline.plan.answer import Answer


def plan_page(answer: Answer, fabric: Fabric) -> str:
    """Return the page."""
    return f"<!doctype html><title>{fabric.name} {answer.best.model}</title>"
